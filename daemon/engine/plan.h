/* One kind of collective of one plan, as one numbered sequence over all passes of a try: the n-th
 * gather, the n-th reduce. Pure. */
#ifndef ZD_ENGINE_PLAN_H
#define ZD_ENGINE_PLAN_H

#include "base/err.h"
#include "layout/model.h"

struct course {
    const struct model *model; /* borrowed */
    const struct plan *plan;   /* NULL: an empty course */
    enum plan_kind kind;
    uint32_t *ops;   /* positions in the plan of one pass's; owned */
    uint32_t length; /* of one pass */
    uint32_t passes; /* micro-batches */
};

/* |plan| NULL: empty. RESOURCE_EXHAUSTED: more collectives than 32 bits number. */
int course_init(struct course *c, const struct model *m, const struct plan *plan,
                enum plan_kind kind, uint32_t passes, struct err *e);
void course_free(struct course *c);

uint32_t course_total(const struct course *c);
uint32_t course_unit(const struct course *c, uint32_t n); /* n < total */
/* Does |unit| come among the collectives of n's pass that are before n? */
bool course_had(const struct course *c, uint32_t n, uint64_t unit);

/* FAILED_PRECONDITION: n is what the plan says next (or nothing, at its end), |unit| what was
 * asked. */
int course_refuse(const struct course *c, uint64_t step, uint32_t n, uint64_t unit, struct err *e);
/* FAILED_PRECONDITION: the plan still expects n; |more| is added to the text. */
int course_unfinished(const struct course *c, uint64_t step, uint32_t n, const char *more,
                      struct err *e);

/* How many of the collectives from n on may be left out, as |optional| says by unit, before one of
 * |unit| comes; UINT32_MAX: it cannot come next. */
uint32_t course_gap(const struct course *c, uint32_t n, uint64_t unit, const bool *optional);

#endif
