/* The coordinator's machine (coordinator.h): what the grants say, and where the job goes on. Of
 * what a coordinator knew before it asked only the number of its last try counts: another may have
 * acted in between, and the reports hold everything that was determined. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "job/coordinator_inner.h"
#include "job/faults.h"

static void keep_report(struct job_coordinator *c, unsigned rank, const struct job_report *from) {
    struct job_report *to = &c->reports[rank];
    *to = *from;
    for (unsigned i = 0; i < 2; i++) {
        if (from->has_vote[i] && rank == 0) {
            buf_refill(&c->vote_cursor[i], from->votes[i].shared_cursor,
                       from->votes[i].shared_cursor_bytes);
        }
        if (from->has_decision[i] &&
            (!c->has_last || c->last.fence.step < from->decisions[i].fence.step)) {
            coordinator_take(c, &from->decisions[i]);
        }
        to->votes[i].rank_cursor = to->votes[i].shared_cursor = NULL;
        to->votes[i].checksums = NULL;
        to->votes[i].checksum_count = 0;
        to->decisions[i].shared_cursor = NULL;
    }
}

void job_coordinator_on_grant(struct job_coordinator *c, unsigned rank, uint64_t generation,
                              const struct job_report *report) {
    assert(rank < c->world);
    if (c->gone || c->active || generation != c->generation || c->granted[rank]) {
        return;
    }
    if (!c->granted_count) {
        c->has_last = false;
    }
    c->granted[rank] = true;
    c->granted_count++;
    keep_report(c, rank, report);
    coordinator_recover(c);
}

/* ---- the undecided step ---- */

static const struct vote *vote_of(const struct job_coordinator *c, unsigned rank, uint64_t step) {
    const struct job_report *r = &c->reports[rank];
    const unsigned i = step & 1;
    const bool has = c->granted[rank] && r->has_vote[i] && r->votes[i].fence.step == step;
    return has ? &r->votes[i] : NULL;
}

/* Every rank's YES of one try is on record: that is determined, whoever was told. */
static bool unanimous(const struct job_coordinator *c, uint64_t step) {
    const struct vote *first = vote_of(c, 0, step);
    for (unsigned r = 0; r < c->world; r++) {
        const struct vote *v = vote_of(c, r, step);
        if (!v || !v->yes || !same_try(&v->fence, &first->fence)) {
            return false;
        }
    }
    return true;
}

static struct decision decide_records(struct job_coordinator *c, uint64_t step, struct err *e) {
    for (unsigned r = 0; r < c->world; r++) {
        c->votes[r] = *vote_of(c, r, step);
    }
    c->votes[0].shared_cursor = buf_bytes(&c->vote_cursor[step & 1]);
    return decide(&c->options, c->votes, c->world, c->has_last ? &c->last : NULL, e);
}

/* Why the open try is void: the NO of its highest attempt, else the loss that made the number rise.
 */
static void find_cause(const struct job_coordinator *c, uint64_t step, struct err *e) {
    const struct vote *no = NULL;
    for (unsigned r = 0; r < c->world; r++) {
        const struct vote *v = vote_of(c, r, step);
        if (v && !v->yes && (!no || fence_compare(&no->fence, &v->fence) < 0)) {
            no = v;
        }
    }
    if (no) {
        (void)err_set(e, (enum status)no->code, "%s", no->reason);
    } else if (c->lost_code) {
        (void)err_set(e, (enum status)c->lost_code, "%s", c->lost_reason);
    } else {
        (void)err_set(e, ST_ABORTED, "generation %llu begins", (unsigned long long)c->generation);
    }
}

/* The highest attempt at |step| that anybody opened, voted in or, being this coordinator, counted.
 */
static uint64_t last_attempt(const struct job_coordinator *c, uint64_t step) {
    uint64_t last = c->fence.step == step ? c->fence.attempt : 0;
    for (unsigned r = 0; r < c->world; r++) {
        const struct fence *opened = &c->reports[r].opened;
        const struct vote *v = vote_of(c, r, step);
        if (RULE(attempt_above_all_opened) && c->granted[r] && opened->step == step &&
            opened->attempt > last) {
            last = opened->attempt;
        }
        if (v && v->fence.attempt > last) {
            last = v->fence.attempt;
        }
    }
    return last;
}

/* ---- recovery ---- */

/* Newest step first: the votes of the step after the last decision, else that decision. True:
 * determined here. |cause|: why the undecided step's try is void, if it is. */
static bool finish_determined(struct job_coordinator *c, struct err *cause) {
    const uint64_t step = c->has_last ? c->last.fence.step + 1 : 0;
    find_cause(c, step, cause);
    if (!unanimous(c, step) || (c->has_last && !RULE(votes_beat_older_decision))) {
        return false;
    }
    const struct decision d = decide_records(c, step, cause);
    if (d.outcome == OUTCOME_ABORT) {
        return false;
    }
    coordinator_take(c, &d);
    return true;
}

/* A try of its own that it had not seen the end of, and what it determined now. Of a step before
 * the last decision nobody can say any more which of its tries was determined: another coordinator
 * did. */
static void tell_outcomes(struct job_coordinator *c, bool determined, const struct err *cause) {
    const bool known = !c->has_last || c->fence.step >= c->last.fence.step;
    const bool own = c->has_last && fence_compare(&c->last.fence, &c->fence) == 0;
    if (c->fence.attempt && known && !own) {
        const struct decision d = {.fence = c->fence, .outcome = OUTCOME_ABORT};
        coordinator_tell(c, &d, cause->code, cause->text);
    }
    if (own || determined) {
        coordinator_tell(c, &c->last, ST_OK, "");
    }
}

/* The last decision, with the fence of its votes, to those that lack it. */
static void repeat_decision(struct job_coordinator *c) {
    PLANT(decision_keeps_fence, c->last.fence.generation = c->generation);
    const uint64_t step = c->last.fence.step;
    for (unsigned r = 0; r < c->world; r++) {
        const struct job_report *report = &c->reports[r];
        const unsigned i = step & 1;
        if (!c->granted[r] || !report->has_decision[i] || report->decisions[i].fence.step != step) {
            c->ops->decision(c->ctx, r, c->generation, &c->last);
        }
    }
}

void coordinator_recover(struct job_coordinator *c) {
    const unsigned missing = c->world - c->granted_count;
    if (c->active || !c->ready || !c->granted_count ||
        missing > (RULE(whole_roster_grants) ? 0 : 1)) {
        return;
    }
    PLANT(
        decision_carries_t,
        if (c->has_last && !c->fence.attempt) { c->last.t = c->last.fence.step; });
    PLANT(
        decision_carries_scale, if (c->has_last && !c->fence.attempt) {
            c->last.scale = scaling_start(&c->options.scaling);
        });
    c->active = true;
    struct err cause = {0};
    const bool determined = finish_determined(c, &cause);
    tell_outcomes(c, determined, &cause);
    const uint64_t step = c->has_last ? c->last.fence.step + 1 : 0;
    const uint64_t before = last_attempt(c, step);
    const struct fence next = {c->generation, step, before + 1};
    coordinator_open(c, &next);
    if (c->has_last) {
        repeat_decision(c);
    }
    coordinator_begin_all(c, before ? cause.code : ST_OK, before ? cause.text : "");
    c->lost_code = 0;
}
