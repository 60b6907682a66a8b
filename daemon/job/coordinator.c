/* The coordinator's machine (coordinator.h): the roster, asking, votes and decisions. */
#include "job/coordinator_inner.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/faults.h"

struct job_coordinator *job_coordinator_new(unsigned world, const uint8_t uuid[JOB_UUID],
                                            const struct decide_options *o,
                                            const struct job_coordinator_ops *ops, void *ctx) {
    assert(world >= 1 && world <= JOB_MAX_RANKS);
    struct job_coordinator *c = mem_zeroed(1, sizeof *c);
    c->world = world;
    memcpy(c->uuid, uuid, JOB_UUID);
    c->options = *o;
    c->ops = ops;
    c->ctx = ctx;
    c->joined = mem_zeroed(world, sizeof *c->joined);
    c->reports = mem_zeroed(world, sizeof *c->reports);
    c->granted = mem_zeroed(world, sizeof *c->granted);
    c->votes = mem_zeroed(world, sizeof *c->votes);
    c->voted = mem_zeroed(world, sizeof *c->voted);
    return c;
}

static void forget_votes(struct job_coordinator *c) {
    for (unsigned r = 0; r < c->world; r++) {
        free((void *)(uintptr_t)c->votes[r].checksums);
        c->votes[r].checksums = NULL;
        c->voted[r] = false;
    }
    c->voted_count = 0;
}

void job_coordinator_del(struct job_coordinator *c) {
    if (!c) {
        return;
    }
    forget_votes(c);
    buf_free(&c->last_cursor);
    buf_free(&c->vote_cursor[0]);
    buf_free(&c->vote_cursor[1]);
    free(c->joined);
    free(c->reports);
    free(c->granted);
    free(c->votes);
    free(c->voted);
    free(c);
}

void job_coordinator_options(struct job_coordinator *c, const struct decide_options *o) {
    c->options = *o;
}

/* ---- the roster ---- */

void coordinator_ask(struct job_coordinator *c) {
    if (c->joined_count < c->world || !c->news) {
        return;
    }
    c->news = c->active = false;
    c->generation = (c->generation > c->highest ? c->generation : c->highest) + 1;
    c->granted_count = 0;
    memset(c->granted, 0, c->world * sizeof *c->granted);
    forget_votes(c);
    for (unsigned r = 0; r < c->world; r++) {
        c->ops->ask(c->ctx, r, c->generation, c->uuid);
    }
}

void job_coordinator_joined(struct job_coordinator *c, unsigned rank, uint64_t granted) {
    assert(rank < c->world);
    if (c->gone) {
        return;
    }
    if (!c->joined[rank]) {
        c->joined[rank] = true;
        c->joined_count++;
    }
    c->news = true;
    c->ready = false;
    c->highest = granted > c->highest ? granted : c->highest;
    coordinator_ask(c);
}

void job_coordinator_lost(struct job_coordinator *c, unsigned rank) {
    assert(rank < c->world);
    if (c->gone || !c->joined[rank]) {
        return;
    }
    c->joined[rank] = false;
    c->joined_count--;
    if (!c->lost_code) {
        c->lost_code = ST_ABORTED;
        (void)snprintf(c->lost_reason, sizeof c->lost_reason, "the daemon of rank %u was lost",
                       rank);
    }
}

void job_coordinator_ready(struct job_coordinator *c) {
    if (!c->gone && !c->ready) {
        c->ready = true;
        coordinator_recover(c);
    }
}

void job_coordinator_on_refused(struct job_coordinator *c, unsigned rank, uint64_t generation,
                                const uint8_t uuid[JOB_UUID]) {
    assert(rank < c->world);
    if (c->gone || !c->generation || generation < c->generation ||
        memcmp(uuid, c->uuid, JOB_UUID) == 0) {
        return;
    }
    PLANT(refused_coordinator_exits, c->highest = generation; c->news = true; coordinator_ask(c);
          return );
    char reason[JOB_REASON];
    (void)snprintf(reason, sizeof reason,
                   "rank %u granted generation %llu to another coordinator (this one has %llu)",
                   rank, (unsigned long long)generation, (unsigned long long)c->generation);
    c->gone = true;
    c->active = false;
    c->ops->give_up(c->ctx, ST_ABORTED, reason);
}

/* ---- tries ---- */

void coordinator_open(struct job_coordinator *c, const struct fence *fence) {
    forget_votes(c);
    c->fence = *fence;
    c->attempts++;
}

void coordinator_begin_all(struct job_coordinator *c, int code, const char *reason) {
    for (unsigned r = 0; r < c->world; r++) {
        c->ops->begin(c->ctx, r, &c->fence, code, reason);
    }
}

void coordinator_tell(struct job_coordinator *c, const struct decision *d, int code,
                      const char *reason) {
    if (fence_compare(&d->fence, &c->told) > 0) {
        c->told = d->fence;
        c->ops->determined(c->ctx, d, code, reason);
    }
}

void coordinator_take(struct job_coordinator *c, const struct decision *d) {
    buf_refill(&c->last_cursor, d->shared_cursor, d->shared_cursor_bytes);
    c->last = *d;
    c->last.shared_cursor = buf_bytes(&c->last_cursor);
    c->has_last = true;
}

/* One NO, or scalars that differ: the step is tried again. */
static void void_try(struct job_coordinator *c, int code, const char *reason) {
    const struct decision d = {.fence = c->fence, .outcome = OUTCOME_ABORT};
    char first[JOB_REASON]; /* |reason| may be a vote's, which opening forgets */
    (void)snprintf(first, sizeof first, "%s", reason);
    coordinator_tell(c, &d, code, first);
    const struct fence next = {c->generation, c->fence.step, c->fence.attempt + 1};
    coordinator_open(c, &next);
    coordinator_begin_all(c, code, first);
}

static void announce(struct job_coordinator *c, const struct decision *d) {
    coordinator_take(c, d);
    coordinator_tell(c, &c->last, ST_OK, "");
    const struct fence next = {c->generation, d->fence.step + 1, 1};
    coordinator_open(c, &next);
    for (unsigned r = 0; r < c->world; r++) {
        c->ops->decision(c->ctx, r, c->generation, &c->last);
    }
}

/* ---- votes ---- */

static void keep_vote(struct job_coordinator *c, unsigned rank, const struct vote *v) {
    struct vote *kept = &c->votes[rank];
    PLANT(vote_counts_once, free((void *)(uintptr_t)kept->checksums));
    *kept = *v;
    kept->rank_cursor = kept->shared_cursor = NULL;
    kept->checksums = NULL;
    if (v->checksum_count) {
        uint64_t *copy = mem_zeroed(v->checksum_count, sizeof *copy);
        memcpy(copy, v->checksums, v->checksum_count * sizeof *copy);
        kept->checksums = copy;
    }
    if (rank == 0) {
        buf_refill(&c->vote_cursor[0], v->shared_cursor, v->shared_cursor_bytes);
        kept->shared_cursor = buf_bytes(&c->vote_cursor[0]);
    }
    c->voted[rank] = true;
    c->voted_count++;
}

static void decide_votes(struct job_coordinator *c) {
    struct err e;
    const struct decision d =
        decide(&c->options, c->votes, c->world, c->has_last ? &c->last : NULL, &e);
    if (d.outcome == OUTCOME_ABORT) {
        void_try(c, e.code, e.text);
    } else {
        announce(c, &d);
    }
}

void job_coordinator_on_vote(struct job_coordinator *c, unsigned rank, const struct vote *v,
                             int64_t now_ns) {
    assert(rank < c->world && v->user_count <= JOB_USER);
    assert(v->rank_cursor_bytes <= JOB_CURSOR && v->shared_cursor_bytes <= JOB_CURSOR);
    if (c->gone || !c->active || !same_try(&v->fence, &c->fence) ||
        (c->voted[rank] && RULE(vote_counts_once))) {
        return;
    }
    PLANT(
        silence_determines_nothing, if (c->voted_count && now_ns - c->first_vote_ns > 200000) {
            void_try(c, ST_ABORTED, "planted");
            return;
        });
    if (!v->yes) {
        void_try(c, v->code, v->reason);
        return;
    }
    if (!c->voted_count) {
        c->first_vote_ns = now_ns;
    }
    keep_vote(c, rank, v);
    if (c->voted_count == c->world) {
        decide_votes(c);
    }
}

bool job_coordinator_silent(const struct job_coordinator *c, int64_t now_ns, int64_t limit_ns,
                            unsigned *rank, int64_t *age_ns) {
    if (!c->active || !c->voted_count || now_ns - c->first_vote_ns < limit_ns) {
        return false;
    }
    *rank = 0;
    while (c->voted[*rank]) { /* not all have voted: all votes open the next try */
        ++*rank;
    }
    *age_ns = now_ns - c->first_vote_ns;
    return true;
}

/* ---- asking ---- */

struct fence job_coordinator_fence(const struct job_coordinator *c) {
    return c->fence;
}

uint64_t job_coordinator_generation(const struct job_coordinator *c) {
    return c->generation;
}

uint64_t job_coordinator_attempts(const struct job_coordinator *c) {
    return c->attempts;
}

const char *job_coordinator_phase(const struct job_coordinator *c) {
    if (c->gone) {
        return "refused";
    }
    if (c->active) {
        return c->voted_count ? "voting" : c->fence.step ? "step" : "loading";
    }
    if (c->joined_count < c->world) {
        return "waiting for daemons";
    }
    return c->granted_count < c->world ? "waiting for grants" : "waiting for memory";
}
