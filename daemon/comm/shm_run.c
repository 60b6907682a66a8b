/* Moving bytes: each function below splits its range over the device's threads; elements do not
 * depend on each other, so neither does the result on how it was split. What is read from a peer's
 * memory is counted here, where it is read, chunk by chunk; between chunks an abort is looked for.
 */
#include <assert.h>

#include "comm/shm_inner.h"

enum {
    CHUNK = 65536,    /* elements between looks at the abort flag */
    GRAIN = 4096,     /* elements: threads' shares start at multiples of it */
    WIDE = 1 << 16,   /* elements of a range below which waking helpers costs more than it saves */
    NEAR = 1 << 18,   /* bytes of a unit that a cache holds until its reader comes */
    STREAM = 1 << 18, /* elements of a sum from which on it is written past the caches: 1.1 times as
                         fast */
    STREAM_TILE = 2048, /* elements summed at a time then: stays in the first-level cache */
};

static void count(struct shm *s, unsigned peer, enum control_kind kind, uint64_t elements,
                  uint64_t bytes) {
    struct control_reads *r = control_reads(s->o.page, peer);
    atomic_fetch_add_explicit(&r->elements[kind], elements, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->bytes[kind], bytes, memory_order_relaxed);
}

static bool is_aborted(struct shm *s) {
    return atomic_load_explicit(&s->aborted, memory_order_relaxed);
}

static void launch(struct shm *s, uint64_t elements,
                   void (*part)(void *ctx, unsigned thread, unsigned threads), void *ctx) {
    struct device *d = s->o.device;
    d->ops->launch(d, elements < WIDE ? 1 : d->threads, part, ctx);
}

/* ---- copying parts ---- */

struct copies {
    struct shm *s;
    enum control_kind kind;
    uint64_t part;                         /* elements of each part */
    uint64_t element;                      /* bytes of one */
    bool far;                              /* too large for a cache: do not fill it */
    uint8_t *to;                           /* the parts go there one behind the other */
    const uint8_t *from[LAYOUT_MAX_RANKS]; /* NULL: that part is left out */
    _Atomic bool failed;
};

static bool copy_range(struct copies *w, unsigned rank, uint64_t from, uint64_t to) {
    uint8_t *out = w->to + rank * w->part * w->element;
    for (uint64_t at = from; at < to; at += CHUNK) {
        uint64_t n = to - at < CHUNK ? to - at : CHUNK, bytes = n * w->element;
        if (is_aborted(w->s)) {
            return false;
        }
        const uint8_t *in = w->from[rank] + at * w->element;
        if (w->far) {
            w->s->o.kernels->copy(bytes, in, out + at * w->element);
        } else {
            __builtin_memcpy(out + at * w->element, in, bytes);
        }
        if (rank != w->s->o.rank) {
            count(w->s, rank, w->kind, n, bytes);
        }
    }
    return true;
}

static void copy_share(void *ctx, unsigned thread, unsigned threads) {
    struct copies *w = ctx;
    unsigned world = w->s->o.layout->world;
    uint64_t from, to;
    pool_share(w->part, GRAIN, thread, threads, &from, &to);
    for (unsigned i = 1; i <= world; i++) {
        unsigned rank = (w->s->o.rank + i) % world; /* not all ranks at the same memory first */
        if (w->from[rank] && !copy_range(w, rank, from, to)) {
            atomic_store(&w->failed, true);
            return;
        }
    }
}

static bool copy_parts(struct copies *w) {
    uint64_t whole = w->part * w->s->o.layout->world;
    w->far = whole * w->element > NEAR;
    launch(w->s, whole, copy_share, w);
    return !atomic_load(&w->failed);
}

/* Where |rank|'s part of the unit is, relative to the start of its source. */
static uint64_t part_offset(const struct layout *l, size_t unit, unsigned rank, uint64_t element) {
    const struct unit_place *u = &l->units[unit];
    return (l->params_sharded ? u->part_start : u->flat_start + rank * u->part) * element;
}

static const uint8_t *source_of(const struct shm *s, unsigned rank) {
    const struct shm_peer *p = &s->peers[rank];
    return rank == s->o.rank ? s->o.source : p->source.base + p->source_offset;
}

bool shm_all_gather(struct comm *c, size_t unit, void *to) {
    struct shm *s = (struct shm *)c;
    const struct layout *l = s->o.layout;
    struct copies w = {.s = s,
                       .kind = READ_ALL_GATHER,
                       .part = l->units[unit].part,
                       .element = dtype_bytes(l->model->param_dtype),
                       .to = to};
    for (unsigned r = 0; r < l->world; r++) {
        const uint8_t *from = source_of(s, r) + part_offset(l, unit, r, w.element);
        bool in_place = from == w.to + r * w.part * w.element;
        w.from[r] = in_place ? NULL : from;
    }
    return copy_parts(&w);
}

bool shm_share_parts(struct comm *c, size_t unit) {
    struct shm *s = (struct shm *)c;
    const struct layout *l = s->o.layout;
    struct copies w = {.s = s,
                       .kind = READ_ALL_REDUCE,
                       .part = l->units[unit].part,
                       .element = sizeof(float),
                       .to = s->o.source + l->units[unit].flat_start * sizeof(float)};
    for (unsigned r = 0; r < l->world; r++) {
        bool own = r == s->o.rank;
        w.from[r] = own ? NULL : source_of(s, r) + part_offset(l, unit, r, w.element);
    }
    return copy_parts(&w);
}

/* ---- summing ---- */

struct sums {
    struct shm *s;
    enum control_kind kind;
    uint64_t n; /* elements */
    bool add;
    bool stream; /* |to| is not read and too large for a cache: written past it */
    float *to;
    const float *from[LAYOUT_MAX_RANKS];
    _Atomic bool failed;
};

/* from[0 .. world) are left behind the range. */
static void sum_streamed(const struct sums *w, const float **from, uint64_t n, float *to) {
    const struct kernels *k = w->s->o.kernels;
    float tile[STREAM_TILE];
    for (uint64_t at = 0; at < n; at += STREAM_TILE) {
        uint64_t here = n - at < STREAM_TILE ? n - at : STREAM_TILE;
        k->sum(here, w->s->o.layout->world, from, false, tile);
        k->copy(here * sizeof *tile, tile, to + at);
        for (unsigned r = 0; r < w->s->o.layout->world; r++) {
            from[r] += here;
        }
    }
}

static void sum_chunk(struct sums *w, uint64_t at, uint64_t n) {
    const float *from[LAYOUT_MAX_RANKS] = {0};
    unsigned world = w->s->o.layout->world;
    for (unsigned r = 0; r < world; r++) {
        from[r] = w->from[r] + at;
    }
    if (w->stream) {
        sum_streamed(w, from, n, w->to + at);
    } else {
        w->s->o.kernels->sum(n, world, from, w->add, w->to + at);
    }
    for (unsigned r = 0; r < world; r++) {
        if (r != w->s->o.rank) {
            count(w->s, r, w->kind, n, n * sizeof(float));
        }
    }
}

static void sum_share(void *ctx, unsigned thread, unsigned threads) {
    struct sums *w = ctx;
    uint64_t from, to;
    pool_share(w->n, GRAIN, thread, threads, &from, &to);
    for (uint64_t at = from; at < to; at += CHUNK) {
        if (is_aborted(w->s)) {
            atomic_store(&w->failed, true);
            return;
        }
        sum_chunk(w, at, to - at < CHUNK ? to - at : CHUNK);
    }
}

bool shm_reduce_scatter(struct comm *c, uint32_t slot, const struct comm_tag *tag, bool add,
                        float *to) {
    struct shm *s = (struct shm *)c;
    const struct layout *l = s->o.layout;
    uint64_t part = l->units[tag->unit].part;
    uint64_t at = (slot * l->largest + s->o.rank * part) * sizeof(float);
    struct sums w = {.s = s, .kind = READ_REDUCE_SCATTER, .n = part, .add = add, .to = to};
    w.stream = !add && part > STREAM;
    for (unsigned r = 0; r < l->world; r++) {
        const uint8_t *slots = r == s->o.rank ? s->grads : s->peers[r].grads.base;
        w.from[r] = (const float *)(const void *)(slots + at);
    }
    launch(s, part, sum_share, &w);
    if (atomic_load(&w.failed)) {
        return false;
    }
    const uint64_t words[] = {tag->fence.generation, tag->fence.step, tag->fence.attempt,
                              tag->sequence};
    for (unsigned r = 0; r < l->world; r++) {
        control_write(control_mark(s->o.page, r, slot), words, sizeof words / sizeof *words);
    }
    control_publish(s->o.page);
    return true;
}

bool shm_sum_part(struct comm *c, size_t unit, const struct fence *f) {
    struct shm *s = (struct shm *)c;
    const struct layout *l = s->o.layout;
    uint64_t offset = part_offset(l, unit, s->o.rank, sizeof(float));
    struct sums w = {.s = s,
                     .kind = READ_ALL_REDUCE,
                     .n = l->units[unit].part,
                     .to = (float *)(void *)(s->o.source + offset)};
    for (unsigned r = 0; r < l->world; r++) {
        w.from[r] = (const float *)(const void *)(source_of(s, r) + offset);
    }
    launch(s, w.n, sum_share, &w);
    if (atomic_load(&w.failed)) {
        return false;
    }
    const uint64_t words[] = {f->generation, f->step, f->attempt};
    control_write(&control_unit(s->o.page, unit)->reduced, words, sizeof words / sizeof *words);
    control_publish(s->o.page);
    return true;
}
