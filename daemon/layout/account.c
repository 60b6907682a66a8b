/* Memory and traffic: the formulas of design §5 on the places of layout.c, exact and with padding.
 */
#include <assert.h>

#include "layout/layout.h"

enum {
    GRAD_BYTES = 4,       /* kept and sent gradients are fp32 */
    OPTIMIZER_BYTES = 12, /* fp32 master, m, v */
};

/* Products of sizes that a trainer chose stop at the top instead of wrapping round. */
static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t c;
    return __builtin_mul_overflow(a, b, &c) ? UINT64_MAX : c;
}

static uint64_t plus(uint64_t a, uint64_t b) {
    uint64_t c;
    return __builtin_add_overflow(a, b, &c) ? UINT64_MAX : c;
}

/* Real elements, without padding, of a rank's part of one unit. */
static uint64_t unit_real(const struct layout *l, size_t unit, unsigned rank) {
    const struct unit *u = &l->model->units[unit];
    uint64_t from = l->units[unit].part * rank, to = from + l->units[unit].part, n = 0;
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        uint64_t start = l->tensors[i].offset, end = start + l->model->tensors[i].elements;
        uint64_t first = start > from ? start : from, last = end < to ? end : to;
        n += first < last ? last - first : 0;
    }
    return n;
}

static uint64_t part_real(const struct layout *l, unsigned rank) {
    uint64_t n = 0;
    for (size_t u = 0; u < l->model->unit_count; u++) {
        n += unit_real(l, u, rank);
    }
    return n;
}

struct memory layout_memory(const struct layout *l, unsigned rank, const struct slots *s) {
    assert(rank < l->world);
    uint64_t real = part_real(l, rank), param = dtype_bytes(l->model->param_dtype);
    uint64_t whole_pad = l->padded - l->elements, part_pad = l->part - real;
    struct memory m = {0};
    if (!l->params_sharded) {
        m.params = l->elements * param;
        m.padding += whole_pad * param;
    } else if (l->model->param_dtype != DTYPE_FP32) { /* else the gather reads the master */
        m.params = real * param;
        m.padding += part_pad * param;
    }
    m.grads = (l->grads_sharded ? real : l->elements) * GRAD_BYTES;
    m.optimizer = (l->optimizer_sharded ? real : l->elements) * OPTIMIZER_BYTES;
    m.padding += (l->grads_sharded ? part_pad : whole_pad) * GRAD_BYTES;
    m.padding += (l->optimizer_sharded ? part_pad : whole_pad) * OPTIMIZER_BYTES;
    m.gather_slots = l->params_sharded ? times(s->gather, l->largest * param) : 0;
    m.grad_slots = times(s->grad, l->largest * GRAD_BYTES);
    return m;
}

/* Elements of this rank's part that the N - 1 others read, over all operations of |kind|. */
static uint64_t plan_elements(const struct layout *l, enum plan_kind kind) {
    const struct plan *p = model_plan(l->model, "train");
    uint64_t n = 0;
    for (size_t i = 0; p && i < p->count; i++) {
        if (p->ops[i].kind == kind) {
            n = plus(n, times(l->units[p->ops[i].unit].part, l->world - 1));
        }
    }
    return n;
}

struct traffic layout_traffic(const struct layout *l) {
    uint64_t batches = l->model->micro_batches, param = dtype_bytes(l->model->param_dtype);
    uint64_t once = l->part * (l->world - 1); /* every unit's part, read by the others */
    struct traffic t = {0};
    switch (l->model->strategy) {
    case STRATEGY_ZERO3:
        t.all_gather_elements = times(batches, plan_elements(l, PLAN_GATHER));
        t.reduce_scatter_elements = times(batches, plan_elements(l, PLAN_REDUCE));
        break;
    case STRATEGY_ZERO2:
        t.all_gather_elements = once;
        t.reduce_scatter_elements = times(batches, plan_elements(l, PLAN_REDUCE));
        break;
    default:
        return layout_traffic_ddp(l);
    }
    t.all_gather_bytes = times(t.all_gather_elements, param);
    t.reduce_scatter_bytes = times(t.reduce_scatter_elements, GRAD_BYTES);
    return t;
}

struct traffic layout_traffic_ddp(const struct layout *l) {
    uint64_t elements = 2 * l->part * (l->world - 1);
    return (struct traffic){.all_reduce_elements = elements,
                            .all_reduce_bytes = elements * GRAD_BYTES};
}
