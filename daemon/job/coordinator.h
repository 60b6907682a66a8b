/* The coordinator's side of the step protocol: pure state machine (design §8, §9; checked model:
 * coordinator_side.py). Holds nothing that the daemons' grants cannot give back to a successor.
 * As in rank.h: inputs are calls, outputs are ops, ops do not call back in. Time is an argument.
 */
#ifndef ZD_JOB_COORDINATOR_H
#define ZD_JOB_COORDINATOR_H

#include "job/decide.h"
#include "job/rank.h"

struct job_coordinator;

struct job_coordinator_ops {
    void (*ask)(void *ctx, unsigned rank, uint64_t generation, const uint8_t uuid[JOB_UUID]);
    void (*begin)(void *ctx, unsigned rank, const struct fence *fence, int code,
                  const char *reason);
    void (*decision)(void *ctx, unsigned rank, uint64_t generation, const struct decision *d);
    /* For people and zerorun: once per try, COMMIT or SKIP with its numbers, ABORT with code and
     * reason. */
    void (*determined)(void *ctx, const struct decision *d, int code, const char *reason);
    /* This coordinator was refused (another has the number) and must exit; it ignores all that
     * follows. */
    void (*give_up)(void *ctx, int code, const char *reason);
};

struct job_coordinator *job_coordinator_new(unsigned world, const uint8_t uuid[JOB_UUID],
                                            const struct decide_options *o,
                                            const struct job_coordinator_ops *ops, void *ctx);
void job_coordinator_del(struct job_coordinator *c);

/* The optimizer constants and the units' names are known once the models agree; before the first
 * decision. |o| is copied, what it borrows must outlive |c|. */
void job_coordinator_options(struct job_coordinator *c, const struct decide_options *o);

/* A daemon dialled in (its life is new), or its stream broke. |granted|: the highest number it has
 * granted, 0 none. With the whole roster in, the coordinator asks for grants of max + 1. */
void job_coordinator_joined(struct job_coordinator *c, unsigned rank, uint64_t granted);
void job_coordinator_lost(struct job_coordinator *c, unsigned rank);
/* All memory is allocated and offered: tries may be opened from now on. Each joining takes it back,
 * so call it again when that daemon has handed over its memory. */
void job_coordinator_ready(struct job_coordinator *c);

void job_coordinator_on_grant(struct job_coordinator *c, unsigned rank, uint64_t generation,
                              const struct job_report *report);
/* A daemon refused this coordinator: it has granted |generation| to |uuid|. Gives up, unless that
 * is itself or the number is lower than its own. */
void job_coordinator_on_refused(struct job_coordinator *c, unsigned rank, uint64_t generation,
                                const uint8_t uuid[JOB_UUID]);
void job_coordinator_on_vote(struct job_coordinator *c, unsigned rank, const struct vote *v,
                             int64_t now_ns);

/* Ranks without a vote although another rank voted |limit_ns| ago or longer: the lowest one and the
 * age; false: none. Silence determines nothing; this is for naming it. */
bool job_coordinator_silent(const struct job_coordinator *c, int64_t now_ns, int64_t limit_ns,
                            unsigned *rank, int64_t *age_ns);

struct fence job_coordinator_fence(const struct job_coordinator *c);
uint64_t job_coordinator_generation(const struct job_coordinator *c);
uint64_t job_coordinator_attempts(const struct job_coordinator *c); /* tries opened so far */
const char *job_coordinator_phase(const struct job_coordinator *c);

#endif
