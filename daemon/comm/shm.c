#include <assert.h>
#include <stdlib.h>

#include "base/buf.h"
#include "comm/shm_inner.h"

static struct shm *shm_of(struct comm *c) {
    return (struct shm *)c;
}

/* ---- publishing ---- */

static void put_version(struct comm *c, size_t unit, uint64_t version) {
    struct shm *s = shm_of(c);
    atomic_store_explicit(&control_unit(s->o.page, unit)->version, version, memory_order_release);
    control_publish(s->o.page);
}

/* Sequence and unit in one word: a record is one cache line. */
static uint64_t what_of(const struct comm_tag *t) {
    return (uint64_t)t->sequence << 32 | t->unit;
}

static void put_tag(struct comm *c, const struct comm_tag *t) {
    struct shm *s = shm_of(c);
    const uint64_t words[] = {t->fence.generation, t->fence.step, t->fence.attempt, t->attachment,
                              t->elements,         what_of(t),    t->slot};
    control_write(control_tag(s->o.page, t->sequence % s->o.grad_slots), words,
                  sizeof words / sizeof *words);
    control_publish(s->o.page);
}

static void put_mark(struct comm *c, const struct comm_tag *t) {
    struct shm *s = shm_of(c);
    const struct group *g = &s->groups[COMM_INNER];
    const uint64_t words[] = {t->fence.generation, t->fence.step, t->fence.attempt, t->sequence};
    for (unsigned i = 0; i < g->count; i++) {
        uint32_t slot = t->sequence % s->o.grad_slots;
        control_write(control_mark(s->o.page, group_at(g, i), slot), words,
                      sizeof words / sizeof *words);
    }
    control_publish(s->o.page);
}

static void write_fence(struct control_record *r, const struct fence *f) {
    const uint64_t words[] = {f->generation, f->step, f->attempt};
    control_write(r, words, sizeof words / sizeof *words);
}

static void put_kept(struct comm *c, size_t unit, const struct fence *f) {
    struct shm *s = shm_of(c);
    write_fence(&control_unit(s->o.page, unit)->kept, f);
    control_publish(s->o.page);
}

static void put_reduced(struct comm *c, size_t unit, const struct fence *f) {
    struct shm *s = shm_of(c);
    write_fence(&control_unit(s->o.page, unit)->reduced, f);
    control_publish(s->o.page);
}

/* ---- readiness: a question to each peer ---- */

static bool has_version(const struct shm_peer *p, size_t unit, uint64_t version) {
    _Atomic uint64_t *v = &control_unit(shm_page(p), unit)->version;
    return atomic_load_explicit(v, memory_order_acquire) == version;
}

static bool has_fence(struct control_record *r, const struct fence *f) {
    uint64_t w[CONTROL_WORDS];
    return control_read(r, w) && w[0] == f->generation && w[1] == f->step && w[2] == f->attempt;
}

/* Notes the slot that the tag names, for the sum that follows. */
static bool has_tag(const struct shm *s, struct shm_peer *p, const struct comm_tag *t) {
    uint64_t w[CONTROL_WORDS];
    bool same = p->grads.base &&
                control_read(control_tag(shm_page(p), t->sequence % s->o.grad_slots), w) &&
                w[0] == t->fence.generation && w[1] == t->fence.step && w[2] == t->fence.attempt &&
                w[3] == p->attachment && w[4] == t->elements && w[5] == what_of(t) &&
                (w[6] < s->o.grad_slots || w[6] == COMM_ABSENT);
    if (same) {
        p->slot = (uint32_t)w[6];
    }
    return same;
}

/* A mark is at or after (f, sequence): the fence belongs to it, or a late mark of a void try would
 * pass for one of this try. */
static bool has_passed(const struct shm_peer *p, unsigned owner, uint32_t slot,
                       const struct fence *f, uint32_t sequence) {
    uint64_t w[CONTROL_WORDS];
    if (!control_read(control_mark(shm_page(p), owner, slot), w)) {
        return false;
    }
    const struct fence mark = {w[0], w[1], w[2]};
    int order = fence_compare(&mark, f);
    return order > 0 || (order == 0 && w[3] >= sequence);
}

/* The |i|th member of a group; NULL: this rank itself, or, with |*mapped| false, one that is not
 * mapped. */
static struct shm_peer *peer_at(struct shm *s, enum comm_group group, unsigned i, bool *mapped) {
    unsigned rank = group_at(&s->groups[group], i);
    struct shm_peer *p = &s->peers[rank];
    *mapped = rank == s->o.rank || p->page.base;
    return rank != s->o.rank && p->page.base ? p : NULL;
}

static bool can_gather(struct comm *c, enum comm_group group, size_t unit, uint64_t version) {
    struct shm *s = shm_of(c);
    for (unsigned i = 0; i < s->groups[group].count; i++) {
        bool mapped;
        const struct shm_peer *p = peer_at(s, group, i, &mapped);
        if (!mapped || (p && !has_version(p, unit, version))) {
            return false;
        }
    }
    return true;
}

static bool can_reduce(struct comm *c, const struct comm_tag *tag) {
    struct shm *s = shm_of(c);
    for (unsigned i = 0; i < s->groups[COMM_INNER].count; i++) {
        bool mapped;
        struct shm_peer *p = peer_at(s, COMM_INNER, i, &mapped);
        if (!mapped || (p && !has_tag(s, p, tag))) {
            return false;
        }
    }
    return true;
}

static bool can_sum(struct comm *c, size_t unit, const struct fence *f) {
    struct shm *s = shm_of(c);
    for (unsigned i = 0; i < s->groups[COMM_OUTER].count; i++) {
        bool mapped;
        const struct shm_peer *p = peer_at(s, COMM_OUTER, i, &mapped);
        if (!mapped || (p && !has_fence(&control_unit(shm_page(p), unit)->kept, f))) {
            return false;
        }
    }
    return true;
}

static bool can_share(struct comm *c, size_t unit, const struct fence *f) {
    struct shm *s = shm_of(c);
    for (unsigned i = 0; i < s->groups[COMM_OUTER].count; i++) {
        bool mapped;
        const struct shm_peer *p = peer_at(s, COMM_OUTER, i, &mapped);
        if (!mapped || (p && !has_fence(&control_unit(shm_page(p), unit)->reduced, f))) {
            return false;
        }
    }
    return true;
}

static bool is_read(struct comm *c, const struct fence *f, uint32_t sequence) {
    struct shm *s = shm_of(c);
    uint32_t slot = sequence % s->o.grad_slots;
    for (unsigned i = 0; i < s->groups[COMM_INNER].count; i++) {
        bool mapped;
        const struct shm_peer *p = peer_at(s, COMM_INNER, i, &mapped);
        if (!mapped || (p && !has_passed(p, s->o.rank, slot, f, sequence))) {
            return false;
        }
    }
    return true;
}

/* ---- waiting ---- */

static void look(struct comm *c) {
    struct shm *s = shm_of(c);
    s->seen_count = 1;
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        if (s->peers[r].page.base) {
            struct control_header *h = shm_page(&s->peers[r]);
            uint32_t value = atomic_load_explicit(&h->changes, memory_order_acquire);
            s->seen[s->seen_count++] = (struct wait_word){&h->changes, value, true};
        }
    }
}

/* A peer's page may be replaced meanwhile; then the kernel finds no word there and returns, or the
 * caller changes |word|. */
static void wait_for_peers(struct comm *c, _Atomic uint32_t *word, uint32_t value) {
    struct shm *s = shm_of(c);
    s->seen[0] = (struct wait_word){word, value, false};
    wait_any(s->seen, s->seen_count);
}

static void abort_running(struct comm *c) {
    atomic_store(&shm_of(c)->aborted, true);
}
static void resume(struct comm *c) {
    atomic_store(&shm_of(c)->aborted, false);
}

/* ---- counting ---- */

static void add_reads(struct traffic *t, struct control_reads *r) {
    uint64_t bytes[COMM_KINDS], elements[COMM_KINDS];
    for (int k = 0; k < COMM_KINDS; k++) {
        bytes[k] = atomic_load_explicit(&r->bytes[k], memory_order_relaxed);
        elements[k] = atomic_load_explicit(&r->elements[k], memory_order_relaxed);
    }
    t->all_gather_bytes += bytes[COMM_ALL_GATHER];
    t->all_gather_elements += elements[COMM_ALL_GATHER];
    t->reduce_scatter_bytes += bytes[COMM_REDUCE_SCATTER];
    t->reduce_scatter_elements += elements[COMM_REDUCE_SCATTER];
    t->all_reduce_bytes += bytes[COMM_ALL_REDUCE];
    t->all_reduce_elements += elements[COMM_ALL_REDUCE];
}

static void sent(struct comm *c, struct traffic by[COMM_GROUPS]) {
    const struct shm *s = shm_of(c);
    for (int g = 0; g < COMM_GROUPS; g++) {
        by[g] = (struct traffic){0};
    }
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        if (s->peers[r].page.base) {
            add_reads(&by[shm_group_of(s, r)], control_reads(shm_page(&s->peers[r]), s->o.rank));
        }
    }
}

/* ---- life ---- */

void shm_own_grads(struct comm *c, const uint8_t *base) {
    shm_of(c)->grads = base;
}

static void del(struct comm *c) {
    shm_drop_peers(shm_of(c));
    free(c);
}

static const struct comm_ops shm_ops = {
    .put_version = put_version,
    .put_tag = put_tag,
    .put_mark = put_mark,
    .put_kept = put_kept,
    .put_reduced = put_reduced,
    .can_gather = can_gather,
    .can_reduce = can_reduce,
    .can_sum = can_sum,
    .can_share = can_share,
    .is_read = is_read,
    .all_gather = shm_all_gather,
    .reduce_scatter = shm_reduce_scatter,
    .sum = shm_sum,
    .abort = abort_running,
    .resume = resume,
    .look = look,
    .wait = wait_for_peers,
    .sent = sent,
    .del = del,
};

struct comm *shm_new(const struct shm_options *o) {
    assert(o->rank < o->layout->world);
    struct shm *s = mem_zeroed(1, sizeof *s);
    s->comm.ops = &shm_ops;
    s->o = *o;
    s->groups[COMM_INNER] = layout_inner(o->layout, o->rank);
    s->groups[COMM_OUTER] = layout_outer(o->layout, o->rank);
    uint64_t offsets[COMM_MEMORIES];
    for (int m = 0; m < COMM_MEMORIES; m++) {
        offsets[m] = o->memory[m].offset;
    }
    control_init(o->page, o->layout, o->rank, o->grad_slots, offsets);
    return &s->comm;
}
