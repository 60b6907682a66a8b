/* A rank's side of the step protocol: pure state machine (design §8, §9; the checked model is
 * shared/prototypes/protocol/rank_side.py of the design, one method here per event there).
 *
 * It owns no thread, socket, clock or memory of parameters. The daemon's main calls job_rank_* with
 * what happened; the machine answers through job_rank_ops, from inside those calls. Ops must not
 * call back into the machine; what follows from an op is told by a later call.
 */
#ifndef ZD_JOB_RANK_H
#define ZD_JOB_RANK_H

#include "job/words.h"

struct job_rank;

/* What a daemon tells a coordinator with a grant. */
struct job_report {
    bool has_vote[2], has_decision[2];
    struct vote votes[2]; /* by step parity */
    struct decision decisions[2];
    struct fence opened; /* the last try opened in this life; generation 0: none */
};

struct job_rank_ops {
    /* to the coordinator */
    void (*grant)(void *ctx, uint64_t generation, const uint8_t uuid[JOB_UUID],
                  const struct job_report *report);
    /* Every coordinator that this daemon has a stream with, except |uuid|, must hear that
     * |generation| was granted to |uuid|: one of them asked or spoke though another has the number
     * or a higher one, or had it until now. */
    void (*refuse)(void *ctx, uint64_t generation, const uint8_t uuid[JOB_UUID]);
    void (*vote)(void *ctx, const struct vote *v);
    /* to the engine. open: a try begins, gathers may run ahead. cancel: operations of |fence| that
     * have not started are dropped. apply: the decision is recorded; COMMIT updates, SKIP only
     * raises versions. idle: true when no operation of a try is in flight (updates and their
     * re-gather do not count for BEGIN, but a YES also waits for them: see quiet). */
    void (*open)(void *ctx, const struct fence *fence);
    void (*cancel)(void *ctx, const struct fence *fence);
    void (*apply)(void *ctx, const struct decision *d);
    bool (*idle)(void *ctx);
    bool (*quiet)(void *ctx); /* idle, and the update and re-gather of the step before are done */
    /* to the trainer. entered: answers begin(); the cursors in |committed| are those of step - 1
     * (the shared one is rank 0's where the decision carried it), NULL at step 0; NULL later: the
     * records are lost, DATA_LOSS. |void_reason|: why the try before was void, "" if it was not.
     * stepped: answers step(); the trainer has thereby entered |next|. voided: its try is over,
     * with the first cause that the coordinator knows; not sent to a trainer that is in no try. */
    void (*entered)(void *ctx, const struct fence *fence, const struct vote *committed,
                    const char *void_reason);
    void (*stepped)(void *ctx, const struct decision *d, const struct fence *next);
    void (*voided)(void *ctx, const struct fence *fence, int code, const char *reason);
};

/* |records| is adopted memory (or fresh zeros), borrowed. Heap; job_rank_del frees. Makes no calls:
 * an update that the predecessor left unfinished is the owner's to resume (records_last_decision).
 */
struct job_rank *job_rank_new(unsigned rank, struct records *records,
                              const struct job_rank_ops *ops, void *ctx);
void job_rank_del(struct job_rank *j); /* NULL is allowed */

/* ---- the trainer ---- */

/* A trainer attached; its number must exceed the last. */
void job_rank_attached(struct job_rank *j, uint64_t attachment);
/* The attachment ended (death, detach, connection lost). If it had entered the open try, that is
 * doomed with this before its YES, and after it nothing depends on the trainer. */
void job_rank_detached(struct job_rank *j, int code, const char *reason);
/* begin(): answered by ops->entered, now or later. Only a try that no trainer has entered is
 * entered. In the middle of a try begin() is a deviation: it dooms the try. */
void job_rank_begin(struct job_rank *j);
/* May a call that carries |fence| act? 0, or -ABORTED (or the code that doomed it) with the reason;
 * FAILED_PRECONDITION after step(). */
int job_rank_check(const struct job_rank *j, const struct fence *fence, struct err *e);
/* step(): leases were checked by the caller. |v|: scalars, weight, user and cursors; the rest is
 * filled in here. Copied. job_rank_check must have passed. */
void job_rank_step(struct job_rank *j, const struct vote *v);
/* The trainer left its plan, leaked a lease, called abort(); or a collective failed. Votes NO. */
void job_rank_doom(struct job_rank *j, int code, const char *reason);

/* ---- the engine ---- */

/* Every reduce (or load) of the try is done, with this rank's part of the norm and, at step 0, a
 * checksum of each unit's initial values (copied). May come before or after step(). */
void job_rank_reduced(struct job_rank *j, const struct fence *fence, double sum_squares,
                      bool non_finite, const uint64_t *checksums, size_t checksum_count);
/* Something that idle() or quiet() depends on has ended: act on what waited for it. */
void job_rank_poke(struct job_rank *j);

/* ---- the coordinator ---- */

/* Duplicates and what is stale are ignored. A BEGIN that overtakes the decision of the step before,
 * or that finds the engine busy, is kept until it can act. A decision is never early: its votes
 * need this rank's, and one of a try that this rank did not say YES to is ignored. */

void job_rank_on_ask(struct job_rank *j, uint64_t generation, const uint8_t uuid[JOB_UUID]);
/* |code|, |reason|: why the try before is void; ST_OK and "" if it is not. */
void job_rank_on_begin(struct job_rank *j, const struct fence *fence, int code, const char *reason);
void job_rank_on_decision(struct job_rank *j, uint64_t generation, const struct decision *d);

/* ---- asking ---- */

bool job_rank_open_fence(const struct job_rank *j, struct fence *fence); /* false: none is open */
bool job_rank_entered(const struct job_rank *j);     /* the trainer is in the open try */
uint64_t job_rank_granted(const struct job_rank *j); /* the highest number, 0 none: for Hello */
uint64_t job_rank_decided(const struct job_rank *j); /* number of steps decided */
const char *
job_rank_phase(const struct job_rank *j); /* "no try", "open", "run", "voted", "in doubt" .. */

#endif
