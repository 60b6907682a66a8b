#include "engine/places.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

typedef struct stretch stretch_fn(const struct layout *l, size_t range, unsigned rank);

static void pieces_init(struct pieces *q, const struct layout *l, unsigned rank,
                        stretch_fn *stretch) {
    size_t n = 0;
    q->first = mem_zeroed(l->range_count + 1, sizeof *q->first);
    for (size_t i = 0; i < l->range_count; i++) {
        q->first[i] = n;
        n += layout_segments(l, i, stretch(l, i, rank), NULL, 0);
    }
    q->first[l->range_count] = n;
    q->list = mem_zeroed(n, sizeof *q->list);
    for (size_t i = 0; i < l->range_count; i++) {
        (void)layout_segments(l, i, stretch(l, i, rank), q->list + q->first[i],
                              q->first[i + 1] - q->first[i]);
    }
}

static uint64_t real_elements(const struct pieces *q, size_t range) {
    uint64_t n = 0;
    for (size_t i = q->first[range]; i < q->first[range + 1]; i++) {
        n += q->list[i].count;
    }
    return n;
}

/* Puts a range's stretches behind those of the ranges before it. */
static void place_range(struct places *p, size_t range, uint64_t *tiles, uint64_t tile) {
    const struct layout *l = p->layout;
    const struct range *r = &l->ranges[range];
    struct place *o = &p->ranges[range];
    uint64_t element = dtype_bytes(r->dtype);
    *o = (struct place){
        .kept = layout_kept(l, range, p->rank),
        .updated = layout_updated(l, range, p->rank),
        .piece = layout_piece(l, range, p->rank),
        .held = layout_held(l, range, p->rank),
        .from_master = l->params_sharded && !r->frozen && r->dtype == DTYPE_FP32,
        .kept_at = p->kept_elements.padded,
        .optimizer_at = p->optimizer_elements.padded,
        .held_at = p->held_bytes.padded,
        .first_tile = *tiles,
    };
    *tiles += (o->updated.count + tile - 1) / tile;
    p->kept_elements.padded += o->kept.count;
    p->kept_elements.real += real_elements(&p->kept, range);
    p->optimizer_elements.padded += o->updated.count;
    p->optimizer_elements.real += real_elements(&p->updated, range);
    if (!o->from_master) {
        p->held_bytes.padded += o->held.count * element;
        p->held_bytes.real += real_elements(&p->held, range) * element;
    }
    if (!r->frozen && o->piece.count > p->largest_piece) {
        p->largest_piece = o->piece.count;
    }
    p->units[r->unit].updated += o->updated.count;
}

void places_init(struct places *p, const struct layout *l, unsigned rank, uint64_t tile) {
    uint64_t tiles = 0, replica = 0;
    *p = (struct places){.layout = l, .rank = rank};
    pieces_init(&p->kept, l, rank, layout_kept);
    pieces_init(&p->updated, l, rank, layout_updated);
    pieces_init(&p->piece, l, rank, layout_piece);
    pieces_init(&p->held, l, rank, layout_held);
    p->ranges = mem_zeroed(l->range_count, sizeof *p->ranges);
    p->units = mem_zeroed(l->model->unit_count, sizeof *p->units);
    for (size_t i = 0; i < l->range_count; i++) {
        place_range(p, i, &tiles, tile);
    }
    for (size_t u = 0; u < l->model->unit_count; u++) {
        p->units[u].replica = replica;
        replica += l->units[u].param_bytes;
    }
}

static void pieces_free(struct pieces *q) {
    free(q->first);
    free(q->list);
}

void places_free(struct places *p) {
    pieces_free(&p->kept);
    pieces_free(&p->updated);
    pieces_free(&p->piece);
    pieces_free(&p->held);
    free(p->ranges);
    free(p->units);
    *p = (struct places){0};
}

void pieces_zero_gaps(const struct pieces *q, size_t range, void *x, uint64_t n, size_t element) {
    uint8_t *bytes = x;
    uint64_t at = 0;
    for (size_t i = q->first[range]; i < q->first[range + 1]; i++) {
        memset(bytes + at * element, 0, (q->list[i].range_offset - at) * element);
        at = q->list[i].range_offset + q->list[i].count;
    }
    memset(bytes + at * element, 0, (n - at) * element);
}
