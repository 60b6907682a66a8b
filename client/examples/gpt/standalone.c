/* How a stand-alone store begins: the model as a daemon would be told of it, all memory, and
 * initial values when the store makes them. All tensors are trainable and of one dtype, so a unit
 * is one range. */
#include "standalone.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/init.h"

static int describe_tensor(const struct store_config *c, const struct gpt_tensor *t,
                           struct model *m, struct err *e) {
    struct tensor to = model_tensor(t->name, t->dims, t->shape);
    to.decay_multiplier = t->decay;
    if (t->tied) {
        memcpy(to.alias, m->tensors[EMBED_WTE].name, sizeof to.alias);
    } else if (c->initialised) {
        to.init = t->deviation > 0 ? (struct initializer){INIT_NORMAL, c->seed, (double)t->constant,
                                                          (double)t->deviation}
                                   : (struct initializer){INIT_CONSTANT, 0, (double)t->constant, 0};
    }
    return model_add_tensor(m, &to, e);
}

static int describe_units(const struct store_config *c, struct model *m, struct err *e) {
    int rc = 0;
    for (size_t u = 0; u < gpt_units(&c->shape) && rc == 0; u++) {
        struct gpt_unit unit;
        gpt_describe(&c->shape, u, &unit);
        rc = model_add_unit(m, unit.name, c->shape.tied && u == 0 ? 2 : 1, e);
        for (size_t i = 0; i < unit.count && rc == 0; i++) {
            rc = describe_tensor(c, &unit.tensors[i], m, e);
        }
    }
    return rc;
}

/* The train plan is here only because a model needs one; nothing follows it in this store. */
static int describe(const struct store_config *c, struct model *m, struct err *e) {
    model_defaults(m);
    int rc = describe_units(c, m, e);
    rc = rc == 0 ? model_add_plan(m, "train", e) : rc;
    for (size_t u = 0; u < m->unit_count && rc == 0; u++) {
        rc = model_add_op(m, PLAN_GATHER, u, e);
        for (uint32_t i = 0; i < m->units[u].contributions && rc == 0; i++) {
            rc = model_add_op(m, PLAN_REDUCE, u, e);
        }
    }
    m->strategy = STRATEGY_DDP;
    m->param_dtype = c->dtype == DTYPE_NONE ? DTYPE_FP32 : c->dtype;
    m->micro_batches = c->micro_batches;
    m->optimizer = c->optimizer;
    m->scaling = c->scaling;
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

static bool take_all(struct standalone *a) {
    const uint64_t n = a->layout.padded;
    a->master = floats(n);
    a->m = floats(n);
    a->v = floats(n);
    a->kept = floats(n);
    bool ok = a->master && a->m && a->v && a->kept;
    for (int i = 0; i < GRADIENT_SLOTS && ok; i++) {
        a->slots[i] = floats(a->layout.largest_grad_elements);
        ok = a->slots[i] != NULL;
    }
    if (ok && a->store.dtype != DTYPE_FP32) {
        a->replica = calloc(n + 1, sizeof *a->replica);
        ok = a->replica != NULL;
    }
    return ok;
}

static int allocate(struct standalone *a, struct err *e) {
    const size_t units = a->model.unit_count;
    a->units = calloc(units, sizeof *a->units);
    a->start = calloc(units + 1, sizeof *a->start);
    if (!a->units || !a->start || !take_all(a)) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a model of %ju parameters",
                       (uintmax_t)a->layout.elements);
    }
    for (size_t u = 0; u < units; u++) {
        assert(a->layout.units[u].ranges == 1);
        a->start[u + 1] = a->start[u] + a->layout.ranges[a->layout.units[u].first].padded;
    }
    return 0;
}

size_t standalone_segments(struct standalone *a, size_t unit) {
    const struct stretch all = {0, a->start[unit + 1] - a->start[unit]};
    const size_t count = layout_segments(&a->layout, a->layout.units[unit].first, all, a->segments,
                                         GPT_UNIT_TENSORS);
    assert(count <= GPT_UNIT_TENSORS);
    return count;
}

/* As a daemon would (engine/). */
static void make_initial(struct standalone *a) {
    for (size_t u = 0; u < a->model.unit_count; u++) {
        const size_t count = standalone_segments(a, u);
        for (size_t i = 0; i < count; i++) {
            const struct segment *s = &a->segments[i];
            const struct initializer *init = &a->model.tensors[s->tensor].init;
            float *to = a->master + a->start[u] + s->range_offset;
            if (init->kind == INIT_CONSTANT) {
                init_constant(s->count, init->a, to);
            } else if (init->kind == INIT_NORMAL) {
                const uint64_t start = a->layout.tensors[s->tensor].model_start;
                init_normal(init_seed(init->seed, start), s->tensor_offset, s->count, init->a,
                            init->b, to);
            }
        }
    }
}

void standalone_free(struct standalone *a) {
    free(a->start);
    free(a->master);
    free(a->m);
    free(a->v);
    free(a->kept);
    free(a->replica);
    for (int i = 0; i < GRADIENT_SLOTS; i++) {
        free(a->slots[i]);
    }
    free(a->units);
    layout_free(&a->layout);
    model_free(&a->model);
    free(a);
}

int standalone_new(const struct store_config *c, const struct store_ops *ops,
                   struct standalone **out, struct err *e) {
    const enum dtype dtype = c->dtype == DTYPE_NONE ? DTYPE_FP32 : c->dtype;
    struct standalone *a = calloc(1, sizeof *a);
    if (!a) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the store");
    }
    a->store = (struct store){.ops = ops, .rank = 0, .world = 1, .dtype = dtype};
    int rc = kernels_select(NULL, &a->k, e);
    rc = rc == 0 ? describe(c, &a->model, e) : rc;
    rc = rc == 0 ? layout_init(&a->layout, &a->model, 1, e) : rc;
    rc = rc == 0 ? allocate(a, e) : rc;
    if (rc < 0) {
        standalone_free(a);
        return rc;
    }
    a->scale = scaling_start(&a->model.scaling);
    make_initial(a);
    *out = a;
    return 0;
}
