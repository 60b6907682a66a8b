/* The engine's inside, shared by its files. Who may touch what:
 *   under |lock|: everything in the second half of struct engine;
 *   the worker, between taking an operation and finishing it: the buffers that the operation names;
 *   fixed after engine_new: the first half.
 */
#ifndef ZD_ENGINE_INNER_H
#define ZD_ENGINE_INNER_H

#include <pthread.h>

#include "comm/shm.h"
#include "engine/engine.h"
#include "engine/leases.h"
#include "engine/update.h"

struct op;

/* What the worker does: a kind of operation is a row of the table in worker.c. */
struct op_kind {
    bool of_try;                                    /* belongs to a try: void when that is */
    bool (*next)(struct engine *e, struct op *o);   /* locked: is one ready? take it */
    void (*run)(struct engine *e, struct op *o);    /* not locked */
    void (*finish)(struct engine *e, struct op *o); /* locked; not called for a void try's */
    uint64_t *(*clock)(struct engine *e);           /* its time is added there; NULL: nowhere */
};

struct op {
    const struct op_kind *kind;
    uint64_t try; /* engine's count of tries when it was taken */
    size_t unit;
    uint32_t slot; /* gather: the lease's; otherwise the gradient slot */
    struct comm_tag tag;
    uint64_t step;
    bool add, norm, commit;
    struct step_scalars scalars;
    /* results */
    bool ok;
    double sum_squares;
    uint64_t hash;
};

/* The head of the state arena, for who adopts it. */
struct state_header {
    uint32_t magic, version;
    uint32_t rank, world;
    uint64_t layout; /* control_fingerprint */
    uint32_t threads, tile;
    uint64_t units_at, progress_at, scratch_at, records_at, records_bytes;
    uint64_t master_at, m_at, v_at, kept_at, shard_at; /* bytes from here; shard_at 0: none */
    uint32_t crc;                                      /* of all before */
};

enum { STATE_MAGIC = 0x5A445354, STATE_VERSION = 1 };

/* Of one unit, in the state arena. */
struct unit_state {
    _Atomic uint64_t version; /* the last step that is applied whole */
    struct fence kept;        /* of which try its kept gradients are ... */
    uint64_t kept_count;      /* ... and how many micro-batches are summed in them */
};

enum { ARENA_CONTROL, ARENA_STATE, ARENA_PARAMS, ARENA_GRADS, ARENAS };

struct memory_map {
    struct arena arenas[ARENAS];
    struct state_header *header;
    struct unit_state *units;
    struct progress *progress;
    float *scratch, *master, *m, *v, *kept;
    uint8_t *shard;         /* zero3: what gathers read: bf16, or the master; NULL otherwise */
    uint8_t *params;        /* gather slots, or the replica */
    uint64_t params_stride; /* bytes of a gather slot */
    void *records;
    struct state_header places;                          /* offsets, before there is memory */
    int state_fds[ENGINE_STATE_FDS], grad_fd, params_fd; /* read-only; -1: none */
};

/* One try. */
struct attempt {
    bool open, entered;
    struct fence fence;
    uint32_t asked, done;    /* reduces (loads): the trainer's calls; carried out */
    uint32_t summed, shared; /* ddp: units through the two halves of the all-reduce */
    uint32_t granted, told;  /* gradient slots: free; reported */
    bool reduced, reduced_told;
    double sum_squares;
};

/* The decision that is being applied. */
struct applying {
    bool active, commit;
    uint64_t step;
    struct step_scalars scalars;
    size_t updated, gathered; /* how many units, in |order|, through update and re-gather */
};

struct engine {
    const struct layout *l;
    const struct model *model;
    struct engine_options o;
    struct engine_callbacks cb;
    void *ctx;
    struct device *device;
    struct comm *comm;
    struct memory_map mem;
    struct places places;
    struct update update;
    struct course gathers, evals, reduces;
    uint32_t *order; /* units by their first gather: the order of updates; owned */
    size_t units;
    size_t element; /* bytes of a gathered parameter */
    double *blocks; /* the worker's: sums of a norm's blocks; owned */
    pthread_t worker;
    bool runs; /* the worker was started */

    pthread_mutex_t lock;
    pthread_cond_t between; /* the worker is between operations */
    _Atomic uint32_t work;  /* raised when something may have become ready here */
    bool stop, hold, ran, progress;
    unsigned paused;
    const struct op *current; /* what the worker is doing; NULL: nothing */
    uint64_t tries;           /* opened or voided: tells an old operation from a new one */
    uint64_t attachment;
    bool attached;
    struct attempt t;
    struct leases leases;
    struct applying a;
    uint64_t *versions;  /* published ones, owned; UINT64_MAX: none */
    uint64_t *whole;     /* zero2, ddp: version that the unit's replica has everywhere; owned */
    double *sums;        /* per unit: sum of squares of this rank's part; owned */
    uint64_t *checksums; /* per unit, step 0; owned */
    bool hash_wanted, hash_known;
    uint64_t hash_sum, hash_version;
    uint64_t gather_count, ahead_count, eval_count;
    uint64_t gather_ns, reduce_ns, update_ns;
};

/* memory.c: arenas and what is in them. */
int memory_init(struct engine *e, struct err *err);
void memory_free(struct engine *e);
int memory_new_grads(struct engine *e, struct err *err);
void memory_free_grads(struct engine *e);
uint64_t memory_lease_offset(const struct engine *e, const struct lease_slot *s, uint32_t slot);
float *memory_grad_slot(const struct engine *e, uint32_t slot);

/* worker.c */
int worker_start(struct engine *e, struct err *err);
void worker_stop(struct engine *e);
void worker_pause(struct engine *e);  /* locked; returns when no operation runs, and none will */
void worker_resume(struct engine *e); /* locked */
void worker_poke(struct engine *e);   /* something may have become ready */
/* Runs part(ctx, thread, threads) over n elements' threads. */
void worker_launch(struct engine *e, uint64_t n,
                   void (*part)(void *ctx, unsigned thread, unsigned threads), void *ctx);

/* The kinds of operations, one file each noun. */
extern const struct op_kind op_gather, op_load, op_reduce, op_sum, op_share, op_regather, op_update,
    op_hash;

/* reduce.c */
uint32_t reduce_total(const struct engine *e); /* reduces (loads) of the try */
bool reduce_grant(struct engine *e);           /* locked: frees slots; true: news to report */
void reduce_part_norm(struct engine *e, struct op *o);

/* update.c's user: apply.c */
bool apply_is_done(const struct engine *e);

/* events.c */
bool events_pending(const struct engine *e); /* locked */

#endif
