#include "engine/places.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

static void pieces_init(struct pieces *q, const struct layout *l, unsigned rank, bool whole) {
    size_t units = l->model->unit_count, n = 0;
    q->first = mem_zeroed(units + 1, sizeof *q->first);
    for (int pass = 0; pass < 2; pass++) { /* counts, then fills in */
        n = 0;
        for (size_t u = 0; u < units; u++) {
            uint64_t part = l->units[u].part;
            uint64_t from = whole ? 0 : rank * part, to = whole ? l->units[u].padded : from + part;
            struct segment *out = q->list ? q->list + n : NULL;
            q->first[u] = n;
            n += layout_segments(l, u, from, to, out, q->list ? q->first[units] - n : 0);
        }
        q->first[units] = n;
        if (!q->list) {
            q->list = mem_zeroed(n, sizeof *q->list);
        }
    }
    for (size_t i = 0; i < n; i++) {
        q->elements += q->list[i].count;
    }
}

void places_init(struct places *p, const struct layout *l, unsigned rank, uint64_t tile) {
    uint64_t tiles = 0;
    *p = (struct places){.layout = l, .rank = rank};
    pieces_init(&p->part, l, rank, false);
    pieces_init(&p->whole, l, rank, true);
    p->units = mem_zeroed(l->model->unit_count, sizeof *p->units);
    for (size_t u = 0; u < l->model->unit_count; u++) {
        const struct unit_place *i = &l->units[u];
        uint64_t own = rank * i->part; /* of the part, in the unit */
        uint64_t updated_from = l->optimizer_sharded ? own : 0;
        struct place *o = &p->units[u];
        o->updated = l->optimizer_sharded ? i->part : i->padded;
        o->optimizer_at = l->optimizer_sharded ? i->part_start : i->flat_start;
        o->copy_at = l->params_sharded ? i->part_start : i->flat_start + updated_from;
        o->kept = l->grads_sharded ? i->part : i->padded;
        o->kept_at = l->grads_sharded ? i->part_start : i->flat_start;
        o->part_at = l->grads_sharded ? i->part_start : i->flat_start + own;
        o->summed_at = l->optimizer_sharded ? o->part_at : o->kept_at;
        o->own_at = l->optimizer_sharded ? i->part_start : i->flat_start + own;
        o->first_tile = tiles;
        tiles += (o->updated + tile - 1) / tile;
        p->optimizer += o->updated;
        p->kept += o->kept;
        p->largest_part = i->part > p->largest_part ? i->part : p->largest_part;
    }
}

static void pieces_free(struct pieces *q) {
    free(q->first);
    free(q->list);
}

void places_free(struct places *p) {
    pieces_free(&p->part);
    pieces_free(&p->whole);
    free(p->units);
    *p = (struct places){0};
}

const struct pieces *places_updated(const struct places *p) {
    return p->layout->optimizer_sharded ? &p->part : &p->whole;
}

const struct pieces *places_kept(const struct places *p) {
    return p->layout->grads_sharded ? &p->part : &p->whole;
}

void pieces_zero_gaps(const struct pieces *q, size_t unit, float *x, uint64_t n) {
    uint64_t at = 0;
    for (size_t i = q->first[unit]; i < q->first[unit + 1]; i++) {
        memset(x + at, 0, (q->list[i].range_offset - at) * sizeof *x);
        at = q->list[i].range_offset + q->list[i].count;
    }
    memset(x + at, 0, (n - at) * sizeof *x);
}
