/* A trainer of the world: follows the plan, or leaves out what it may, looks at what it is lent,
 * and writes gradients. */
#include <check.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "world.h"

static uint64_t element_bytes(const struct trainer *t) {
    return t->fence.step == 0 ? sizeof(float) : dtype_bytes(t->w->model.wire_dtype);
}

static void put(const struct trainer *t, uint8_t *slot, uint64_t at, float x) {
    if (element_bytes(t) == sizeof x) {
        memcpy(slot + at * sizeof x, &x, sizeof x);
    } else {
        uint16_t bits;
        t->w->kernels->to_bf16(1, &x, &bits);
        memcpy(slot + at * sizeof bits, &bits, sizeof bits);
    }
}

/* The pass that the next reduce belongs to, and how many of its unit's come before it there. */
static uint32_t batch_of(const struct trainer *t, uint32_t unit, uint32_t *contribution) {
    const struct plan *p = model_plan(&t->w->model, "train");
    uint32_t at = t->op % (uint32_t)p->count;
    *contribution = 0;
    for (uint32_t i = 0; i < at; i++) {
        *contribution += p->ops[i].kind == PLAN_REDUCE && p->ops[i].unit == unit;
    }
    return t->op / (uint32_t)p->count;
}

/* Of an element at step 0, or of a gradient; garbage where the attempt will be void. */
static float value(const struct trainer *t, uint32_t batch, uint32_t contribution, uint64_t index) {
    bool is_void = t->fence.attempt <= t->w->voids;
    if (t->fence.step == 0) {
        return reference_initial(index) + (is_void ? 5 : 0);
    }
    return reference_gradient(t->fence.step, batch, contribution, t->rank, index) *
           (is_void ? 1e6f : 1.0f);
}

static bool is_given(const struct trainer *t, const struct tensor *x) {
    return tensor_has_place(x) && (t->fence.step ? !x->frozen : x->init.kind == INIT_LOADED);
}

/* Values where tensors are; where padding is, or nobody may look, what must never be seen. */
static void fill(struct trainer *t, uint32_t unit, uint8_t *slot) {
    struct world *w = t->w;
    const struct unit_place *p = &w->layout.units[unit];
    const struct unit *u = &w->model.units[unit];
    uint32_t contribution, batch = batch_of(t, unit, &contribution);
    bool loading = t->fence.step == 0, inf = w->inf && t->rank == w->c.ranks - 1 && unit == 0;
    for (uint64_t i = 0; i < (loading ? p->load_elements : p->grad_elements); i++) {
        put(t, slot, i, NAN);
    }
    for (size_t k = u->first; k < u->first + u->tensors; k++) {
        const struct tensor_place *x = &w->layout.tensors[k];
        if (!is_given(t, &w->model.tensors[k])) {
            continue;
        }
        const struct range *r = &w->layout.ranges[x->range];
        uint64_t at = (loading ? r->load_offset : r->grad_offset) + x->offset;
        for (uint64_t i = 0; i < w->model.tensors[k].elements; i++) {
            put(t, slot, at + i,
                inf && k == u->first && i == 3 ? INFINITY
                                               : value(t, batch, contribution, x->model_start + i));
        }
    }
}

static uint8_t *granted_slot(struct trainer *t, uint32_t unit) {
    const struct unit_place *p = &t->w->layout.units[unit];
    uint64_t offset = t->grant_offset[t->calls];
    uint64_t n = t->fence.step ? p->grad_elements : p->load_elements;
    ck_assert_uint_le(offset + n * element_bytes(t), t->bytes[1]);
    return t->grads + offset;
}

static bool move_load(struct trainer *t) {
    const struct model *m = &t->w->model;
    uint32_t unit = t->op;
    while (unit < m->unit_count && !model_unit_is_loaded(m, unit)) {
        unit++;
    }
    t->op = unit;
    if (unit == m->unit_count) {
        ck_assert_int_eq(engine_finish(t->e, NULL), 0);
        t->finished = true;
        return true;
    }
    if (t->granted <= t->calls) {
        return false;
    }
    fill(t, unit, granted_slot(t, unit));
    ck_assert_int_eq(engine_load(t->e, unit, NULL), 0);
    t->calls++;
    t->reduces++;
    t->op++;
    return true;
}

static bool move_gather(struct trainer *t, uint32_t unit) {
    struct world *w = t->w;
    bool asked = t->asked;
    if (!asked) {
        struct err e = {0};
        ck_assert_msg(!engine_gather(t->e, unit, &e), "%s", e.text);
        t->asked = true;
    }
    if (t->gathered <= t->gathers) {
        return !asked;
    }
    const uint8_t *params = t->params + t->gather_offset[t->gathers];
    ck_assert_msg(reference_equal(&w->ref, unit, params),
                  "rank %u step %lu unit %u: other parameters, seed %lu", t->rank,
                  (unsigned long)w->step, unit, (unsigned long)w->c.seed);
    if (w->c.compute_us) {
        usleep(w->c.compute_us);
        engine_events(t->e);
        ck_assert(reference_equal(&w->ref, unit, params));
    }
    ck_assert_int_eq(engine_release(t->e, unit, NULL), 0);
    t->gathers++;
    t->op++;
    t->asked = false;
    return true;
}

static bool move_reduce(struct trainer *t, uint32_t unit) {
    if (t->granted <= t->calls) {
        return false;
    }
    fill(t, unit, granted_slot(t, unit));
    struct err e = {0};
    ck_assert_msg(!engine_reduce(t->e, unit, &e), "%s", e.text);
    t->calls++;
    t->reduces++;
    t->op++;
    return true;
}

/* Leaves the next of the plan out. */
static void skip(struct trainer *t, const struct plan_op *op) {
    struct world *w = t->w;
    if (op->kind == PLAN_GATHER) {
        t->gathers++;
        for (unsigned r = 0; r < w->c.ranks; r++) { /* it would have read the others' shards */
            struct group g = layout_inner(&w->layout, t->rank);
            bool peer = r != t->rank && r >= g.first && r < g.first + g.count;
            for (size_t i = 0; i < w->layout.units[op->unit].ranges && w->layout.params_sharded;
                 i++) {
                size_t range = w->layout.units[op->unit].first + i;
                w->missing[r].all_gather_elements +=
                    peer ? layout_held(&w->layout, range, r).count : 0;
            }
        }
    } else {
        t->reduces++;
        w->missing[t->rank].reduce_scatter_elements +=
            w->layout.units[op->unit].grad_elements / w->layout.inner * (w->layout.inner - 1);
    }
    t->op++;
}

static bool is_left_out(const struct trainer *t, const struct plan_op *op) {
    const struct world *w = t->w;
    uint32_t contribution, batch = batch_of(t, op->unit, &contribution);
    return w->c.absent && !t->asked && model_unit_may_be_absent(&w->model, op->unit) &&
           reference_absent(t->fence.step, batch, t->rank, op->unit);
}

bool trainer_move(struct trainer *t) {
    const struct plan *plan = model_plan(&t->w->model, "train");
    struct err e = {0};
    if (t->finished || !t->open) {
        return false;
    }
    if (t->fence.step == 0) {
        return move_load(t);
    }
    if (t->op == plan->count * t->w->model.micro_batches) {
        ck_assert_msg(!engine_finish(t->e, &e), "%s", e.text);
        t->finished = true;
        return true;
    }
    const struct plan_op *op = &plan->ops[t->op % plan->count];
    if (is_left_out(t, op)) {
        skip(t, op);
        return true;
    }
    return op->kind == PLAN_GATHER ? move_gather(t, op->unit) : move_reduce(t, op->unit);
}
