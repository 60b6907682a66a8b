/* Places and segments. */
#include "layout/layout.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/buf.h"

/* Sizes are at most MODEL_MAX_ELEMENTS = 2^44, so this cannot overflow. */
static uint64_t round_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

static int too_large(const struct model *m, size_t unit, struct err *e) {
    return err_set(e, ST_RESOURCE_EXHAUSTED,
                   "with unit \"%s\" the model has more than %" PRIu64
                   " elements, padding included",
                   m->units[unit].name, MODEL_MAX_ELEMENTS);
}

/* Places a unit's tensors and the unit itself behind those before it. */
static int place_unit(struct layout *l, size_t unit, struct err *e) {
    const struct unit *u = &l->model->units[unit];
    struct unit_place *p = &l->units[unit];
    uint64_t end = 0;
    *p = (struct unit_place){
        .flat_start = l->padded, .part_start = l->part, .model_start = l->elements};
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        uint64_t n = l->model->tensors[i].elements;
        uint64_t offset = round_up(end, LAYOUT_ALIGN);
        if (n > MODEL_MAX_ELEMENTS || offset + n > MODEL_MAX_ELEMENTS) {
            return too_large(l->model, unit, e);
        }
        l->tensors[i] = (struct tensor_place){offset, p->model_start + p->elements};
        p->elements += n;
        end = offset + n;
    }
    p->padded = round_up(end, (uint64_t)LAYOUT_ALIGN * l->world);
    p->part = p->padded / l->world;
    if (l->padded + p->padded > MODEL_MAX_ELEMENTS) {
        return too_large(l->model, unit, e);
    }
    l->elements += p->elements;
    l->padded += p->padded;
    l->part += p->part;
    l->largest = p->padded > l->largest ? p->padded : l->largest;
    return 0;
}

int layout_init(struct layout *l, const struct model *m, unsigned world, struct err *e) {
    if (world < 1 || world > LAYOUT_MAX_RANKS) {
        return err_set(e, ST_INVALID_ARGUMENT, "%u ranks: must be 1 to %d", world,
                       LAYOUT_MAX_RANKS);
    }
    *l = (struct layout){
        .model = m,
        .world = world,
        .params_sharded = m->strategy == STRATEGY_ZERO3,
        .grads_sharded = m->strategy != STRATEGY_DDP,
        .optimizer_sharded = m->strategy != STRATEGY_DDP,
        .units = mem_zeroed(m->unit_count, sizeof *l->units),
        .tensors = mem_zeroed(m->tensor_count, sizeof *l->tensors),
    };
    int rc = 0;
    for (size_t u = 0; u < m->unit_count && !rc; u++) {
        rc = place_unit(l, u, e);
    }
    if (rc) {
        layout_free(l);
    }
    return rc;
}

void layout_free(struct layout *l) {
    free(l->units);
    free(l->tensors);
    *l = (struct layout){0};
}

size_t layout_segments(const struct layout *l, size_t unit, uint64_t from, uint64_t to,
                       struct segment *out, size_t cap) {
    assert(unit < l->model->unit_count && from <= to && to <= l->units[unit].padded);
    const struct unit *u = &l->model->units[unit];
    size_t found = 0;
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        uint64_t start = l->tensors[i].offset;
        uint64_t end = start + l->model->tensors[i].elements;
        uint64_t first = start > from ? start : from;
        uint64_t last = end < to ? end : to;
        if (start >= to) {
            break;
        }
        if (first >= last) {
            continue;
        }
        if (found < cap) {
            out[found] = (struct segment){.tensor = i,
                                          .tensor_offset = first - start,
                                          .range_offset = first - from,
                                          .count = last - first};
        }
        found++;
    }
    return found;
}
