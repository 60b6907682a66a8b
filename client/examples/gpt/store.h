/* Where parameters, gradients and optimizer state live, seen from the training loop: an ops table
 * with two implementations. store_zerod.c borrows from a daemon through libzerod;
 * store_standalone.c holds all in this process and does the arithmetic of a single daemon, bit for
 * bit.
 *
 * Calls, their order and their errors are those of zerod.h; gradients are fp32 here, whatever the
 * wire's dtype. Two gradients may be open at a time. Functions return 0 or a negative status
 * with a text; -ST_ABORTED: the step is void, the next call must be begin.
 */
#ifndef GPT_STORE_H
#define GPT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "layout/model.h"
#include "spec.h"

struct store_config {
    struct gpt_shape shape;
    enum dtype dtype; /* of gathered parameters; NONE: the store's choice */
    uint32_t micro_batches;
    struct optimizer_options optimizer;
    struct loss_scaling scaling;
    bool initialised; /* by the store, from |seed|; else the trainer loads the first values */
    uint64_t seed;
};

struct store_try {
    uint64_t step; /* 0: loading */
    uint64_t attempt;
    bool loading;
    const void *cursor; /* the store's, until the next begin */
    size_t cursor_bytes;
    double loss_scale;
    const char *void_reason; /* ""; the store's, until the next begin */
};

struct store_step {
    double lr, clip;
    double loss; /* mean over this rank's tokens */
    const void *cursor;
    size_t cursor_bytes;
};

struct store_outcome {
    bool skipped; /* a gradient was not finite */
    double grad_norm;
    double loss; /* mean over ranks */
};

struct store;

/* What of a unit is meant: sizes and places are fp32 elements (of parameters: of their dtype). */
enum store_part { STORE_PARAMS, STORE_GRADIENT, STORE_INITIAL, STORE_PARTS };

#define STORE_NOWHERE UINT64_MAX

struct store_ops {
    int (*begin)(struct store *s, struct store_try *t, struct err *e);
    int (*gather)(struct store *s, size_t unit, const void **params, struct err *e);
    int (*release)(struct store *s, size_t unit, struct err *e);
    int (*grad)(struct store *s, size_t unit, float **grad, struct err *e);
    int (*reduce)(struct store *s, size_t unit, struct err *e);
    int (*initial)(struct store *s, size_t unit, float **values, struct err *e);
    int (*load)(struct store *s, size_t unit, struct err *e);
    int (*step)(struct store *s, const struct store_step *step, struct store_outcome *o,
                struct err *e); /* |step| NULL: the end of loading */
    int (*begin_eval)(struct store *s, struct err *e);
    int (*end_eval)(struct store *s, struct err *e);
    /* Padding included; 0: the unit has no such part. */
    uint64_t (*elements)(const struct store *s, enum store_part part, size_t unit);
    /* From the part's start; a tied tensor's is embed.wte's, in embed. STORE_NOWHERE: none. */
    uint64_t (*offset)(const struct store *s, enum store_part part, size_t unit, size_t tensor);
    bool (*hash)(const struct store *s, uint64_t *hash); /* of the masters; false: not known here */
    void (*close)(struct store *s, bool finished);       /* frees |s| */
};

/* What every implementation starts with. */
struct store {
    const struct store_ops *ops;
    unsigned rank, world;
    enum dtype dtype;
};

/* On success *s is the caller's until ops->close. Errors: zerod_attach's. */
int store_zerod_open(const struct store_config *c, struct store **s, struct err *e);

/* Errors: layout_init's; RESOURCE_EXHAUSTED: no memory. */
int store_standalone_open(const struct store_config *c, struct store **s, struct err *e);

#endif
