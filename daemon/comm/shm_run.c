/* Moving bytes: each function below splits its range over the device's threads; elements do not
 * depend on each other, so neither does the result on how it was split. What is read from a peer's
 * memory is counted here, where it is read, chunk by chunk; between chunks an abort is looked for.
 */
#include <assert.h>

#include "comm/shm_inner.h"

enum {
    CHUNK = 65536,    /* elements between looks at the abort flag */
    TILE = 4096,      /* elements summed at a time where the result is rounded */
    GRAIN = 4096,     /* elements: threads' shares start at multiples of it */
    WIDE = 1 << 16,   /* elements of a range below which waking helpers costs more than it saves */
    NEAR = 1 << 18,   /* bytes of a range that a cache holds until its reader comes */
    STREAM = 1 << 18, /* elements of a sum from which on it is written past the caches: 1.1 times as
                         fast */
};

static void count(struct shm *s, unsigned peer, enum comm_kind kind, uint64_t elements,
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

static const uint8_t *memory_of(const struct shm *s, unsigned rank, enum comm_memory m) {
    const struct shm_peer *p = &s->peers[rank];
    if (rank == s->o.rank) {
        return s->o.memory[m].base;
    }
    return (m == COMM_REPLICA ? p->params.base : p->state.base) + p->offsets[m];
}

/* ---- copying parts ---- */

struct copies {
    struct shm *s;
    const struct comm_copy *w;
    const struct group *group;
    bool far;                              /* too large for a cache: do not fill it */
    const uint8_t *from[LAYOUT_MAX_RANKS]; /* by member; NULL: that part lies there already */
    _Atomic bool failed;
};

static bool copy_range(struct copies *c, unsigned member, uint64_t from, uint64_t to) {
    const struct comm_copy *w = c->w;
    unsigned rank = group_at(c->group, member);
    uint8_t *out = (uint8_t *)w->to + member * w->count * w->element;
    for (uint64_t at = from; at < to; at += CHUNK) {
        uint64_t n = to - at < CHUNK ? to - at : CHUNK, bytes = n * w->element;
        if (is_aborted(c->s)) {
            return false;
        }
        const uint8_t *in = c->from[member] + at * w->element;
        if (c->far) {
            c->s->o.kernels->copy(bytes, in, out + at * w->element);
        } else {
            __builtin_memcpy(out + at * w->element, in, bytes);
        }
        if (rank != c->s->o.rank) {
            count(c->s, rank, w->kind, n, bytes);
        }
    }
    return true;
}

static void copy_share(void *ctx, unsigned thread, unsigned threads) {
    struct copies *c = ctx;
    unsigned members = c->group->count, own = group_index(c->group, c->s->o.rank);
    uint64_t from, to;
    pool_share(c->w->count, GRAIN, thread, threads, &from, &to);
    for (unsigned i = 1; i <= members; i++) {
        unsigned member = (own + i) % members; /* not all ranks at the same memory first */
        if (c->from[member] && !copy_range(c, member, from, to)) {
            atomic_store(&c->failed, true);
            return;
        }
    }
}

bool shm_all_gather(struct comm *comm, const struct comm_copy *w) {
    struct shm *s = (struct shm *)comm;
    struct copies c = {.s = s, .w = w, .group = &s->groups[w->group]};
    uint64_t whole = w->count * c.group->count;
    for (unsigned i = 0; i < c.group->count; i++) {
        const uint8_t *from = memory_of(s, group_at(c.group, i), w->memory) + w->at + i * w->step;
        bool in_place = from == (uint8_t *)w->to + i * w->count * w->element;
        c.from[i] = in_place ? NULL : from;
    }
    c.far = whole * w->element > NEAR;
    launch(s, whole, copy_share, &c);
    return !atomic_load(&c.failed);
}

/* ---- summing ---- */

/* What a rank counts as that has left a reduce out. */
static float zeros[CHUNK]; /* never written; not const, to be no part of the file */

struct sums {
    struct shm *s;
    const struct comm_sum *w;
    const struct group *group;
    enum comm_kind kind;
    const uint8_t *from[LAYOUT_MAX_RANKS]; /* by member; NULL: zeros */
    enum sum_how how;                      /* where fp32 is kept */
    _Atomic bool failed;
};

/* Elements [at, at + n), in fp32 to |to|. */
static void sum_wide(const struct sums *u, uint64_t at, uint64_t n, enum sum_how how, float *to) {
    const struct kernels *k = u->s->o.kernels;
    const struct comm_sum *w = u->w;
    const void *from[LAYOUT_MAX_RANKS] = {0};
    uint64_t element = w->from == DTYPE_FP32 ? sizeof(float) : sizeof(uint16_t);
    for (unsigned i = 0; i < u->group->count; i++) {
        from[i] = u->from[i] ? u->from[i] + at * element : (const uint8_t *)zeros;
    }
    if (w->from == DTYPE_FP32) {
        k->sum(n, u->group->count, (const float *const *)from, how, to);
    } else {
        k->sum_bf16(n, u->group->count, (const uint16_t *const *)from, how, to);
    }
}

static void sum_rounded(const struct sums *u, uint64_t at, uint64_t n) {
    const struct kernels *k = u->s->o.kernels;
    uint16_t *kept = u->w->to;
    float wide[TILE];
    for (uint64_t i = at; i < at + n; i += TILE) {
        uint64_t length = at + n - i < TILE ? at + n - i : TILE;
        if (u->w->add) {
            k->from_bf16(length, kept + i, wide);
        }
        sum_wide(u, i, length, u->w->add ? SUM_ADD : SUM_SET, wide);
        k->to_bf16(length, wide, kept + i);
    }
}

static void sum_chunk(struct sums *u, uint64_t at, uint64_t n) {
    uint64_t bytes = n * (u->w->from == DTYPE_FP32 ? sizeof(float) : sizeof(uint16_t));
    if (u->w->kept == DTYPE_FP32) {
        sum_wide(u, at, n, u->how, (float *)u->w->to + at);
    } else {
        sum_rounded(u, at, n);
    }
    for (unsigned i = 0; i < u->group->count; i++) {
        unsigned rank = group_at(u->group, i);
        if (rank != u->s->o.rank && u->from[i]) {
            count(u->s, rank, u->kind, n, bytes);
        }
    }
}

static void sum_share(void *ctx, unsigned thread, unsigned threads) {
    struct sums *u = ctx;
    uint64_t from, to;
    pool_share(u->w->count, GRAIN, thread, threads, &from, &to);
    for (uint64_t at = from; at < to; at += CHUNK) {
        if (is_aborted(u->s)) {
            atomic_store(&u->failed, true);
            return;
        }
        sum_chunk(u, at, to - at < CHUNK ? to - at : CHUNK);
    }
}

static bool run_sums(struct sums *u) {
    u->how = u->w->add ? SUM_ADD : u->w->count > STREAM ? SUM_STREAM : SUM_SET;
    launch(u->s, u->w->count, sum_share, u);
    return !atomic_load(&u->failed);
}

bool shm_reduce_scatter(struct comm *c, const struct comm_tag *tag, const struct comm_sum *w) {
    struct shm *s = (struct shm *)c;
    struct sums u = {.s = s, .w = w, .group = &s->groups[COMM_INNER], .kind = COMM_REDUCE_SCATTER};
    uint64_t stride = shm_grad_stride(s), element = dtype_bytes(w->from);
    for (unsigned i = 0; i < u.group->count; i++) {
        unsigned rank = group_at(u.group, i);
        bool own = rank == s->o.rank;
        uint32_t slot = own ? tag->slot : s->peers[rank].slot;
        const uint8_t *base = own ? s->grads : s->peers[rank].grads.base;
        u.from[i] = slot == COMM_ABSENT ? NULL : base + slot * stride + w->at * element;
    }
    return run_sums(&u);
}

bool shm_sum(struct comm *c, enum comm_kind kind, const struct comm_sum *w) {
    struct shm *s = (struct shm *)c;
    struct sums u = {.s = s, .w = w, .group = &s->groups[COMM_OUTER], .kind = kind};
    uint64_t at = w->at * dtype_bytes(w->from);
    assert(w->from == w->kept && !w->add);
    for (unsigned i = 0; i < u.group->count; i++) {
        u.from[i] = memory_of(s, group_at(u.group, i), COMM_KEPT) + at;
    }
    return run_sums(&u);
}
