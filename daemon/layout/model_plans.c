/* Plans: the order of collectives that a trainer declares. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "layout/model_inner.h"

const struct plan *model_plan(const struct model *m, const char *name) {
    for (size_t i = 0; i < m->plan_count; i++) {
        if (!strcmp(m->plans[i].name, name)) {
            return &m->plans[i];
        }
    }
    return NULL;
}

static int check_units(const struct model *m, const struct plan *p, bool may_reduce,
                       struct err *e) {
    for (size_t i = 0; i < p->count; i++) {
        const struct plan_op *op = &p->ops[i];
        if (op->unit >= m->unit_count) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "plan \"%s\" position %zu: there is no unit %u, the model has %zu",
                           p->name, i, op->unit, m->unit_count);
        }
        if (op->kind == PLAN_REDUCE && !may_reduce) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "plan \"%.90s\" position %zu reduces unit \"%.90s\": only the plan "
                           "\"train\" may reduce",
                           p->name, i, m->units[op->unit].name);
        }
    }
    return 0;
}

/* |gathered| and |reduced| are counters, one a unit. */
static int check_order(const struct model *m, const struct plan *p, unsigned *gathered,
                       bool *reduced, struct err *e) {
    for (size_t i = 0; i < p->count; i++) {
        uint32_t u = p->ops[i].unit;
        if (p->ops[i].kind == PLAN_GATHER) {
            gathered[u]++;
            continue;
        }
        if (!gathered[u]) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "plan \"train\" position %zu reduces unit \"%s\", which was not "
                           "gathered before",
                           i, m->units[u].name);
        }
        if (reduced[u]) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "plan \"train\" position %zu reduces unit \"%s\" a second time", i,
                           m->units[u].name);
        }
        reduced[u] = true;
    }
    for (size_t u = 0; u < m->unit_count; u++) {
        if (!reduced[u]) {
            return err_set(e, ST_INVALID_ARGUMENT, "plan \"train\" never reduces unit \"%s\"",
                           m->units[u].name);
        }
    }
    return 0;
}

static int check_train(const struct model *m, const struct plan *p, struct err *e) {
    unsigned *gathered = mem_zeroed(m->unit_count, sizeof *gathered);
    bool *reduced = mem_zeroed(m->unit_count, sizeof *reduced);
    int rc = check_order(m, p, gathered, reduced, e);
    free(reduced);
    free(gathered);
    return rc;
}

int model_check_plans(const struct model *m, struct err *e) {
    const struct plan *train = model_plan(m, "train");
    if (!train) {
        return err_set(e, ST_INVALID_ARGUMENT, "the model has no plan \"train\"");
    }
    for (size_t i = 0; i < m->plan_count; i++) {
        const struct plan *p = &m->plans[i];
        if (model_plan(m, p->name) != p) {
            return err_set(e, ST_INVALID_ARGUMENT, "two plans are named \"%s\"", p->name);
        }
        int rc = check_units(m, p, p == train, e);
        if (rc) {
            return rc;
        }
    }
    return check_train(m, train, e);
}
