/* Bytes of one rank: the formulas of design §5 on the stretches of its ranges, exact and with
 * padding. */
#include <assert.h>

#include "layout/layout.h"
#include "layout/model_inner.h"
#include "base/saturate.h"

/* Elements of tensors in a stretch, without padding. */
static uint64_t real_in(const struct layout *l, size_t range, struct stretch s) {
    const struct unit *u = &l->model->units[l->ranges[range].unit];
    if (s.count == l->ranges[range].padded) {
        return l->ranges[range].elements;
    }
    uint64_t n = 0;
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        struct segment g;
        n += layout_segment_of(l, range, s, i, &g) ? g.count : 0;
    }
    return n;
}

/* Adds |bytes| an element of a stretch to |line| and to |padding|. At most 2^44 elements of some 20
 * bytes: no overflow. */
static void add(const struct layout *l, size_t range, struct stretch s, uint64_t bytes,
                uint64_t *line, uint64_t *padding) {
    if (bytes && s.count) {
        const uint64_t real = real_in(l, range, s);
        *line += real * bytes;
        *padding += (s.count - real) * bytes;
    }
}

static void add_range(const struct layout *l, size_t range, unsigned rank, struct memory *m) {
    const struct range *r = &l->ranges[range];
    const bool master_is_read = l->params_sharded && !r->frozen && r->dtype == DTYPE_FP32;
    const uint64_t param = master_is_read ? 0 : dtype_bytes(r->dtype);
    const uint64_t optimizer = sizeof(float) * (1 + optimizer_states(&l->model->optimizer));
    add(l, range, layout_held(l, range, rank), param, &m->params, &m->padding);
    add(l, range, layout_kept(l, range, rank), dtype_bytes(l->model->kept_dtype), &m->grads,
        &m->padding);
    add(l, range, layout_updated(l, range, rank), optimizer, &m->optimizer, &m->padding);
}

struct memory layout_memory(const struct layout *l, unsigned rank, const struct slots *s) {
    assert(rank < l->world);
    struct memory m = {0};
    for (size_t i = 0; i < l->range_count; i++) {
        add_range(l, i, rank, &m);
    }
    m.gather_slots = l->params_sharded ? times(s->gather, l->largest_param_bytes) : 0;
    m.grad_slots = times(s->grad, l->largest_grad_elements * dtype_bytes(l->model->wire_dtype));
    if (m.grad_slots < l->largest_load_bytes) {
        m.grad_slots = l->largest_load_bytes;
    }
    return m;
}
