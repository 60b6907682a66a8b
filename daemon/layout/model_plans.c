/* Plans: the order of collectives that a trainer declares. */
#include <inttypes.h>
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

/* What the plan "train" does with a unit. */
struct use {
    bool trainable; /* it has a gradient to reduce */
    bool gathered;
    uint32_t reduced;
};

static bool has_gradient(const struct model *m, const struct unit *u) {
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        if (tensor_is_trainable(&m->tensors[i])) {
            return true;
        }
    }
    return false;
}

static int check_reduce(const struct unit *u, const struct use *use, size_t position,
                        struct err *e) {
    if (!use->gathered) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "plan \"train\" position %zu reduces unit \"%s\", which was not gathered "
                       "before",
                       position, u->name);
    }
    if (!use->trainable) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "plan \"train\" position %zu reduces unit \"%s\", which has no trainable "
                       "tensor",
                       position, u->name);
    }
    if (use->reduced == u->contributions) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "plan \"train\" position %zu reduces unit \"%s\" again, but it has %" PRIu32
                       " contribution%s",
                       position, u->name, u->contributions, u->contributions == 1 ? "" : "s");
    }
    return 0;
}

static int check_order(const struct model *m, const struct plan *p, struct use *uses,
                       struct err *e) {
    for (size_t i = 0; i < p->count; i++) {
        const struct unit *u = &m->units[p->ops[i].unit];
        struct use *use = &uses[p->ops[i].unit];
        if (p->ops[i].kind == PLAN_GATHER) {
            use->gathered = true;
            continue;
        }
        int rc = check_reduce(u, use, i, e);
        if (rc) {
            return rc;
        }
        use->reduced++;
    }
    for (size_t u = 0; u < m->unit_count; u++) {
        if (uses[u].trainable && uses[u].reduced < m->units[u].contributions) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "plan \"train\" reduces unit \"%s\" %" PRIu32
                           " times, but it has %" PRIu32 " contribution%s",
                           m->units[u].name, uses[u].reduced, m->units[u].contributions,
                           m->units[u].contributions == 1 ? "" : "s");
        }
    }
    return 0;
}

static int check_train(const struct model *m, const struct plan *p, struct err *e) {
    struct use *uses = mem_zeroed(m->unit_count, sizeof *uses);
    for (size_t u = 0; u < m->unit_count; u++) {
        uses[u].trainable = has_gradient(m, &m->units[u]);
    }
    int rc = check_order(m, p, uses, e);
    free(uses);
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
