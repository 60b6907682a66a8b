/* A store in this process: the arithmetic of one daemon at world size 1, without daemon, wire or
 * collectives, so that its param_hash equals that of `zerorun -n 1`. Same layout, same kernels,
 * same order: a step's first micro-batch overwrites the kept gradient and later ones are added; the
 * norm is summed unit by unit in registration order; a gradient that is not finite skips the update
 * and leaves t alone. Everything is allocated in open.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "standalone.h"

static struct standalone *self(struct store *s) {
    return (struct standalone *)s;
}
static const struct standalone *self_const(const struct store *s) {
    return (const struct standalone *)s;
}

/* A new try: nothing of the last one counts. */
static int standalone_begin(struct store *s, struct store_try *t, struct err *e) {
    (void)e;
    struct standalone *a = self(s);
    for (size_t u = 0; u < a->model.unit_count; u++) {
        a->units[u] = (struct unit_state){0};
    }
    a->slot_used[0] = a->slot_used[1] = false;
    a->attempt++;
    *t = (struct store_try){.step = a->step,
                            .attempt = a->attempt,
                            .loading = a->step == 0,
                            .cursor = a->cursor,
                            .cursor_bytes = a->cursor_bytes,
                            .loss_scale = a->scale.scale,
                            .void_reason = ""};
    return 0;
}

static int standalone_gather(struct store *s, size_t unit, const void **params, struct err *e) {
    struct standalone *a = self(s);
    if (a->step == 0) {
        return err_set(e, ST_FAILED_PRECONDITION, "gather of unit %s before all units are loaded",
                       a->model.units[unit].name);
    }
    a->units[unit].leases++;
    const uint64_t at = a->start[unit];
    *params = a->replica ? (const void *)(a->replica + at) : (const void *)(a->master + at);
    return 0;
}

static int standalone_release(struct store *s, size_t unit, struct err *e) {
    struct standalone *a = self(s);
    if (a->units[unit].leases == 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "release of unit %s, which is not held",
                       a->model.units[unit].name);
    }
    a->units[unit].leases--;
    return 0;
}

static int standalone_grad(struct store *s, size_t unit, float **grad, struct err *e) {
    struct standalone *a = self(s);
    const int free = a->slot_used[0] ? 1 : 0;
    if (a->slot_used[free]) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no gradient slot for unit %s: both are held",
                       a->model.units[unit].name);
    }
    a->slot_used[free] = true;
    a->units[unit].slot = free + 1;
    *grad = a->slots[free];
    return 0;
}

static int standalone_initial(struct store *s, size_t unit, float **values, struct err *e) {
    return standalone_grad(s, unit, values, e);
}

/* Leaves the slot's values in *from. */
static int give_slot_back(struct standalone *a, size_t unit, const char *what, const float **from,
                          struct err *e) {
    const int slot = a->units[unit].slot - 1;
    if (slot < 0) {
        return err_set(e, ST_FAILED_PRECONDITION, "%s of unit %s without its gradient slot", what,
                       a->model.units[unit].name);
    }
    a->units[unit].slot = 0;
    a->slot_used[slot] = false;
    *from = a->slots[slot];
    return 0;
}

static int standalone_reduce(struct store *s, size_t unit, struct err *e) {
    struct standalone *a = self(s);
    const float *slot = NULL;
    const int rc = give_slot_back(a, unit, "reduce", &slot, e);
    if (rc < 0) {
        return rc;
    }
    const size_t count = standalone_segments(a, unit);
    for (size_t i = 0; i < count; i++) {
        const struct segment *g = &a->segments[i];
        const float *from[1] = {slot + g->range_offset};
        a->k->sum(g->count, 1, from, a->units[unit].reduced > 0,
                  a->kept + a->start[unit] + g->range_offset);
    }
    a->units[unit].reduced++;
    return 0;
}

static void publish(struct standalone *a, size_t unit) {
    const uint64_t at = a->start[unit], n = a->start[unit + 1] - at;
    if (a->replica) {
        (a->store.dtype == DTYPE_BF16 ? a->k->to_bf16 : a->k->to_fp16)(n, a->master + at,
                                                                       a->replica + at);
    }
}

static int standalone_load(struct store *s, size_t unit, struct err *e) {
    struct standalone *a = self(s);
    const float *slot = NULL;
    const int rc = give_slot_back(a, unit, "load", &slot, e);
    if (rc < 0) {
        return rc;
    }
    const size_t count = standalone_segments(a, unit);
    for (size_t i = 0; i < count; i++) {
        const struct segment *g = &a->segments[i];
        memcpy(a->master + a->start[unit] + g->range_offset, slot + g->range_offset,
               g->count * sizeof(float));
    }
    a->units[unit].loaded = true;
    return 0;
}

static void update(struct standalone *a, const struct step_scalars *scalars) {
    const struct optimizer_options *o = &a->model.optimizer;
    for (size_t u = 0; u < a->model.unit_count; u++) {
        const size_t count = standalone_segments(a, u);
        for (size_t i = 0; i < count; i++) {
            const struct segment *g = &a->segments[i];
            const struct tensor *t = &a->model.tensors[g->tensor];
            const uint64_t at = a->start[u] + g->range_offset;
            const struct update_numbers n =
                update_numbers(o, scalars, t->decay_multiplier, t->lr_multiplier);
            float *p = a->master + at, *m = a->m + at, *v = a->v + at;
            a->k->update[o->kind](&n, g->count, a->kept + at, p, m, v, p, m, v);
        }
        publish(a, u);
    }
}

/* Every unit must be reduced (or loaded) as often as the plan says, and no lease be held. */
static int check_complete(const struct standalone *a, struct err *e) {
    for (size_t u = 0; u < a->model.unit_count; u++) {
        const struct unit_state *state = &a->units[u];
        const char *name = a->model.units[u].name;
        if (state->leases > 0) {
            return err_set(e, ST_FAILED_PRECONDITION, "step %ju ends while unit %s is held",
                           (uintmax_t)a->step, name);
        }
        const uint32_t due = a->model.units[u].contributions * a->model.micro_batches;
        if (a->step == 0 && !state->loaded && model_unit_is_loaded(&a->model, u)) {
            return err_set(e, ST_FAILED_PRECONDITION, "step 0 ends before unit %s is loaded", name);
        }
        if (a->step > 0 && state->reduced != due) {
            return err_set(e, ST_FAILED_PRECONDITION,
                           "step %ju ends with unit %s reduced %u of %u times", (uintmax_t)a->step,
                           name, state->reduced, due);
        }
    }
    return 0;
}

/* As the coordinator decides (job/decide.c) with one vote of weight 1. */
static int decide(struct standalone *a, const struct store_step *step, struct store_outcome *o,
                  struct err *e) {
    double squares = 0;
    for (size_t u = 0; u < a->model.unit_count; u++) {
        squares += kernels_norm(a->k, a->start[u + 1] - a->start[u], a->kept + a->start[u]);
    }
    const double scale = a->scale.scale; /* that the gradients were made with */
    o->skipped = !isfinite(squares);
    o->grad_norm = sqrt(squares) / scale;
    if (!scaling_next(&a->model.scaling, o->skipped, &a->scale)) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "step %ju: the gradients are not finite, and the loss scale %g is at its "
                       "floor; the state is that of the last commit",
                       (uintmax_t)a->step, a->scale.scale);
    }
    if (!o->skipped) {
        const struct step_scalars scalars =
            step_scalars(&a->model.optimizer, squares, scale, step->clip, step->lr, a->t + 1);
        update(a, &scalars);
        a->t++;
        o->grad_norm = scalars.grad_norm;
    }
    o->loss = step->loss;
    return 0;
}

static int standalone_step(struct store *s, const struct store_step *step, struct store_outcome *o,
                           struct err *e) {
    struct standalone *a = self(s);
    int rc = check_complete(a, e);
    *o = (struct store_outcome){0};
    if (rc == 0 && a->step > 0) {
        assert(step && step->cursor_bytes <= CURSOR_MAX);
        rc = decide(a, step, o, e);
    }
    if (rc < 0) {
        return rc;
    }
    if (a->step > 0) {
        memcpy(a->cursor, step->cursor, step->cursor_bytes);
        a->cursor_bytes = step->cursor_bytes;
    } else {
        for (size_t u = 0; u < a->model.unit_count; u++) {
            publish(a, u);
        }
    }
    a->step++;
    a->attempt = 0;
    return 0;
}

static int standalone_eval(struct store *s, struct err *e) {
    (void)s;
    (void)e;
    return 0;
}

static uint64_t standalone_elements(const struct store *s, enum store_part part, size_t unit) {
    const struct standalone *a = self_const(s);
    const bool none = part == STORE_INITIAL && !model_unit_is_loaded(&a->model, unit);
    return none ? 0 : a->start[unit + 1] - a->start[unit];
}

/* The three parts are laid out alike here. */
static uint64_t standalone_offset(const struct store *s, enum store_part part, size_t unit,
                                  size_t tensor) {
    const struct standalone *a = self_const(s);
    (void)part;
    return a->layout.tensors[a->model.units[unit].first + tensor].offset;
}

static bool standalone_hash(const struct store *s, uint64_t *hash) {
    const struct standalone *a = self_const(s);
    *hash = 0;
    for (size_t u = 0; u < a->model.unit_count; u++) {
        const struct unit *unit = &a->model.units[u];
        for (size_t i = unit->first; i < unit->first + unit->tensors; i++) {
            const struct tensor_place *place = &a->layout.tensors[i];
            if (tensor_has_place(&a->model.tensors[i])) {
                *hash += a->k->hash(place->model_start, a->model.tensors[i].elements,
                                    a->master + a->start[u] + place->offset);
            }
        }
    }
    return true;
}

static void standalone_close(struct store *s, bool finished) {
    (void)finished;
    standalone_free(self(s));
}

static const struct store_ops standalone_ops = {
    .begin = standalone_begin,
    .gather = standalone_gather,
    .release = standalone_release,
    .grad = standalone_grad,
    .reduce = standalone_reduce,
    .initial = standalone_initial,
    .load = standalone_load,
    .step = standalone_step,
    .begin_eval = standalone_eval,
    .end_eval = standalone_eval,
    .elements = standalone_elements,
    .offset = standalone_offset,
    .hash = standalone_hash,
    .close = standalone_close,
};

int store_standalone_open(const struct store_config *c, struct store **s, struct err *e) {
    struct standalone *a = NULL;
    const int rc = standalone_new(c, &standalone_ops, &a, e);
    if (rc == 0) {
        *s = &a->store;
    }
    return rc;
}
