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
    uint32_t slot; /* gather: the lease's */
    struct comm_tag tag;
    uint64_t step;
    bool last, commit; /* last: of its unit's reduces in the try */
    struct step_scalars scalars;
    /* results */
    bool ok;
    uint64_t hash;
};

/* The head of the state arena, for who adopts it. */
struct state_header {
    uint32_t magic, version;
    uint32_t rank, world;
    uint64_t layout; /* control_fingerprint */
    uint32_t threads, tile;
    uint64_t units_at, progress_at, scratch_at, records_at, records_bytes;
    uint64_t master_at, state_at[UPDATE_STATES], kept_at; /* bytes from here */
    uint64_t wide_at, shard_at;                           /* likewise; 0: none */
    uint32_t crc;                                         /* of all before */
};

enum { STATE_MAGIC = 0x5A445354, STATE_VERSION = 2 };

/* Of one unit, in the state arena. */
struct unit_state {
    _Atomic uint64_t version; /* the last step that is applied whole */
    struct fence kept;        /* of which try its kept gradients are ... */
    uint64_t kept_count;      /* ... and how many reduces are summed in them */
};

enum { ARENA_CONTROL, ARENA_STATE, ARENA_PARAMS, ARENA_GRADS, ARENAS };

struct memory_map {
    struct arena arenas[ARENAS];
    struct state_header *header;
    struct unit_state *units;
    struct progress *progress;
    float *scratch, *master, *state[UPDATE_STATES];
    float *wide;     /* NORM_BLOCK a thread, where kept gradients are bf16; NULL otherwise */
    void *kept;      /* of the model's kept dtype */
    uint8_t *shard;  /* sharded parameters that are not read from the master; NULL: replicated */
    uint8_t *params; /* gather slots, or the replica */
    uint64_t params_stride; /* bytes of a gather slot */
    uint64_t grads_stride;  /* bytes of a gradient slot */
    void *records;
    struct state_header places;                          /* offsets, before there is memory */
    int state_fds[ENGINE_STATE_FDS], grad_fd, params_fd; /* read-only; -1: none */
};

/* One try. Reduces are numbered by the plan (sequence); those that the trainer makes, and the
 * slots that it is granted for them, by themselves, since it may leave some of the plan's out. */
struct attempt {
    bool open, entered;
    struct fence fence;
    uint32_t asked, done;         /* sequences: said or left out by the trainer; carried out */
    uint32_t published;           /* sequences whose tag the peers can see */
    uint32_t granted, told;       /* slots: free; reported */
    uint32_t calls, tagged, used; /* the trainer's reduces (loads): made; published; carried out */
    uint32_t loaded;              /* step 0: units whose values are in place */
    uint32_t summed, shared;      /* units through the two halves of the outer sum */
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
    uint32_t *finals; /* the reduces of a pass that are their unit's last; owned */
    uint32_t final_count;
    uint32_t *ordinals; /* of each reduce of a pass: how many of its unit come before; owned */
    uint32_t *order;    /* units by their first gather: the order of updates; owned */
    uint32_t *loads;    /* units that the trainer loads, in order; owned */
    uint32_t load_count;
    bool *may_be_absent; /* per unit; owned */
    size_t units;
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
    uint32_t *sequences; /* by slot: the reduce whose gradients it has; owned */
    struct leases leases;
    struct applying a;
    uint64_t *versions;  /* published ones, owned; UINT64_MAX: none */
    uint64_t *whole;     /* per unit: version that its replica has everywhere; owned */
    double *sums;        /* per range: sum of squares of this rank's piece; owned */
    uint64_t *checksums; /* per unit, step 0; owned */
    bool hash_wanted, hash_known;
    uint64_t hash_sum, hash_version;
    uint64_t gather_count, ahead_count, eval_count;
    uint64_t gather_ns, reduce_ns, update_ns;
};

/* tables.c: what follows from the model alone. */
int tables_init(struct engine *e, struct err *err);
void tables_free(struct engine *e);

/* memory.c: arenas and what is in them. */
int memory_init(struct engine *e, struct err *err);
void memory_free(struct engine *e);
int memory_new_grads(struct engine *e, struct err *err);
void memory_free_grads(struct engine *e);
uint64_t memory_lease_offset(const struct engine *e, const struct lease_slot *s, uint32_t slot);
static inline uint8_t *memory_kept(const struct engine *e, size_t range) {
    return (uint8_t *)e->mem.kept +
           e->places.ranges[range].kept_at * dtype_bytes(e->model->kept_dtype);
}
static inline bool is_fp32(enum dtype d) {
    return d == DTYPE_FP32;
}

/* carve.c: how long everything is, before there is memory. Of |e| it needs the layout, model,
 * options and places. */
void carve(struct engine *e);
int carve_check(const struct engine *e, struct err *err); /* the device's limit */
int carve_check_options(const struct layout *l, const struct engine_options *o, struct err *err);

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

/* slots.c: gradient slots and what the trainer has said of them. All locked. */
uint32_t slots_total(const struct engine *e); /* reduces (loads) of the try */
bool slots_grant(struct engine *e);           /* frees slots; true: news to report */
void slots_publish(struct engine *e);         /* tags of what was said, as the ring has room */
/* The trainer leaves out the next |n|. slots_say: it says the next reduce, of a slot it has. */
void slots_skip(struct engine *e, uint32_t n);
void slots_say(struct engine *e);
/* This rank's tag of reduce |sequence|; |call|: the number of the first of the trainer's reduces
 * that may be it. */
struct comm_tag slots_tag(const struct engine *e, uint32_t sequence, uint32_t call);

/* norm.c */
void norm_pieces(struct engine *e, size_t unit); /* not locked: into |sums| of its ranges */

/* reduce.c, locked */
void reduce_conclude(struct engine *e); /* is the try's last one done? */

/* update.c's user: apply.c */
bool apply_is_done(const struct engine *e);

/* events.c */
bool events_pending(const struct engine *e); /* locked */

#endif
