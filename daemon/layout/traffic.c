/* Bytes one rank sends in a step: the sum of design §5 over the plan "train". All ranks send the
 * same, since stretches are equally long. */
#include <stdlib.h>

#include "base/buf.h"
#include "layout/layout.h"
#include "base/saturate.h"

enum { INNER = 0, OUTER = 1 };

/* How often the train plan gathers and reduces a unit. */
struct uses {
    uint64_t gathers, reduces;
};

static struct uses *count_uses(const struct layout *l) {
    const struct plan *p = model_plan(l->model, "train");
    struct uses *uses = mem_zeroed(l->model->unit_count, sizeof *uses);
    for (size_t i = 0; p && i < p->count; i++) {
        uses[p->ops[i].unit].gathers += p->ops[i].kind == PLAN_GATHER;
        uses[p->ops[i].unit].reduces += p->ops[i].kind == PLAN_REDUCE;
    }
    return uses;
}

/* |count| of a rank's elements that |readers| other ranks read, |often| times. */
static void add(uint64_t count, uint64_t readers, uint64_t often, size_t element,
                uint64_t *elements, uint64_t *bytes) {
    const uint64_t n = times(times(count, readers), often);
    *elements = plus(*elements, n);
    *bytes = plus(*bytes, times(n, element));
}

static void add_gathers(const struct layout *l, const struct range *r, uint64_t often,
                        struct traffic by[2]) {
    const size_t param = dtype_bytes(r->dtype);
    const uint64_t share = r->padded / l->inner, piece = share / l->outer;
    if (l->params_sharded) {
        add(share, l->inner - 1, times(often, l->model->micro_batches), param,
            &by[INNER].all_gather_elements, &by[INNER].all_gather_bytes);
    } else if (!r->frozen) { /* gathered again after the update, once a step */
        if (l->optimizer_split) {
            add(piece, l->outer - 1, 1, param, &by[OUTER].all_gather_elements,
                &by[OUTER].all_gather_bytes);
        } else {
            add(share, l->inner - 1, 1, param, &by[INNER].all_gather_elements,
                &by[INNER].all_gather_bytes);
        }
    }
}

static void add_reduces(const struct layout *l, const struct range *r, uint64_t often,
                        struct traffic by[2]) {
    const size_t wire = dtype_bytes(l->model->wire_dtype), kept = dtype_bytes(l->model->kept_dtype);
    const uint64_t share = r->padded / l->inner, piece = share / l->outer;
    if (r->frozen) {
        return;
    }
    add(share, l->inner - 1, times(often, l->model->micro_batches), wire,
        &by[INNER].reduce_scatter_elements, &by[INNER].reduce_scatter_bytes);
    if (l->optimizer_split) {
        add(piece, l->outer - 1, 1, kept, &by[OUTER].reduce_scatter_elements,
            &by[OUTER].reduce_scatter_bytes);
    } else { /* a reduce-scatter and an all-gather */
        add(piece, l->outer - 1, 2, kept, &by[OUTER].all_reduce_elements,
            &by[OUTER].all_reduce_bytes);
    }
}

void layout_traffic_by_group(const struct layout *l, struct traffic by[2]) {
    struct uses *uses = count_uses(l);
    by[INNER] = by[OUTER] = (struct traffic){0};
    for (size_t i = 0; i < l->range_count; i++) {
        const struct range *r = &l->ranges[i];
        add_gathers(l, r, uses[r->unit].gathers, by);
        add_reduces(l, r, uses[r->unit].reduces, by);
    }
    free(uses);
}

struct traffic layout_traffic(const struct layout *l) {
    struct traffic by[2];
    layout_traffic_by_group(l, by);
    traffic_add(&by[INNER], &by[OUTER]);
    return by[INNER];
}

struct traffic layout_traffic_ddp(const struct layout *l) {
    struct traffic t = {0};
    for (size_t i = 0; i < l->range_count; i++) {
        const struct range *r = &l->ranges[i];
        if (!r->frozen) {
            add(r->padded / l->world, l->world - 1, 2, dtype_bytes(l->model->kept_dtype),
                &t.all_reduce_elements, &t.all_reduce_bytes);
        }
    }
    return t;
}
