/* Groups of ranks, and the stretches of a range that a rank has by them. Every stretch is a whole
 * number of pieces of 1/N, a multiple of 64 elements each. */
#include <assert.h>

#include "layout/layout.h"
#include "layout/model_inner.h"

/* ---- groups ---- */

struct group layout_inner(const struct layout *l, unsigned rank) {
    assert(rank < l->world);
    return (struct group){.first = rank - rank % l->inner, .stride = 1, .count = l->inner};
}

struct group layout_outer(const struct layout *l, unsigned rank) {
    assert(rank < l->world);
    return (struct group){.first = rank % l->inner, .stride = l->inner, .count = l->outer};
}

unsigned group_index(const struct group *g, unsigned rank) {
    assert(rank >= g->first && (rank - g->first) % g->stride == 0);
    const unsigned index = (rank - g->first) / g->stride;
    assert(index < g->count);
    return index;
}

unsigned group_at(const struct group *g, unsigned index) {
    assert(index < g->count);
    return g->first + index * g->stride;
}

/* ---- stretches ---- */

/* The rank's 1/|inner| of a range. */
static struct stretch inner_share(const struct layout *l, size_t range, unsigned rank) {
    assert(range < l->range_count && rank < l->world);
    const uint64_t share = l->ranges[range].padded / l->inner;
    return (struct stretch){.from = rank % l->inner * share, .count = share};
}

struct stretch layout_kept(const struct layout *l, size_t range, unsigned rank) {
    const struct stretch s = inner_share(l, range, rank);
    return l->ranges[range].frozen ? (struct stretch){0} : s;
}

struct stretch layout_piece(const struct layout *l, size_t range, unsigned rank) {
    const struct stretch s = inner_share(l, range, rank);
    const uint64_t piece = s.count / l->outer;
    return (struct stretch){.from = s.from + rank / l->inner * piece, .count = piece};
}

struct stretch layout_updated(const struct layout *l, size_t range, unsigned rank) {
    if (l->optimizer_split && !l->ranges[range].frozen) {
        return layout_piece(l, range, rank);
    }
    return layout_kept(l, range, rank);
}

struct stretch layout_held(const struct layout *l, size_t range, unsigned rank) {
    const struct stretch s = inner_share(l, range, rank);
    return l->params_sharded ? s : (struct stretch){.count = l->ranges[range].padded};
}

/* ---- segments ---- */

bool layout_segment_of(const struct layout *l, size_t range, struct stretch s, size_t tensor,
                       struct segment *out) {
    const struct tensor *t = &l->model->tensors[tensor];
    if (!tensor_has_place(t) || l->tensors[tensor].range != range) {
        return false;
    }
    const uint64_t start = l->tensors[tensor].offset, end = start + t->elements;
    const uint64_t to = s.from + s.count;
    const uint64_t first = start > s.from ? start : s.from, last = end < to ? end : to;
    if (first >= last) {
        return false;
    }
    *out = (struct segment){.tensor = tensor,
                            .tensor_offset = first - start,
                            .range_offset = first - s.from,
                            .count = last - first};
    return true;
}

size_t layout_segments(const struct layout *l, size_t range, struct stretch s, struct segment *out,
                       size_t cap) {
    assert(range < l->range_count && s.count <= l->ranges[range].padded &&
           s.from <= l->ranges[range].padded - s.count);
    const struct unit *u = &l->model->units[l->ranges[range].unit];
    size_t found = 0;
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        struct segment g;
        if (layout_segment_of(l, range, s, i, &g)) {
            if (found < cap) {
                out[found] = g;
            }
            found++;
        }
    }
    return found;
}
