/* Mapping of peers' memory: looked at before anything of it is used, and only what this rank reads.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/shm_inner.h"

static bool is_member(const struct group *g, unsigned rank) {
    return rank >= g->first && (rank - g->first) % g->stride == 0 &&
           (rank - g->first) / g->stride < g->count;
}

enum comm_group shm_group_of(const struct shm *s, unsigned rank) {
    for (int g = 0; g < COMM_GROUPS; g++) {
        if (is_member(&s->groups[g], rank)) {
            return (enum comm_group)g;
        }
    }
    return COMM_GROUPS;
}

/* Is |memory| of a peer in |group| read? */
static bool is_wanted(const struct shm *s, enum comm_group group, enum comm_memory memory) {
    const struct layout *l = s->o.layout;
    if (!s->o.memory[memory].base) {
        return false;
    }
    switch (memory) {
    case COMM_KEPT:
        return group == COMM_OUTER;
    case COMM_REPLICA: /* re-gathered after the update */
        return group == (l->optimizer_split ? COMM_OUTER : COMM_INNER);
    default:
        return group == COMM_INNER;
    }
}

static struct mapping *mapping_of(struct shm_peer *p, enum comm_memory memory) {
    return memory == COMM_REPLICA ? &p->params : &p->state;
}

static int check_memory(const struct shm *s, unsigned rank, struct shm_peer *p,
                        enum comm_memory memory, struct err *e) {
    static const char *const names[COMM_MEMORIES] = {"masters", "parameters", "kept gradients",
                                                     "parameters"};
    const struct control_header *h = (const void *)p->page.base;
    uint64_t at = h->offsets[memory], need = s->o.memory[memory].bytes;
    uint64_t have = mapping_of(p, memory)->bytes;
    if (at % ARENA_ALIGN || at > have || need > have - at) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "rank %u's %s: %" PRIu64 " bytes at offset %" PRIu64
                       " do not lie in its memory of %" PRIu64,
                       rank, names[memory], need, at, have);
    }
    p->offsets[memory] = at;
    return 0;
}

/* Takes fds[which]; set to -1. */
static int import(const struct shm *s, unsigned rank, int fds[SHM_FDS], int which, uint64_t least,
                  struct mapping *m, struct err *e) {
    static const char *const names[SHM_FDS] = {"control page", "state", "parameters"};
    char what[64];
    int fd = fds[which];
    (void)snprintf(what, sizeof what, "rank %u's %s", rank, names[which]);
    fds[which] = -1;
    return s->o.device->ops->import(s->o.device, fd, least, what, m, e);
}

static int map(const struct shm *s, unsigned rank, int fds[SHM_FDS], struct shm_peer *p,
               struct err *e) {
    enum comm_group group = shm_group_of(s, rank);
    uint64_t least = control_bytes(s->o.layout, s->o.grad_slots);
    int rc = import(s, rank, fds, SHM_PAGE, least, &p->page, e);
    if (!rc) {
        rc = control_check(p->page.base, s->o.page, rank, e);
    }
    for (int m = 0; m < COMM_MEMORIES && !rc; m++) {
        if (!is_wanted(s, group, (enum comm_memory)m)) {
            continue;
        }
        struct mapping *to = mapping_of(p, (enum comm_memory)m);
        if (!to->base) {
            int which = m == COMM_REPLICA ? SHM_PARAMS : SHM_STATE;
            rc = import(s, rank, fds, which, s->o.memory[m].bytes, to, e);
        }
        if (!rc) {
            rc = check_memory(s, rank, p, (enum comm_memory)m, e);
        }
    }
    return rc;
}

static void drop(struct device *d, struct shm_peer *p) {
    d->ops->drop(d, &p->page);
    d->ops->drop(d, &p->state);
    d->ops->drop(d, &p->params);
}

static void close_all(const int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

int shm_peer_state(struct comm *c, unsigned rank, const int fds[SHM_FDS], struct err *e) {
    struct shm *s = (struct shm *)c;
    struct shm_peer fresh = {.slot = COMM_ABSENT}, *p = &s->peers[rank];
    int left[SHM_FDS], rc = 0;
    assert(rank < s->o.layout->world && rank != s->o.rank);
    memcpy(left, fds, sizeof left);
    if (shm_group_of(s, rank) != COMM_GROUPS) {
        rc = map(s, rank, left, &fresh, e);
        if (rc) {
            drop(s->o.device, &fresh);
        } else {
            drop(s->o.device, p);
            fresh.grads = p->grads;
            fresh.attachment = p->attachment;
            *p = fresh;
        }
    }
    close_all(left, SHM_FDS);
    return rc;
}

int shm_peer_grads(struct comm *c, unsigned rank, uint64_t attachment, int fd, struct err *e) {
    struct shm *s = (struct shm *)c;
    struct device *d = s->o.device;
    struct mapping grads;
    char what[64];
    assert(rank < s->o.layout->world && rank != s->o.rank);
    if (shm_group_of(s, rank) != COMM_INNER) {
        close_all(&fd, 1);
        return 0;
    }
    (void)snprintf(what, sizeof what, "rank %u's gradient slots", rank);
    int rc = d->ops->import(d, fd, s->o.grad_slots * shm_grad_stride(s), what, &grads, e);
    if (rc) {
        return rc;
    }
    struct shm_peer *p = &s->peers[rank];
    d->ops->drop(d, &p->grads);
    p->grads = grads;
    p->attachment = attachment;
    return 0;
}

void shm_drop_peers(struct shm *s) {
    for (unsigned r = 0; r < s->o.layout->world; r++) {
        drop(s->o.device, &s->peers[r]);
        s->o.device->ops->drop(s->o.device, &s->peers[r].grads);
    }
}
