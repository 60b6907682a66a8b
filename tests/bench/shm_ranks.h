/* Ranks of a job as threads of one process that map each other's memfds, as daemons do: what the
 * collectives of daemon/comm are measured with. One unit of the size asked for, and a small one, so
 * that rounds can take turns (collectives.c).
 */
#ifndef ZD_TESTS_BENCH_SHM_RANKS_H
#define ZD_TESTS_BENCH_SHM_RANKS_H

#include "comm/control.h"
#include "comm/shm.h"

enum { SHM_RANKS_MAX = 64 };

struct shm_rank {
    struct device *device;
    struct arena page, state, grads, slot; /* slot: what it gathers into */
    float *sum;                            /* of its share */
    _Atomic uint32_t word;                 /* never changes: a waiter needs one of its own */
    struct comm *comm;
};

struct shm_ranks {
    enum comm_kind kind;
    struct model model;
    struct layout layout;
    const struct kernels *k;
    uint64_t elements; /* of the unit, padded */
    struct shm_rank *ranks;
};

/* Memory of the kind's collectives (all-gather, reduce-scatter, all-reduce) of |bytes| a rank, all
 * mapped by all. Ends the program with a message when it cannot. */
void shm_ranks_up(struct shm_ranks *j, enum comm_kind kind, unsigned ranks, uint64_t bytes);
void shm_ranks_down(struct shm_ranks *j);

/* Elements of a rank's part of the unit. */
uint64_t shm_ranks_part(const struct shm_ranks *j);

/* Logs the error and ends the program, unless |rc| is 0. */
void bench_must(int rc, const struct err *e);

#endif
