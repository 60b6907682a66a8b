#include "engine/update.h"

#include <string.h>

static unsigned scratch_tiles(const struct model *m) {
    return 1 + optimizer_states(&m->optimizer) + (m->kept_dtype != DTYPE_FP32);
}

uint64_t update_scratch_bytes(const struct model *m, unsigned threads) {
    return (uint64_t)threads * scratch_tiles(m) * UPDATE_TILE * sizeof(float);
}

unsigned update_threads(const struct update *u, size_t unit, unsigned threads) {
    return u->places->units[unit].updated < UPDATE_WIDE ? 1 : threads;
}

/* One thread's way through a unit. */
struct walk {
    const struct update *u;
    const struct model *model;
    const struct step_scalars *s;
    struct progress *progress;
    float *p, *state[UPDATE_STATES], *g; /* scratch; g: of gradients kept in bf16 */
    uint64_t base;                       /* the unit's first tile */
    size_t range;
    const struct place *place; /* of the range */
    const struct segment *piece,
        *end;          /* the first that may overlap the tile; behind the range's last */
    uint64_t from, to; /* the tile, elements of the updated stretch */
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

/* The part of a segment that lies in the tile: where it starts in the updated stretch, its length.
 */
static uint64_t overlap(const struct walk *w, const struct segment *g, uint64_t *at) {
    uint64_t end = g->range_offset + g->count;
    *at = g->range_offset > w->from ? g->range_offset : w->from;
    end = end < w->to ? end : w->to;
    return *at < end ? end - *at : 0;
}

static uint64_t tiles_of(const struct place *p) {
    return (p->updated.count + UPDATE_TILE - 1) / UPDATE_TILE;
}

static void enter_range(struct walk *w, size_t range) {
    const struct pieces *q = &w->u->places->updated;
    w->range = range;
    w->place = &w->u->places->ranges[range];
    w->piece = q->list + q->first[range];
    w->end = q->list + q->first[range + 1];
}

/* Tile |index| of the unit; calls come in ascending order. */
static void enter_tile(struct walk *w, uint64_t index) {
    uint64_t tile = w->base + index;
    while (tile >= w->place->first_tile + tiles_of(w->place)) {
        enter_range(w, w->range + 1);
    }
    uint64_t end = w->place->updated.count;
    w->from = (tile - w->place->first_tile) * UPDATE_TILE;
    w->to = end - w->from < UPDATE_TILE ? end : w->from + UPDATE_TILE;
    while (w->piece < w->end && w->piece->range_offset + w->piece->count <= w->from) {
        w->piece++;
    }
}

/* |n| summed gradients at |at| of the updated stretch, in fp32. */
static const float *gradients(const struct walk *w, uint64_t at, uint64_t n) {
    const struct place *p = w->place;
    uint64_t i = p->kept_at + (p->updated.from - p->kept.from) + at;
    if (!w->g) {
        return (const float *)w->u->kept + i;
    }
    w->u->kernels->from_bf16(n, (const uint16_t *)w->u->kept + i, w->g);
    return w->g;
}

static float *offset(float *x, uint64_t at) {
    return x ? x + at : NULL;
}

static void compute(const struct walk *w) {
    const struct update *u = w->u;
    for (const struct segment *g = w->piece; g < w->end && g->range_offset < w->to; g++) {
        const struct tensor *t = &w->model->tensors[g->tensor];
        uint64_t at, n = overlap(w, g, &at);
        uint64_t i = w->place->optimizer_at + at, scratch = at - w->from;
        struct update_numbers numbers =
            update_numbers(&w->model->optimizer, w->s, t->decay_multiplier, t->lr_multiplier);
        u->kernels->update[w->model->optimizer.kind](
            &numbers, n, gradients(w, at, n), u->master + i, offset(u->state[0], i),
            offset(u->state[1], i), w->p + scratch, offset(w->state[0], scratch),
            offset(w->state[1], scratch));
    }
}

static void copy_params(const struct walk *w, uint64_t at, const float *from, uint64_t n) {
    const struct kernels *k = w->u->kernels;
    const struct place *p = w->place;
    enum dtype dtype = w->u->places->layout->ranges[w->range].dtype;
    uint64_t element = (p->updated.from - p->held.from) + at;
    if (!w->u->held || p->from_master) {
        return;
    }
    void *to = w->u->held + p->held_at + element * dtype_bytes(dtype);
    if (dtype == DTYPE_BF16) {
        k->to_bf16(n, from, to);
    } else if (dtype == DTYPE_FP16) {
        k->to_fp16(n, from, to);
    } else {
        memcpy(to, from, n * sizeof *from);
    }
}

static void put_in_place(const struct walk *w) {
    const struct update *u = w->u;
    for (const struct segment *g = w->piece; g < w->end && g->range_offset < w->to; g++) {
        uint64_t at, n = overlap(w, g, &at);
        uint64_t i = w->place->optimizer_at + at, scratch = at - w->from;
        memcpy(u->master + i, w->p + scratch, n * sizeof(float));
        written(w);
        for (int k = 0; k < UPDATE_STATES && u->state[k]; k++) {
            memcpy(u->state[k] + i, w->state[k] + scratch, n * sizeof(float));
            written(w);
        }
        copy_params(w, at, w->p + scratch, n);
        written(w);
    }
}

/* The first of the tiles [first, last) of |w|'s unit that is still to be computed; one that is only
 * to be put in place is, here. */
static uint64_t redo(struct walk *w, uint64_t first, uint64_t last, uint64_t step) {
    struct progress *r = w->progress;
    uint64_t next = first;
    uint64_t done = atomic_load(&r->done_tile) - w->base;
    uint64_t ready = atomic_load(&r->ready_tile) - w->base;
    if (atomic_load(&r->done_step) == step && done >= first && done < last) {
        next = done + 1;
    }
    if (atomic_load(&r->ready_step) == step && ready == next && ready < last) {
        enter_tile(w, ready);
        put_in_place(w);
        set(w, &r->done_tile, w->base + ready);
        set(w, &r->done_step, step);
        next++;
    }
    return next;
}

static struct walk walk_of(const struct update *u, size_t unit, const struct step_scalars *s,
                           unsigned thread) {
    const struct model *m = u->places->layout->model;
    unsigned states = optimizer_states(&m->optimizer), tiles = scratch_tiles(m);
    float *scratch = u->scratch + (size_t)thread * tiles * UPDATE_TILE;
    struct walk w = {.u = u, .model = m, .s = s, .progress = &u->progress[thread], .p = scratch};
    for (unsigned k = 0; k < states; k++) {
        w.state[k] = scratch + (size_t)(1 + k) * UPDATE_TILE;
    }
    if (tiles > 1 + states) {
        w.g = scratch + (size_t)(1 + states) * UPDATE_TILE;
    }
    enter_range(&w, u->places->layout->units[unit].first);
    w.base = w.place->first_tile;
    return w;
}

void update_share(const struct update *u, size_t unit, uint64_t step, const struct step_scalars *s,
                  unsigned thread, unsigned threads) {
    const struct unit_place *place = &u->places->layout->units[unit];
    uint64_t tiles = 0;
    for (size_t i = place->first; i < place->first + place->trainable; i++) {
        tiles += tiles_of(&u->places->ranges[i]);
    }
    uint64_t first = tiles * thread / threads, last = tiles * (thread + 1) / threads;
    if (first == last) {
        return;
    }
    struct walk w = walk_of(u, unit, s, thread);
    struct progress *r = w.progress;
    for (uint64_t i = redo(&w, first, last, step); i < last; i++) {
        enter_tile(&w, i);
        compute(&w);
        written(&w);
        set(&w, &r->ready_tile, w.base + i);
        set(&w, &r->ready_step, step);
        put_in_place(&w);
        set(&w, &r->done_tile, w.base + i);
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
