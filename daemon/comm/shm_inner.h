/* Shared by shm.c (publishing, readiness), shm_peers.c (mapping) and shm_run.c (moving bytes). */
#ifndef ZD_COMM_SHM_INNER_H
#define ZD_COMM_SHM_INNER_H

#include "comm/control.h"
#include "comm/shm.h"
#include "comm/wait.h"

struct shm_peer {
    struct mapping page, state, params, grads; /* base NULL: not mapped */
    uint64_t offsets[COMM_MEMORIES];           /* checked copies of what its page said */
    uint64_t attachment;                       /* of grads */
    uint32_t slot;                             /* of its tag, as can_reduce found it */
};

struct shm {
    struct comm comm; /* first: the ops get a pointer to it */
    struct shm_options o;
    struct group groups[COMM_GROUPS];
    const uint8_t *grads; /* own slots */
    _Atomic bool aborted;
    struct wait_word seen[WAIT_MAX]; /* as last looked at; the first is the caller's */
    size_t seen_count;
    struct shm_peer peers[LAYOUT_MAX_RANKS]; /* the own one is unused */
};

bool shm_all_gather(struct comm *c, const struct comm_copy *w);
bool shm_reduce_scatter(struct comm *c, const struct comm_tag *tag, const struct comm_sum *w);
bool shm_sum(struct comm *c, enum comm_kind kind, const struct comm_sum *w);

/* The group in which |rank|, another one, is; COMM_GROUPS: in neither. */
enum comm_group shm_group_of(const struct shm *s, unsigned rank);
void shm_drop_peers(struct shm *s);

/* Bytes of one gradient slot. */
static inline uint64_t shm_grad_stride(const struct shm *s) {
    const struct layout *l = s->o.layout;
    return l->largest_grad_elements * dtype_bytes(l->model->wire_dtype);
}

static inline void *shm_page(const struct shm_peer *p) {
    return (void *)(uintptr_t)p->page.base;
}

#endif
