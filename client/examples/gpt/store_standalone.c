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

#include "kernels/kernels.h"
#include "kernels/scalars.h"
#include "layout/layout.h"
#include "store.h"

enum { CURSOR_MAX = 65536 };

struct unit_state {
    uint32_t leases;
    uint32_t reduced; /* micro-batches summed in this try */
    bool granted;     /* the gradient slot is this unit's */
    bool loaded;
};

struct standalone {
    struct store store;
    const struct kernels *k;
    struct model model;
    struct layout layout;
    uint32_t micro_batches;
    float *master, *m, *v, *kept; /* [layout.padded], units whole, in order */
    uint16_t *replica;            /* [layout.padded] when parameters are bf16, else NULL */
    float *slot;                  /* [layout.largest] gradient slot, one at a time */
    struct unit_state *units;
    struct segment segments[GPT_UNIT_TENSORS]; /* scratch */
    uint64_t step;                             /* the open try's; 0: loading */
    uint64_t attempt, t;                       /* t: updates made */
    unsigned char cursor[CURSOR_MAX];
    size_t cursor_bytes;
};

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
    a->attempt++;
    *t = (struct store_try){.step = a->step,
                            .attempt = a->attempt,
                            .loading = a->step == 0,
                            .cursor = a->cursor,
                            .cursor_bytes = a->cursor_bytes,
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
    const uint64_t at = a->layout.units[unit].flat_start;
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
    for (size_t u = 0; u < a->model.unit_count; u++) {
        if (a->units[u].granted) {
            return err_set(e, ST_RESOURCE_EXHAUSTED, "the gradient slot is held by unit %s",
                           a->model.units[u].name);
        }
    }
    a->units[unit].granted = true;
    *grad = a->slot;
    return 0;
}

static int give_slot_back(struct standalone *a, size_t unit, const char *what, struct err *e) {
    if (!a->units[unit].granted) {
        return err_set(e, ST_FAILED_PRECONDITION, "%s of unit %s without its gradient slot", what,
                       a->model.units[unit].name);
    }
    a->units[unit].granted = false;
    return 0;
}

/* The unit's tensors in a->segments: what is outside of them is padding, 0 and never written. */
static size_t segments_of(struct standalone *a, size_t unit) {
    const size_t count = layout_segments(&a->layout, unit, 0, a->layout.units[unit].padded,
                                         a->segments, GPT_UNIT_TENSORS);
    assert(count <= GPT_UNIT_TENSORS);
    return count;
}

static int standalone_reduce(struct store *s, size_t unit, struct err *e) {
    struct standalone *a = self(s);
    const int rc = give_slot_back(a, unit, "reduce", e);
    if (rc < 0) {
        return rc;
    }
    const size_t count = segments_of(a, unit);
    for (size_t i = 0; i < count; i++) {
        const struct segment *g = &a->segments[i];
        const float *from[1] = {a->slot + g->range_offset};
        a->k->sum(g->count, 1, from, a->units[unit].reduced > 0,
                  a->kept + a->layout.units[unit].flat_start + g->range_offset);
    }
    a->units[unit].reduced++;
    return 0;
}

static void publish(struct standalone *a, size_t unit) {
    const struct unit_place *place = &a->layout.units[unit];
    if (a->replica) {
        a->k->to_bf16(place->padded, a->master + place->flat_start, a->replica + place->flat_start);
    }
}

static int standalone_load(struct store *s, size_t unit, struct err *e) {
    struct standalone *a = self(s);
    const int rc = give_slot_back(a, unit, "load", e);
    if (rc < 0) {
        return rc;
    }
    const size_t count = segments_of(a, unit);
    for (size_t i = 0; i < count; i++) {
        const struct segment *g = &a->segments[i];
        memcpy(a->master + a->layout.units[unit].flat_start + g->range_offset,
               a->slot + g->range_offset, g->count * sizeof(float));
    }
    publish(a, unit);
    a->units[unit].loaded = true;
    return 0;
}

static void update(struct standalone *a, const struct step_scalars *scalars) {
    for (size_t u = 0; u < a->model.unit_count; u++) {
        const size_t count = segments_of(a, u);
        for (size_t i = 0; i < count; i++) {
            const struct segment *g = &a->segments[i];
            const uint64_t at = a->layout.units[u].flat_start + g->range_offset;
            const struct adamw w = adamw_numbers(&a->model.adamw, scalars,
                                                 a->model.tensors[g->tensor].decay_multiplier);
            float *p = a->master + at, *m = a->m + at, *v = a->v + at;
            a->k->adamw(&w, g->count, a->kept + at, p, m, v, p, m, v);
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
        if (a->step == 0 ? !state->loaded : state->reduced != a->micro_batches) {
            return err_set(e, ST_FAILED_PRECONDITION,
                           "step %ju ends with unit %s %s %u of %u times", (uintmax_t)a->step, name,
                           a->step == 0 ? "loaded" : "reduced", a->step == 0 ? 0 : state->reduced,
                           a->step == 0 ? 1 : a->micro_batches);
        }
    }
    return 0;
}

static int standalone_step(struct store *s, const struct store_step *step, struct store_outcome *o,
                           struct err *e) {
    struct standalone *a = self(s);
    const int rc = check_complete(a, e);
    if (rc < 0) {
        return rc;
    }
    *o = (struct store_outcome){0};
    if (a->step > 0) {
        assert(step && step->cursor_bytes <= CURSOR_MAX);
        double squares = 0;
        for (size_t u = 0; u < a->model.unit_count; u++) {
            const struct unit_place *place = &a->layout.units[u];
            squares += kernels_norm(a->k, place->part, a->kept + place->flat_start);
        }
        const struct step_scalars scalars =
            step_scalars(&a->model.adamw, squares, 1, step->clip, step->lr, a->t + 1);
        o->skipped = !isfinite(squares);
        if (!o->skipped) {
            update(a, &scalars);
            a->t++;
        }
        o->grad_norm = scalars.grad_norm;
        o->loss = step->loss;
        memcpy(a->cursor, step->cursor, step->cursor_bytes);
        a->cursor_bytes = step->cursor_bytes;
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

static uint64_t standalone_elements(const struct store *s, size_t unit) {
    return self_const(s)->layout.units[unit].padded;
}

static uint64_t standalone_offset(const struct store *s, size_t unit, size_t tensor) {
    const struct standalone *a = self_const(s);
    return a->layout.tensors[a->model.units[unit].first + tensor].offset;
}

static bool standalone_hash(const struct store *s, uint64_t *hash) {
    const struct standalone *a = self_const(s);
    *hash = 0;
    for (size_t u = 0; u < a->model.unit_count; u++) {
        const struct unit *unit = &a->model.units[u];
        for (size_t i = unit->first; i < unit->first + unit->tensors; i++) {
            const struct tensor_place *place = &a->layout.tensors[i];
            *hash += a->k->hash(place->model_start, a->model.tensors[i].elements,
                                a->master + a->layout.units[u].flat_start + place->offset);
        }
    }
    return true;
}

static void standalone_close(struct store *s, bool finished) {
    (void)finished;
    struct standalone *a = self(s);
    free(a->master);
    free(a->m);
    free(a->v);
    free(a->kept);
    free(a->replica);
    free(a->slot);
    free(a->units);
    layout_free(&a->layout);
    model_free(&a->model);
    free(a);
}

static const struct store_ops standalone_ops = {
    .begin = standalone_begin,
    .gather = standalone_gather,
    .release = standalone_release,
    .grad = standalone_grad,
    .reduce = standalone_reduce,
    .load = standalone_load,
    .step = standalone_step,
    .begin_eval = standalone_eval,
    .end_eval = standalone_eval,
    .elements = standalone_elements,
    .offset = standalone_offset,
    .hash = standalone_hash,
    .close = standalone_close,
};

/* The train plan is here only because a model needs one; nothing follows it in this store. */
static int describe(const struct store_config *c, struct model *m, struct err *e) {
    int rc = 0;
    const size_t units = gpt_units(&c->shape);
    for (size_t u = 0; u < units && rc == 0; u++) {
        struct gpt_unit unit;
        gpt_describe(&c->shape, u, &unit);
        rc = model_add_unit(m, unit.name, e);
        for (size_t i = 0; i < unit.count && rc == 0; i++) {
            const struct gpt_tensor *t = &unit.tensors[i];
            rc = model_add_tensor(m, t->name, t->dims, t->shape, t->decay, e);
        }
    }
    if (rc == 0) {
        rc = model_add_plan(m, "train", e);
    }
    for (size_t u = 0; u < units && rc == 0; u++) {
        rc = model_add_op(m, PLAN_GATHER, u, e);
        rc = rc == 0 ? model_add_op(m, PLAN_REDUCE, u, e) : rc;
    }
    m->strategy = STRATEGY_DDP;
    m->param_dtype = c->dtype == DTYPE_NONE ? DTYPE_FP32 : c->dtype;
    m->micro_batches = c->micro_batches;
    m->adamw = c->adamw;
    return rc < 0 ? rc : model_check(m, e);
}

static float *floats(uint64_t n) {
    const uint64_t align = LAYOUT_ALIGN;
    const size_t bytes = (n + align) / align * align * sizeof(float);
    float *p = aligned_alloc(64, bytes);
    if (p) {
        memset(p, 0, bytes);
    }
    return p;
}

static int allocate(struct standalone *a, struct err *e) {
    const uint64_t n = a->layout.padded;
    a->master = floats(n);
    a->m = floats(n);
    a->v = floats(n);
    a->kept = floats(n);
    a->slot = floats(a->layout.largest);
    a->replica = a->store.dtype == DTYPE_BF16 ? calloc(n, sizeof *a->replica) : NULL;
    a->units = calloc(a->model.unit_count, sizeof *a->units);
    if (!a->master || !a->m || !a->v || !a->kept || !a->slot || !a->units ||
        (a->store.dtype == DTYPE_BF16 && !a->replica)) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a model of %ju parameters",
                       (uintmax_t)a->layout.elements);
    }
    return 0;
}

int store_standalone_open(const struct store_config *c, struct store **s, struct err *e) {
    const enum dtype dtype = c->dtype == DTYPE_NONE ? DTYPE_FP32 : c->dtype;
    struct standalone *a = calloc(1, sizeof *a);
    if (!a) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the store");
    }
    a->store = (struct store){.ops = &standalone_ops, .rank = 0, .world = 1, .dtype = dtype};
    a->micro_batches = c->micro_batches;
    int rc = kernels_select(NULL, &a->k, e);
    rc = rc == 0 ? describe(c, &a->model, e) : rc;
    rc = rc == 0 ? layout_init(&a->layout, &a->model, 1, e) : rc;
    rc = rc == 0 ? allocate(a, e) : rc;
    if (rc < 0) {
        standalone_close(&a->store, false);
        return rc;
    }
    *s = &a->store;
    return 0;
}
