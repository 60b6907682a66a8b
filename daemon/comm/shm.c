#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void put_tag(struct comm *c, uint32_t slot, const struct comm_tag *t) {
    struct shm *s = shm_of(c);
    const uint64_t words[] = {t->fence.generation, t->fence.step, t->fence.attempt, t->attachment,
                              t->sequence,         t->unit,       t->elements};
    control_write(control_tag(s->o.page, slot), words, sizeof words / sizeof *words);
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

/* ---- readiness: a question to each peer ---- */

static bool has_version(const struct shm_peer *p, size_t unit, uint64_t version) {
    _Atomic uint64_t *v = &control_unit(shm_page(p), unit)->version;
    return atomic_load_explicit(v, memory_order_acquire) == version;
}

static bool has_fence(struct control_record *r, const struct fence *f) {
    uint64_t w[CONTROL_WORDS];
    return control_read(r, w) && w[0] == f->generation && w[1] == f->step && w[2] == f->attempt;
}

static bool has_tag(const struct shm_peer *p, uint32_t slot, const struct comm_tag *t) {
    uint64_t w[CONTROL_WORDS];
    return p->grads.base && control_read(control_tag(shm_page(p), slot), w) &&
           w[0] == t->fence.generation && w[1] == t->fence.step && w[2] == t->fence.attempt &&
           w[3] == p->attachment && w[4] == t->sequence && w[5] == t->unit && w[6] == t->elements;
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

static bool can_gather(struct comm *c, size_t unit, uint64_t version) {
    const struct shm *s = shm_of(c);
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        const struct shm_peer *p = &s->peers[r];
        if (r != s->o.rank && !(p->page.base && has_version(p, unit, version))) {
            return false;
        }
    }
    return true;
}

static bool can_reduce(struct comm *c, uint32_t slot, const struct comm_tag *tag) {
    const struct shm *s = shm_of(c);
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        const struct shm_peer *p = &s->peers[r];
        if (r != s->o.rank && !(p->page.base && has_tag(p, slot, tag))) {
            return false;
        }
    }
    return true;
}

static bool can_sum(struct comm *c, size_t unit, const struct fence *f) {
    const struct shm *s = shm_of(c);
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        const struct shm_peer *p = &s->peers[r];
        if (r != s->o.rank &&
            !(p->page.base && has_fence(&control_unit(shm_page(p), unit)->kept, f))) {
            return false;
        }
    }
    return true;
}

static bool can_share(struct comm *c, size_t unit, const struct fence *f) {
    const struct shm *s = shm_of(c);
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        const struct shm_peer *p = &s->peers[r];
        if (r != s->o.rank &&
            !(p->page.base && has_fence(&control_unit(shm_page(p), unit)->reduced, f))) {
            return false;
        }
    }
    return true;
}

static bool slot_is_read(struct comm *c, uint32_t slot, const struct fence *f, uint32_t sequence) {
    const struct shm *s = shm_of(c);
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        const struct shm_peer *p = &s->peers[r];
        if (r != s->o.rank && !(p->page.base && has_passed(p, s->o.rank, slot, f, sequence))) {
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

static void sent(struct comm *c, struct traffic *t) {
    const struct shm *s = shm_of(c);
    uint64_t bytes[READ_KINDS] = {0}, elements[READ_KINDS] = {0};
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        if (!s->peers[r].page.base) {
            continue;
        }
        struct control_reads *reads = control_reads(shm_page(&s->peers[r]), s->o.rank);
        for (int k = 0; k < READ_KINDS; k++) {
            bytes[k] += atomic_load_explicit(&reads->bytes[k], memory_order_relaxed);
            elements[k] += atomic_load_explicit(&reads->elements[k], memory_order_relaxed);
        }
    }
    *t = (struct traffic){
        .all_gather_bytes = bytes[READ_ALL_GATHER],
        .all_gather_elements = elements[READ_ALL_GATHER],
        .reduce_scatter_bytes = bytes[READ_REDUCE_SCATTER],
        .reduce_scatter_elements = elements[READ_REDUCE_SCATTER],
        .all_reduce_bytes = bytes[READ_ALL_REDUCE],
        .all_reduce_elements = elements[READ_ALL_REDUCE],
    };
}

/* ---- peers ---- */

/* Bytes that peers read from a rank's parameter memory, counted from its start. */
static uint64_t source_bytes(const struct layout *l) {
    if (!l->grads_sharded) {
        return l->padded * sizeof(float); /* kept gradients */
    }
    return (l->params_sharded ? l->part : l->padded) * dtype_bytes(l->model->param_dtype);
}

static int check_source(const struct shm *s, unsigned rank, const struct mapping *page,
                        const struct mapping *source, uint64_t *offset, struct err *e) {
    const struct control_header *h = (const void *)page->base;
    uint64_t at = h->source_offset, need = source_bytes(s->o.layout);
    if (at % ARENA_ALIGN || at > source->bytes || need > source->bytes - at) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "rank %u's parameters: %" PRIu64 " bytes at offset %" PRIu64
                       " do not lie in its memory of %" PRIu64,
                       rank, need, at, source->bytes);
    }
    *offset = at;
    return 0;
}

int shm_peer_state(struct comm *c, unsigned rank, int page_fd, int source_fd, struct err *e) {
    struct shm *s = shm_of(c);
    struct device *d = s->o.device;
    struct mapping page = {0}, source = {0};
    uint64_t offset = 0;
    char what[64];
    assert(rank < s->o.layout->world && rank != s->o.rank);
    (void)snprintf(what, sizeof what, "rank %u's control page", rank);
    int rc =
        d->ops->import(d, page_fd, control_bytes(s->o.layout, s->o.grad_slots), what, &page, e);
    if (rc) {
        close(source_fd);
        return rc;
    }
    (void)snprintf(what, sizeof what, "rank %u's parameters", rank);
    rc = d->ops->import(d, source_fd, source_bytes(s->o.layout), what, &source, e);
    if (!rc) {
        rc = control_check(page.base, s->o.page, rank, e);
    }
    if (!rc) {
        rc = check_source(s, rank, &page, &source, &offset, e);
    }
    if (rc) {
        d->ops->drop(d, &page);
        d->ops->drop(d, &source);
        return rc;
    }
    struct shm_peer *p = &s->peers[rank];
    d->ops->drop(d, &p->page);
    d->ops->drop(d, &p->source);
    p->page = page;
    p->source = source;
    p->source_offset = offset;
    return 0;
}

int shm_peer_grads(struct comm *c, unsigned rank, uint64_t attachment, int fd, struct err *e) {
    struct shm *s = shm_of(c);
    struct device *d = s->o.device;
    struct mapping grads;
    char what[64];
    assert(rank < s->o.layout->world && rank != s->o.rank);
    (void)snprintf(what, sizeof what, "rank %u's gradient slots", rank);
    uint64_t need = s->o.grad_slots * s->o.layout->largest * sizeof(float);
    int rc = d->ops->import(d, fd, need, what, &grads, e);
    if (rc) {
        return rc;
    }
    struct shm_peer *p = &s->peers[rank];
    d->ops->drop(d, &p->grads);
    p->grads = grads;
    p->attachment = attachment;
    return 0;
}

void shm_own_grads(struct comm *c, const uint8_t *base) {
    shm_of(c)->grads = base;
}

static void del(struct comm *c) {
    struct shm *s = shm_of(c);
    struct device *d = s->o.device;
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        d->ops->drop(d, &s->peers[r].page);
        d->ops->drop(d, &s->peers[r].source);
        d->ops->drop(d, &s->peers[r].grads);
    }
    free(s);
}

static const struct comm_ops shm_ops = {
    .put_version = put_version,
    .put_tag = put_tag,
    .put_kept = put_kept,
    .can_gather = can_gather,
    .can_reduce = can_reduce,
    .can_sum = can_sum,
    .can_share = can_share,
    .slot_is_read = slot_is_read,
    .all_gather = shm_all_gather,
    .reduce_scatter = shm_reduce_scatter,
    .sum_part = shm_sum_part,
    .share_parts = shm_share_parts,
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
    control_init(o->page, o->layout, o->rank, o->grad_slots, o->source_offset);
    return &s->comm;
}
