/* Shared by shm.c (peers, publishing, readiness) and shm_run.c (moving bytes). */
#ifndef ZD_COMM_SHM_INNER_H
#define ZD_COMM_SHM_INNER_H

#include "comm/control.h"
#include "comm/shm.h"
#include "comm/wait.h"

struct shm_peer {
    struct mapping page, source, grads; /* base NULL: not mapped */
    uint64_t source_offset;             /* checked copy of what its page said */
    uint64_t attachment;                /* of grads */
    uint32_t changes;                   /* as last looked at */
};

struct shm {
    struct comm comm; /* first: the ops get a pointer to it */
    struct shm_options o;
    const uint8_t *grads; /* own slots */
    _Atomic bool aborted;
    struct wait_word seen[WAIT_MAX]; /* as last looked at; the first is the caller's */
    size_t seen_count;
    struct shm_peer peers[LAYOUT_MAX_RANKS]; /* the own one is unused */
};

bool shm_all_gather(struct comm *c, size_t unit, void *to);
bool shm_reduce_scatter(struct comm *c, uint32_t slot, const struct comm_tag *tag, bool add,
                        float *to);
bool shm_sum_part(struct comm *c, size_t unit, const struct fence *f);
bool shm_share_parts(struct comm *c, size_t unit);

static inline void *shm_page(const struct shm_peer *p) {
    return (void *)(uintptr_t)p->page.base;
}

#endif
