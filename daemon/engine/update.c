#include "engine/update.h"

#include <string.h>

uint64_t update_scratch_bytes(unsigned threads) {
    return (uint64_t)threads * 3 * UPDATE_TILE * sizeof(float);
}

unsigned update_threads(const struct update *u, size_t unit, unsigned threads) {
    return u->places->units[unit].updated < UPDATE_WIDE ? 1 : threads;
}

/* One thread's way through a unit. */
struct walk {
    const struct update *u;
    const struct place *place;
    const struct step_scalars *s;
    struct progress *progress;
    float *p, *m, *v; /* scratch */
    const struct segment *piece,
        *end;          /* the first that may overlap the tile; behind the unit's last */
    uint64_t from, to; /* the tile, elements of the updated range */
};

/* Program order is what a killed process leaves behind: the compiler must not change it. */
static void written(const struct walk *w) {
    atomic_signal_fence(memory_order_seq_cst);
    if (w->u->hook) {
        w->u->hook(w->u->hook_ctx);
    }
}

static void set(const struct walk *w, _Atomic uint64_t *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_release);
    written(w);
}

/* The part of a segment that lies in the tile: where it starts in the updated range, its length. */
static uint64_t overlap(const struct walk *w, const struct segment *g, uint64_t *at) {
    uint64_t end = g->range_offset + g->count;
    *at = g->range_offset > w->from ? g->range_offset : w->from;
    end = end < w->to ? end : w->to;
    return *at < end ? end - *at : 0;
}

static void enter_tile(struct walk *w, uint64_t index) {
    w->from = index * UPDATE_TILE;
    w->to = w->from + UPDATE_TILE < w->place->updated ? w->from + UPDATE_TILE : w->place->updated;
    while (w->piece < w->end && w->piece->range_offset + w->piece->count <= w->from) {
        w->piece++;
    }
}

static void compute(const struct walk *w) {
    const struct update *u = w->u;
    const struct model *model = u->places->layout->model;
    for (const struct segment *g = w->piece; g < w->end && g->range_offset < w->to; g++) {
        uint64_t at, n = overlap(w, g, &at);
        uint64_t i = w->place->optimizer_at + at, scratch = at - w->from;
        struct adamw a =
            adamw_numbers(&model->adamw, w->s, model->tensors[g->tensor].decay_multiplier);
        u->kernels->adamw(&a, n, u->kept + w->place->summed_at + at, u->master + i, u->m + i,
                          u->v + i, w->p + scratch, w->m + scratch, w->v + scratch);
    }
}

static void copy_params(const struct walk *w, uint64_t to, const float *from, uint64_t n) {
    const struct update *u = w->u;
    if (u->copy && u->bf16) {
        u->kernels->to_bf16(n, from, (uint16_t *)u->copy + to);
    } else if (u->copy) {
        memcpy((float *)u->copy + to, from, n * sizeof *from);
    }
}

static void put_in_place(const struct walk *w) {
    const struct update *u = w->u;
    for (const struct segment *g = w->piece; g < w->end && g->range_offset < w->to; g++) {
        uint64_t at, n = overlap(w, g, &at);
        uint64_t i = w->place->optimizer_at + at, scratch = at - w->from;
        memcpy(u->master + i, w->p + scratch, n * sizeof(float));
        written(w);
        memcpy(u->m + i, w->m + scratch, n * sizeof(float));
        written(w);
        memcpy(u->v + i, w->v + scratch, n * sizeof(float));
        written(w);
        copy_params(w, w->place->copy_at + at, w->p + scratch, n);
        written(w);
    }
}

/* The first of the tiles [first, last) of |w|'s unit that is still to be computed; one that is only
 * to be put in place is, here. */
static uint64_t redo(struct walk *w, uint64_t first, uint64_t last, uint64_t step) {
    struct progress *r = w->progress;
    uint64_t base = w->place->first_tile, next = first;
    uint64_t done = atomic_load(&r->done_tile) - base, ready = atomic_load(&r->ready_tile) - base;
    if (atomic_load(&r->done_step) == step && done >= first && done < last) {
        next = done + 1;
    }
    if (atomic_load(&r->ready_step) == step && ready == next && ready < last) {
        enter_tile(w, ready);
        put_in_place(w);
        set(w, &r->done_tile, base + ready);
        set(w, &r->done_step, step);
        next++;
    }
    return next;
}

void update_share(const struct update *u, size_t unit, uint64_t step, const struct step_scalars *s,
                  unsigned thread, unsigned threads) {
    const struct pieces *q = places_updated(u->places);
    const struct place *place = &u->places->units[unit];
    float *scratch = u->scratch + (size_t)thread * 3 * UPDATE_TILE;
    struct progress *r = &u->progress[thread];
    struct walk w = {.u = u,
                     .place = place,
                     .s = s,
                     .progress = r,
                     .p = scratch,
                     .m = scratch + UPDATE_TILE,
                     .v = scratch + (ptrdiff_t)2 * UPDATE_TILE,
                     .piece = q->list + q->first[unit],
                     .end = q->list + q->first[unit + 1]};
    uint64_t tiles = (place->updated + UPDATE_TILE - 1) / UPDATE_TILE;
    uint64_t first = tiles * thread / threads, last = tiles * (thread + 1) / threads;
    for (uint64_t i = redo(&w, first, last, step); i < last; i++) {
        enter_tile(&w, i);
        compute(&w);
        written(&w);
        set(&w, &r->ready_tile, place->first_tile + i);
        set(&w, &r->ready_step, step);
        put_in_place(&w);
        set(&w, &r->done_tile, place->first_tile + i);
        set(&w, &r->done_step, step);
    }
}

void update_resume(const struct update *u, size_t unit, uint64_t step, const struct step_scalars *s,
                   unsigned threads) {
    unsigned sharing = update_threads(u, unit, threads);
    for (unsigned t = 0; t < sharing; t++) {
        update_share(u, unit, step, s, t, sharing);
    }
}
