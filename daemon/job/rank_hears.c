/* A rank's machine (rank.h): what it hears from a coordinator. */
#include <stdio.h>
#include <string.h>

#include "job/faults.h"
#include "job/rank_inner.h"

static void refuse(struct job_rank *j) {
    j->ops->refuse(j->ctx, j->granted, j->granted_to);
}

/* A doomed try's were dropped when it was doomed; one that was voted YES for is open in the engine
 * until it is determined. */
static void drop_operations(struct job_rank *j) {
    if (j->stage == STAGE_OPEN || rank_in_doubt(j)) {
        j->ops->cancel(j->ctx, &j->fence);
    }
}

/* ---- ASK ---- */

/* Votes of the undecided step and of the one before, decisions of the last two: all that is kept.
 */
static struct job_report report(const struct job_rank *j) {
    struct job_report report = {.opened = j->fence};
    for (unsigned back = 0; back < 2; back++) {
        const uint64_t voted = j->decided - back, decided = voted - 1; /* -1: no record has it */
        const unsigned v = voted & 1, d = decided & 1;
        report.has_vote[v] = records_read_vote(j->records, voted, &report.votes[v]);
        report.has_decision[d] = records_read_decision(j->records, decided, &report.decisions[d]);
    }
    return report;
}

/* From here on this daemon neither votes nor acts for a lower number. Only a try that it said YES
 * to may still be determined, by whoever asks; its trainer goes on waiting. */
static void leave_try(struct job_rank *j, uint64_t generation) {
    if (rank_in_doubt(j)) {
        PLANT(
            doubt_outlives_generation, if (j->inside) {
                j->inside = false;
                j->ops->voided(j->ctx, &j->fence, ST_ABORTED, "planted");
            });
        return;
    }
    if (!RULE(no_vote_below_grant)) {
        return;
    }
    drop_operations(j);
    j->stage = STAGE_NONE;
    (void)snprintf(j->void_reason, sizeof j->void_reason, "generation %llu begins",
                   (unsigned long long)generation);
}

void job_rank_on_ask(struct job_rank *j, uint64_t generation, const uint8_t uuid[JOB_UUID]) {
    const bool same = generation == j->granted;
    if (same && memcmp(uuid, j->granted_to, JOB_UUID) == 0) {
        return; /* a duplicate: the grant is under way */
    }
    if (generation < j->granted || (same && RULE(number_granted_once))) {
        refuse(j);
        return;
    }
    const bool taken = j->granted && memcmp(uuid, j->granted_to, JOB_UUID) != 0;
    records_write_grant(j->records, generation, uuid);
    j->granted = j->granted_here = generation;
    memcpy(j->granted_to, uuid, JOB_UUID);
    const struct job_report r = report(j);
    leave_try(j, generation);
    j->ops->grant(j->ctx, generation, uuid, &r);
    if (taken) {
        refuse(j); /* else the one before, with nothing to say, would wait for votes for ever */
    }
}

/* ---- BEGIN ---- */

enum readiness { BEGIN_NEVER, BEGIN_LATER, BEGIN_NOW };

/* Without a grant of this life the number may be one that the predecessor granted: other daemons
 * may hold votes of this rank in it. */
static enum readiness readiness(const struct job_rank *j, const struct fence *f) {
    if (f->generation < j->granted || fence_compare(f, &j->fence) <= 0 || f->step < j->decided) {
        return BEGIN_NEVER;
    }
    if (f->generation != j->granted_here && RULE(successor_needs_new_grant)) {
        return BEGIN_NEVER;
    }
    if (f->step > j->decided && RULE(begin_waits_for_decision)) {
        return BEGIN_LATER;
    }
    return BEGIN_NOW;
}

/* The first cause is told to whoever is in the try, be its own vote NO for another reason. */
static void void_try(struct job_rank *j, int code, const char *reason) {
    drop_operations(j);
    j->stage = STAGE_NONE;
    if (j->inside) {
        j->inside = false;
        j->ops->voided(j->ctx, &j->fence, code ? code : ST_ABORTED, reason);
    }
}

void rank_begin_kept(struct job_rank *j) {
    struct kept_begin *b = &j->begin;
    const enum readiness when = b->any ? readiness(j, &b->fence) : BEGIN_NEVER;
    if (when == BEGIN_NEVER) {
        b->any = false;
    }
    if (when != BEGIN_NOW) {
        return;
    }
    void_try(j, b->code, b->reason);
    if (RULE(begin_waits_for_idle) && !j->ops->idle(j->ctx)) {
        return; /* the sum of a void try may still be in flight, here or before a resumption */
    }
    PLANT(
        records_outlive_abort,
        if (b->fence.attempt > 1) { job_forget(j->records, b->fence.step - 1); });
    b->any = false;
    memcpy(j->void_reason, b->reason, sizeof j->void_reason);
    rank_open(j, &b->fence);
    rank_enter(j);
}

void job_rank_on_begin(struct job_rank *j, const struct fence *fence, int code,
                       const char *reason) {
    struct kept_begin *b = &j->begin;
    if (fence->generation < j->granted) {
        refuse(j);
        return;
    }
    if (readiness(j, fence) == BEGIN_NEVER || (b->any && fence_compare(fence, &b->fence) <= 0)) {
        return;
    }
    *b = (struct kept_begin){.any = true, .fence = *fence, .code = code};
    (void)snprintf(b->reason, sizeof b->reason, "%s", reason);
    rank_begin_kept(j);
    PLANT(early_begin_is_kept, b->any = false);
}

/* ---- DECISION ---- */

/* The trainer that waits in step() goes on into the next try by the answer; any other enters it by
 * begin(). */
static void next_try(struct job_rank *j, uint64_t generation, const struct decision *d) {
    const struct fence next = {generation, d->fence.step + 1, 1};
    const bool waits = j->inside && j->arrived;
    j->void_reason[0] = 0;
    rank_open(j, &next);
    j->inside = waits;
    if (waits) {
        j->ops->stepped(j->ctx, d, &next);
    }
    rank_enter(j);
    rank_begin_kept(j);
}

/* What is decided was voted for here, in this life's last try or, by the record, in the life
 * before: anything else is a coordinator's mistake, and neither job/ nor the engine is in that try.
 */
static bool voted_for(const struct job_rank *j, const struct decision *d) {
    struct vote v;
    return records_read_vote(j->records, d->fence.step, &v) && v.yes &&
           same_try(&v.fence, &d->fence) && (rank_in_doubt(j) || !j->fence.attempt);
}

void job_rank_on_decision(struct job_rank *j, uint64_t generation, const struct decision *d) {
    if (generation < j->granted) {
        refuse(j);
        return;
    }
    if (d->fence.step != j->decided || d->outcome == OUTCOME_ABORT || !voted_for(j, d)) {
        return;
    }
    if (RULE(decision_recorded_before_applied)) {
        if (RULE(skip_is_recorded) || d->outcome != OUTCOME_SKIP) {
            records_write_decision(j->records, d);
        }
        JOB_POINT("between recording a decision and applying it");
    }
    j->decided = d->fence.step + 1;
    j->ops->apply(j->ctx, d);
    PLANT(decision_recorded_before_applied, records_write_decision(j->records, d));
    if (j->granted_here != generation) {
        j->stage = STAGE_NONE; /* a successor without a grant of its own opens nothing */
        return;
    }
    next_try(j, generation, d);
}
