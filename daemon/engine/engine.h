/* The engine: one rank's memory and what is done to it (design §5, §6, §13).
 *
 * It allocates everything once, follows the plan (gathers ahead, grants gradient slots in order),
 * sums gradients straight from the peers' mapped slots, takes the norm, and applies updates tile by
 * tile through a scratch tile. Which collectives may run is told from above (open, cancel, apply);
 * the engine knows no coordinator, no socket and no protocol. Every strategy is the same code: two
 * groups of ranks and the stretches of layout.h.
 *
 * Threads: the functions below are for one thread (the daemon's loop). One worker takes the first
 * *ready* operation in the order gather, reduce, update and never waits inside one; with more
 * threads it shares each operation's range with helpers. Completions are queued; |notify| (any
 * thread) asks the owner to call engine_events, which makes the callbacks on the owner's thread.
 *
 * Numbering: step 0 makes initial values. A unit's version is the last step applied to it; a try at
 * step s gathers version s - 1. Sequences count the plan's reduces through the whole attempt; slots
 * are granted by the trainer's own count of its reduces, number n being slot n mod grad_slots.
 *
 * A unit whose trainable tensors are all absent_ok may be left out of a micro-batch: when the
 * trainer goes on with what the plan says behind its gathers or reduces, those count as made, the
 * gradient of this rank as zeros, which are not sent (a gather that has run ahead was). When no
 * rank has reduced it the gradient is zero and the update runs with it, as PyTorch's does with
 * gradients that are zero (not: None).
 */
#ifndef ZD_ENGINE_H
#define ZD_ENGINE_H

#include <stdbool.h>

#include "base/err.h"
#include "base/fence.h"
#include "kernels/kernels.h"
#include "kernels/scalars.h"
#include "layout/layout.h"

struct engine;

struct engine_options {
    unsigned rank;
    unsigned threads; /* from 1: the worker and its helpers */
    struct slots slots;
    const struct kernels *kernels;
    uint64_t device_memory; /* limit in bytes, 0: none; exceeding it is RESOURCE_EXHAUSTED with
                               numbers, before anything is allocated */
    size_t records_bytes;   /* of the protocol's records in adopted memory; see engine_records */
    bool on_demand;         /* no gather runs before it is asked for */
};

struct engine_callbacks {
    void (*notify)(void *ctx); /* any thread */
    /* From engine_events (and from engine_enter), on the owner's thread. Offsets are bytes in the
     * trainer's parameter and gradient descriptors. |position| is the gather's number in the plan;
     * it rises, and leaves out what the trainer did. |number| counts grants from 0, whatever the
     * trainer leaves out; its n-th reduce (load) is of the n-th. */
    void (*gathered)(void *ctx, const struct fence *f, uint32_t position, uint32_t unit,
                     uint64_t offset, bool eval);
    void (*granted)(void *ctx, const struct fence *f, uint32_t number, uint64_t offset);
    /* All K micro-batches' reduces (or all loads) of the try are done; at once where there are
     * none. |sum_squares|: of this rank's pieces of the summed gradient, 0 at step 0. |checksums|:
     * step 0: of what the trainer loaded, one a unit, NULL otherwise; the engine's. */
    void (*reduced)(void *ctx, const struct fence *f, double sum_squares, bool non_finite,
                    const uint64_t *checksums, size_t checksum_count);
    void (*progress)(void *ctx); /* idle or quiet may have become true */
    void (*hashed)(void *ctx, uint64_t sum, uint64_t version);
};

/* |l| and its model are borrowed for the engine's life. INVALID_ARGUMENT: rank, slots or threads
 * out of range. RESOURCE_EXHAUSTED with numbers; a unit that is most of the model is named. */
int engine_new(const struct layout *l, const struct engine_options *o,
               const struct engine_callbacks *cb, void *ctx, struct engine **e, struct err *err);
void engine_del(struct engine *e); /* stops the threads, frees all; NULL is allowed */

/* What engine_new would allocate, gradient slots included, rounding and fixed filled in: what
 * engine_status measures later. The limit is not looked at. INVALID_ARGUMENT as above. */
int engine_account(const struct layout *l, const struct engine_options *o, struct memory *out,
                   struct err *err);

/* |records_bytes| of adopted memory, zeros when new, 64-byte aligned; the engine never touches
 * them. */
void *engine_records(struct engine *e);

/* ---- memory hand-over; descriptors stay the engine's (callers send or dup them) ---- */

enum { ENGINE_STATE_FDS = 3 };
/* For peers, read-only: [0] control page, [1] state (masters, shard, kept gradients), [2] replica
 * or gather slots. */
void engine_state_fds(const struct engine *e, int fds[ENGINE_STATE_FDS]);
/* A fresh gradient arena for a new attachment; the old one is unmapped and freed first.
 * FAILED_PRECONDITION: the open try still reads the old one. RESOURCE_EXHAUSTED: then there is
 * none. */
int engine_attach(struct engine *e, uint64_t attachment, struct err *err);
int engine_grad_fd(const struct engine *e); /* for peers: read-only */
/* For the trainer: [0] parameters, read-only (gather slots or replica), [1] gradient slots,
 * writable. */
void engine_trainer_fds(const struct engine *e, int fds[2], uint64_t bytes[2]);

/* Maps what peer |rank| handed over, as far as this rank reads it (nothing of ranks that are in
 * neither of its groups); takes the descriptors (closes them, also on failure). Sizes and headers
 * are checked: DATA_LOSS, INVALID_ARGUMENT. Gradients replace the peer's previous
 * attachment's when the worker is between operations. A reduce waits until the peer's tag is of the
 * mapped attachment; a gather waits until its state is mapped. */
int engine_peer_state(struct engine *e, unsigned rank, int fds[ENGINE_STATE_FDS], struct err *err);
int engine_peer_grads(struct engine *e, unsigned rank, uint64_t attachment, int fd,
                      struct err *err);

/* ---- the protocol above ---- */

/* A try is open. From the trainer's first gather on (so an eval pass finds its slots free, and a
 * job that ends gathers nothing for a step that never comes) gathers run ahead along "train" as
 * slots allow. */
void engine_open(struct engine *e, const struct fence *f);
/* The try is void: operations that have not started are dropped, leases are revoked. */
void engine_cancel(struct engine *e, const struct fence *f);
/* The trainer has entered the open try: gathered and granted are reported from now on, first those
 * that are due already. Every gradient slot of the attachment is free then. */
void engine_enter(struct engine *e);
/* The decision of |step|. |commit|: update with |s|; otherwise (skip) only the versions rise. At
 * step 0 the loaded values become version 0. The open try must be of that step; then it is over. */
void engine_apply(struct engine *e, uint64_t step, bool commit, const struct step_scalars *s);
/* No operation of a try is queued-and-started or in flight. */
bool engine_idle(const struct engine *e);
/* Also: nothing of an update or re-gather is left to do. */
bool engine_quiet(const struct engine *e);
/* Holds back updates (a drill) until released. */
void engine_hold_updates(struct engine *e, bool hold);

/* ---- the trainer's calls ---- */

/* 0, or FAILED_PRECONDITION naming step, micro-batch, plan position, what the plan says and what
 * was asked; nothing was launched then. The caller has checked the fence. */

/* The plan's next gather. RESOURCE_EXHAUSTED listing the leases when only the trainer's own release
 * could free a slot. FAILED_PRECONDITION before version 0. Whether it was complete already is
 * counted. */
int engine_gather(struct engine *e, uint64_t unit, struct err *err);
/* The plan's first gather will be asked for: gathers run ahead from here. No effect behind it.
 * FAILED_PRECONDITION before version 0. */
int engine_prefetch(struct engine *e, struct err *err);
int engine_release(struct engine *e, uint64_t unit,
                   struct err *err); /* INVALID_ARGUMENT: not held */
/* The plan's next reduce; ALREADY_EXISTS: this unit was reduced in this micro-batch. */
int engine_reduce(struct engine *e, uint64_t unit, struct err *err);
/* Step 0; units with something to load, in order. Its values are fp32, at load_offset. */
int engine_load(struct engine *e, uint64_t unit, struct err *err);
int engine_begin_eval(struct engine *e, struct err *err);
int engine_end_eval(struct engine *e, struct err *err);
/* At step(): every collective of the plan was asked for, or may be left out, and no lease is held;
 * else FAILED_PRECONDITION naming the unit that is still held, or what the plan still expects and
 * all units that were not reduced. */
int engine_finish(struct engine *e, struct err *err);

/* ---- asking ---- */

void engine_events(struct engine *e); /* after notify */
void engine_hash(struct engine *e);   /* answered by hashed, once quiet */

struct engine_status {
    struct memory measured; /* carved ranges; rounding and fixed filled in; sums to total_bytes */
    struct memory formula;  /* layout_memory, with measured's rounding and fixed */
    uint64_t total_bytes;   /* fstat of all memfds of this engine */
    uint64_t huge_bytes;    /* of them in huge pages */
    struct traffic sent;    /* counted by the peers where they read this rank's memory */
    struct traffic sent_by_group[2]; /* the same: within the inner group, in the outer group */
    uint64_t gathers, gathers_ahead, eval_gathers;
    uint64_t reduce_ns, update_ns, gather_ns; /* the worker's time */
    uint64_t version;                         /* of the oldest unit; UINT64_MAX: nothing loaded */
};
void engine_status(const struct engine *e, struct engine_status *s);

#endif
