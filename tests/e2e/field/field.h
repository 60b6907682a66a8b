/* Trainers for the cases taken from other projects' threads (cases/field.py): a small model with
 * numbers that are exact in fp32, so that what must come out is known. field.c runs the steps,
 * modes.c says what each mode changes and checks. */
#ifndef ZD_TESTS_FIELD_H
#define ZD_TESTS_FIELD_H

#include <stdbool.h>
#include <stdint.h>

#include "client/zerod.h"

enum { UNITS = 3, TENSORS = 2, MAX_OPS = 3 * UNITS };
enum { FIRST, SECOND, EXPERT };

/* "first": a[70], b[5]; "second": w[33], v[0]; "expert": e[12], f[1]. Initial values 0 by the
 * daemons, SGD with learning rate 1: a parameter is minus the sum of its mean gradients. */
struct field {
    const char *mode;
    uint64_t steps, argument;
    struct zerod *z;
    unsigned rank, world;
    struct zerod_model model;
    struct zerod_unit units[UNITS];
    struct zerod_tensor tensors[UNITS][TENSORS];
    struct zerod_op ops[MAX_OPS];
    struct zerod_plan plan;
    double lr, clip;
    float value[UNITS]; /* what every element must be now */
    unsigned told;      /* errors that the mode expects */
    uint64_t skipped;
    bool check_values;
};

bool is(const struct field *f, const char *mode);
_Noreturn void fail(const struct field *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Fails unless |rc| is -|code| and the last error has |part|. */
void expect(struct field *f, int rc, int code, const char *part);
uint64_t elements(unsigned unit, unsigned tensor);

/* modes.c */
void mode_shape(struct field *f);
/* Of rank, step, micro-batch: the gradient of each element of the unit. */
float mode_gradient(const struct field *f, unsigned rank, const struct zerod_try *t,
                    uint64_t micro_batch, unsigned unit);
/* Does this rank leave the unit out of this micro-batch? */
bool mode_leaves_out(const struct field *f, unsigned rank, uint64_t step, uint64_t attempt,
                     uint64_t micro_batch, unsigned unit);
void mode_look(const struct field *f, const struct zerod_try *t, uint32_t unit, const void *params);
/* How many micro-batches of the step this rank does before step(). */
uint64_t mode_micro_batches(const struct field *f, const struct zerod_try *t);
void mode_after_reduce(struct field *f, const struct zerod_try *t, uint32_t unit);
void mode_after_step(struct field *f, const struct zerod_try *t, const struct zerod_outcome *o);
void mode_entered(struct field *f, const struct zerod_try *t);
/* A call of the try failed with |rc|: returns when that is what must happen. */
void mode_voided(struct field *f, const struct zerod_try *t, int rc);
void mode_end(const struct field *f);

#endif
