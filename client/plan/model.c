/* Models that come from numbers, and what any planned model still needs: a plan "train". */
#include <inttypes.h>
#include <string.h>

#include "plan.h"

static int add_layer(struct model *m, uint64_t layer, uint64_t elements, struct err *e) {
    char name[MODEL_NAME];
    (void)snprintf(name, sizeof name, "layer%" PRIu64, layer);
    int rc = model_add_unit(m, name, 1, e);
    if (rc) {
        return rc;
    }
    (void)snprintf(name, sizeof name, "layer%" PRIu64 ".weight", layer);
    const struct tensor t = model_tensor(name, 1, &elements);
    return model_add_tensor(m, &t, e);
}

int plan_model_invent(struct model *m, uint64_t params, uint64_t layers, unsigned world,
                      struct err *e) {
    if (layers < 1 || layers > MODEL_MAX_UNITS || layers > params) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "%" PRIu64 " layers of %" PRIu64
                       " parameters: must be 1 to %d layers of at least one each",
                       layers, params, MODEL_MAX_UNITS);
    }
    const uint64_t step = (uint64_t)LAYOUT_ALIGN * world;
    uint64_t each = params / layers, left = params;
    if (each >= step) {
        each -= each % step;
    }
    for (uint64_t i = 0; i < layers; i++) {
        const uint64_t elements = i + 1 < layers ? each : left;
        int rc = add_layer(m, i, elements, e);
        if (rc) {
            return rc;
        }
        left -= elements;
    }
    return 0;
}

/* ---- the plan ---- */

static size_t unit_with(const struct model *m, const char *tensor) {
    for (size_t u = 0; u < m->unit_count; u++) {
        const struct unit *unit = &m->units[u];
        for (size_t i = unit->first; i < unit->first + unit->tensors; i++) {
            if (!m->tensors[i].alias[0] && !strcmp(m->tensors[i].name, tensor)) {
                return u;
            }
        }
    }
    return m->unit_count;
}

/* The units that unit |u| is computed with: itself when it has memory, and those of its aliases. */
enum { MOST_USED = 8 };
struct used {
    size_t count, units[MOST_USED];
};

static void add_used(struct used *x, size_t unit) {
    for (size_t i = 0; i < x->count; i++) {
        if (x->units[i] == unit) {
            return;
        }
    }
    if (x->count < MOST_USED) {
        x->units[x->count++] = unit;
    }
}

static struct used units_used(const struct model *m, size_t u) {
    const struct unit *unit = &m->units[u];
    struct used x = {0};
    for (size_t i = unit->first; i < unit->first + unit->tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (tensor_has_place(t)) {
            add_used(&x, u);
        } else if (t->alias[0] && unit_with(m, t->alias) < m->unit_count) {
            add_used(&x, unit_with(m, t->alias));
        }
    }
    return x;
}

static int add_pass(struct model *m, size_t u, bool backward, struct err *e) {
    const struct used x = units_used(m, u);
    int rc = 0;
    for (size_t i = 0; i < x.count && !rc; i++) {
        rc = model_add_op(m, PLAN_GATHER, x.units[i], e);
        if (!rc && backward) {
            rc = model_add_op(m, PLAN_REDUCE, x.units[i], e);
        }
        if (backward && x.units[i] != u) {
            m->units[x.units[i]].contributions++;
        }
    }
    return rc;
}

int plan_model_finish(struct model *m, struct err *e) {
    int rc = model_add_plan(m, "train", e);
    for (size_t u = 0; u < m->unit_count && !rc; u++) {
        rc = add_pass(m, u, false, e);
    }
    for (size_t u = m->unit_count; u-- > 0 && !rc;) {
        rc = add_pass(m, u, true, e);
    }
    return rc ? rc : model_check(m, e);
}
