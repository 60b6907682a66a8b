#include "comm/control.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "comm/wait.h"

uint64_t control_fingerprint(const struct layout *l) {
    const struct model *m = l->model;
    const uint64_t scalars[] = {l->world,
                                l->inner,
                                (uint64_t)m->strategy,
                                (uint64_t)m->wire_dtype,
                                (uint64_t)m->kept_dtype,
                                (uint64_t)m->optimizer.kind,
                                optimizer_states(&m->optimizer),
                                m->micro_batches,
                                m->unit_count,
                                l->range_count};
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
        h = mix64(h ^ scalars[i]);
    }
    for (size_t u = 0; u < m->unit_count; u++) {
        h = mix64(h ^ m->units[u].tensors);
        h = mix64(h ^ m->units[u].contributions);
    }
    for (size_t i = 0; i < l->range_count; i++) {
        const struct range *r = &l->ranges[i];
        h = mix64(h ^ r->unit);
        h = mix64(h ^ ((uint64_t)r->dtype << 1 | r->frozen));
        h = mix64(h ^ r->padded);
    }
    for (size_t t = 0; t < m->tensor_count; t++) {
        h = mix64(h ^ m->tensors[t].elements);
        h = mix64(h ^ l->tensors[t].range);
    }
    return h;
}

static size_t records(const struct control_header *h) {
    return h->grad_slots + (size_t)h->world * h->grad_slots;
}

static struct control_record *first_record(void *page) {
    return (struct control_record *)((struct control_header *)page + 1);
}

struct control_record *control_tag(void *page, uint32_t slot) {
    return first_record(page) + slot;
}

struct control_record *control_mark(void *page, unsigned rank, uint32_t slot) {
    const struct control_header *h = page;
    return first_record(page) + h->grad_slots + (size_t)rank * h->grad_slots + slot;
}

struct control_reads *control_reads(void *page, unsigned rank) {
    return (struct control_reads *)(first_record(page) + records(page)) + rank;
}

struct control_unit *control_unit(void *page, size_t unit) {
    const struct control_header *h = page;
    return (struct control_unit *)control_reads(page, h->world) + unit;
}

uint64_t control_bytes(const struct layout *l, uint32_t grad_slots) {
    return sizeof(struct control_header) +
           ((uint64_t)l->world + 1) * grad_slots * sizeof(struct control_record) +
           l->world * sizeof(struct control_reads) +
           l->model->unit_count * sizeof(struct control_unit);
}

void control_init(void *page, const struct layout *l, unsigned rank, uint32_t grad_slots,
                  const uint64_t offsets[COMM_MEMORIES]) {
    struct control_header *h = page;
    h->magic = CONTROL_MAGIC;
    h->version = CONTROL_VERSION;
    h->rank = rank;
    h->world = l->world;
    h->layout = control_fingerprint(l);
    h->grad_slots = grad_slots;
    h->units = (uint32_t)l->model->unit_count;
    memcpy(h->offsets, offsets, sizeof h->offsets);
    for (size_t u = 0; u < h->units; u++) {
        atomic_store(&control_unit(page, u)->version, COMM_NO_VERSION);
    }
}

int control_check(const void *page, const void *own, unsigned rank, struct err *e) {
    const struct control_header *p = page, *o = own;
    if (p->magic != CONTROL_MAGIC) {
        return err_set(e, ST_DATA_LOSS,
                       "rank %u's control page: starts with %#" PRIx32 ", not with %#x", rank,
                       p->magic, (unsigned)CONTROL_MAGIC);
    }
    if (p->version != CONTROL_VERSION) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "rank %u's control page: version %" PRIu32 ", this daemon's is %d", rank,
                       p->version, CONTROL_VERSION);
    }
    if (p->rank != rank || p->world != o->world) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "rank %u's control page: is of rank %" PRIu32 " of %" PRIu32
                       ", must be of rank %u of %" PRIu32,
                       rank, p->rank, p->world, rank, o->world);
    }
    if (p->grad_slots != o->grad_slots) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "rank %u's control page: %" PRIu32 " gradient slots, here are %" PRIu32,
                       rank, p->grad_slots, o->grad_slots);
    }
    if (p->layout != o->layout || p->units != o->units) {
        return err_set(e, ST_INVALID_ARGUMENT, "rank %u's control page: is of another layout",
                       rank);
    }
    return 0;
}

/* No fences, for ThreadSanitizer knows none: a reader that sees a new word through its acquire also
 * sees the odd turn before it, and so does not return a mixture. */
void control_write(struct control_record *r, const uint64_t *words, size_t count) {
    assert(count <= CONTROL_WORDS);
    uint32_t turn = atomic_load_explicit(&r->turn, memory_order_relaxed);
    atomic_store_explicit(&r->turn, turn + 1, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        atomic_store_explicit(&r->word[i], words[i], memory_order_release);
    }
    atomic_store_explicit(&r->turn, turn + 2, memory_order_release);
}

bool control_read(struct control_record *r, uint64_t words[CONTROL_WORDS]) {
    uint32_t before = atomic_load_explicit(&r->turn, memory_order_acquire);
    for (size_t i = 0; i < CONTROL_WORDS; i++) {
        words[i] = atomic_load_explicit(&r->word[i], memory_order_acquire);
    }
    uint32_t after = atomic_load_explicit(&r->turn, memory_order_relaxed);
    return before == after && before % 2 == 0;
}

void control_publish(void *page) {
    struct control_header *h = page;
    atomic_fetch_add_explicit(&h->changes, 1, memory_order_release);
    wait_wake(&h->changes, true);
}
