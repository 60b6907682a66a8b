#include "engine/plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/buf.h"

static const char *verb(enum plan_kind k) {
    return k == PLAN_GATHER ? "gather" : "reduce";
}

int course_init(struct course *c, const struct model *m, const struct plan *plan,
                enum plan_kind kind, uint32_t passes, struct err *e) {
    uint32_t n = 0;
    for (size_t i = 0; plan && i < plan->count; i++) {
        n += plan->ops[i].kind == kind;
    }
    if ((uint64_t)n * passes >= UINT32_MAX) {
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "plan \"%s\": %" PRIu32 " %ss in %" PRIu32
                       " micro-batches are more than a step can number",
                       plan->name, n, verb(kind), passes);
    }
    *c = (struct course){.model = m, .plan = plan, .kind = kind, .length = n, .passes = passes};
    c->ops = mem_zeroed(n, sizeof *c->ops);
    n = 0;
    for (size_t i = 0; plan && i < plan->count; i++) {
        if (plan->ops[i].kind == kind) {
            c->ops[n++] = (uint32_t)i;
        }
    }
    return 0;
}

void course_free(struct course *c) {
    free(c->ops);
    *c = (struct course){0};
}

uint32_t course_total(const struct course *c) {
    return c->length * c->passes;
}

static uint32_t position(const struct course *c, uint32_t n) {
    return c->ops[n % c->length];
}

uint32_t course_unit(const struct course *c, uint32_t n) {
    assert(n < course_total(c));
    return c->plan->ops[position(c, n)].unit;
}

bool course_had(const struct course *c, uint32_t n, uint64_t unit) {
    for (uint32_t i = n - n % c->length; i < n; i++) {
        if (course_unit(c, i) == unit) {
            return true;
        }
    }
    return false;
}

int course_refuse(const struct course *c, uint64_t step, uint32_t n, uint64_t unit, struct err *e) {
    const char *asked = c->model->units[unit].name;
    if (n == course_total(c)) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "step %" PRIu64 ": the plan \"%.64s\" has no further %s, the trainer asked "
                       "for %s \"%.90s\"",
                       step, c->plan ? c->plan->name : "eval", verb(c->kind), verb(c->kind), asked);
    }
    return err_set(e, ST_FAILED_PRECONDITION,
                   "step %" PRIu64 ", micro-batch %" PRIu32 ", plan position %" PRIu32
                   ": the plan \"%.32s\" says %s \"%.90s\", the trainer asked for %s \"%.90s\"",
                   step, n / c->length, position(c, n), c->plan->name, verb(c->kind),
                   c->model->units[course_unit(c, n)].name, verb(c->kind), asked);
}

int course_unfinished(const struct course *c, uint64_t step, uint32_t n, const char *more,
                      struct err *e) {
    return err_set(e, ST_FAILED_PRECONDITION,
                   "step %" PRIu64 ", micro-batch %" PRIu32 ", plan position %" PRIu32
                   ": the plan \"%.64s\" still expects %s \"%.90s\"%s",
                   step, n / c->length, position(c, n), c->plan->name, verb(c->kind),
                   c->model->units[course_unit(c, n)].name, more);
}

uint32_t course_gap(const struct course *c, uint32_t n, uint64_t unit, const bool *optional) {
    uint32_t i = n, total = course_total(c);
    while (i < total && course_unit(c, i) != unit && optional[course_unit(c, i)]) {
        i++;
    }
    return i < total && course_unit(c, i) == unit ? i - n : UINT32_MAX;
}
