/* A rank's machine (rank.h): its trainer, its engine, and its vote. */
#include "job/rank_inner.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "job/faults.h"

struct job_rank *job_rank_new(unsigned rank, struct records *records,
                              const struct job_rank_ops *ops, void *ctx) {
    struct job_rank *j = mem_zeroed(1, sizeof *j);
    j->rank = rank;
    j->records = records;
    j->ops = ops;
    j->ctx = ctx;
    struct decision last;
    j->decided = records_last_decision(records, &last) ? last.fence.step + 1 : 0;
    if (!records_read_grant(records, &j->granted, j->granted_to)) {
        j->granted = 0;
    }
    return j;
}

void job_rank_del(struct job_rank *j) {
    if (j) {
        buf_free(&j->checksums);
        buf_free(&j->rank_cursor);
        buf_free(&j->shared_cursor);
        free(j);
    }
}

/* ---- tries ---- */

void rank_open(struct job_rank *j, const struct fence *fence) {
    j->fence = *fence;
    j->stage = STAGE_OPEN;
    j->said_yes = j->inside = j->arrived = j->reduced = false;
    j->ops->open(j->ctx, fence);
}

/* A trainer that left an open try left it doomed, so whoever waits finds one that nobody was in. */
void rank_enter(struct job_rank *j) {
    if (!j->begins || j->stage != STAGE_OPEN) {
        return;
    }
    const uint64_t before = j->fence.step - 1;
    struct vote committed;
    struct decision decided;
    const bool found = j->fence.step && records_read_vote(j->records, before, &committed);
    if (found && records_read_decision(j->records, before, &decided) &&
        decided.shared_cursor_bytes) {
        committed.shared_cursor = decided.shared_cursor;
        committed.shared_cursor_bytes = decided.shared_cursor_bytes;
    }
    j->begins = false;
    j->inside = true;
    j->ops->entered(j->ctx, &j->fence, found ? &committed : NULL, j->void_reason);
}

bool rank_in_doubt(const struct job_rank *j) {
    return j->stage == STAGE_VOTED && j->said_yes;
}

/* ---- the vote ---- */

static struct vote vote_yes(const struct job_rank *j) {
    struct vote v = j->vote;
    v.fence = j->fence;
    v.yes = true;
    v.sum_squares = j->sum_squares;
    v.non_finite = j->non_finite;
    v.rank_cursor = buf_bytes(&j->rank_cursor);
    v.rank_cursor_bytes = buf_unread(&j->rank_cursor);
    v.shared_cursor = buf_bytes(&j->shared_cursor);
    v.shared_cursor_bytes = buf_unread(&j->shared_cursor);
    v.checksums = (const uint64_t *)(const void *)buf_bytes(&j->checksums);
    v.checksum_count = buf_unread(&j->checksums) / sizeof *v.checksums;
    v.checksum = 0;
    for (size_t u = 0; u < v.checksum_count; u++) {
        v.checksum += mix64(mix64(u) ^ v.checksums[u]);
    }
    return v;
}

static struct vote vote_no(const struct job_rank *j) {
    struct vote v = {.fence = j->fence, .code = j->doom_code};
    (void)snprintf(v.reason, sizeof v.reason, "%s", j->doom_reason);
    return v;
}

/* Recorded, then sent: whoever asks later gets the same answer. A NO needs nothing; a YES needs
 * step(), the sum, and that neither a read of a peer nor the update before is still under way. */
void rank_vote(struct job_rank *j) {
    struct vote v;
    if (j->stage == STAGE_DOOMED) {
        v = vote_no(j);
    } else if (j->stage == STAGE_OPEN && j->arrived && j->reduced && j->ops->quiet(j->ctx)) {
        v = vote_yes(j);
    } else {
        return;
    }
    PLANT(vote_recorded_before_sent, j->ops->vote(j->ctx, &v));
    records_write_vote(j->records, &v);
    JOB_POINT("between recording a vote and sending it");
    j->stage = STAGE_VOTED;
    j->said_yes = v.yes;
    if (RULE(vote_recorded_before_sent)) {
        j->ops->vote(j->ctx, &v);
    }
}

void job_rank_doom(struct job_rank *j, int code, const char *reason) {
    if (j->stage != STAGE_OPEN) {
        return;
    }
    j->stage = STAGE_DOOMED;
    j->doom_code = code;
    (void)snprintf(j->doom_reason, sizeof j->doom_reason, "%s", reason);
    j->ops->cancel(j->ctx, &j->fence);
    rank_vote(j);
}

/* ---- the trainer ---- */

void job_rank_attached(struct job_rank *j, uint64_t attachment) {
    assert(!j->attached && attachment > j->attachment);
    j->attachment = attachment;
    j->attached = true;
    j->begins = j->inside = false;
}

void job_rank_detached(struct job_rank *j, int code, const char *reason) {
    assert(j->attached);
    const bool inside = j->inside;
    j->attached = j->begins = j->inside = false;
    if (inside && RULE(death_is_a_no)) {
        PLANT(yes_is_final, j->stage = rank_in_doubt(j) ? STAGE_OPEN : j->stage);
        job_rank_doom(j, code, reason);
    }
}

void job_rank_begin(struct job_rank *j) {
    assert(j->attached);
    if (j->inside && j->stage == STAGE_OPEN) {
        char reason[JOB_REASON];
        (void)snprintf(reason, sizeof reason, "rank %u called begin() inside step %llu", j->rank,
                       (unsigned long long)j->fence.step);
        job_rank_doom(j, ST_FAILED_PRECONDITION, reason);
    }
    j->inside = false;
    j->begins = true;
    rank_enter(j);
}

/* Its trainer has entered exactly this try. */
static bool is_current(const struct job_rank *j, const struct fence *f) {
    if (!RULE(calls_carry_generation)) {
        return f->step == j->fence.step && f->attempt == j->fence.attempt;
    }
    return j->inside && same_try(f, &j->fence);
}

int job_rank_check(const struct job_rank *j, const struct fence *fence, struct err *e) {
    const bool current = is_current(j, fence);
    if (current && j->stage == STAGE_OPEN && !j->arrived) {
        return 0;
    }
    if (current && (j->stage == STAGE_OPEN || rank_in_doubt(j))) {
        return err_set(
            e, ST_FAILED_PRECONDITION,
            "rank %u has called step() in step %llu, attempt %llu: its outcome comes first",
            j->rank, (unsigned long long)fence->step, (unsigned long long)fence->attempt);
    }
    if (current && j->stage == STAGE_VOTED) {
        return err_set(e, (enum status)j->doom_code, "%s", j->doom_reason);
    }
    return err_set(e, ST_ABORTED, "step %llu, attempt %llu is over on rank %u%s%s",
                   (unsigned long long)fence->step, (unsigned long long)fence->attempt, j->rank,
                   j->void_reason[0] ? ": " : "", j->void_reason);
}

static void refill(struct buf *b, const void *bytes, size_t n) {
    b->off = b->len = 0;
    if (n) {
        buf_append(b, bytes, n);
    } else {
        buf_reserve(b, 1); /* so that its bytes have an address */
    }
}

void job_rank_step(struct job_rank *j, const struct vote *v) {
    assert(j->stage == STAGE_OPEN && is_current(j, &j->fence) && !j->arrived);
    assert(v->user_count <= JOB_USER);
    assert(v->rank_cursor_bytes <= JOB_CURSOR && v->shared_cursor_bytes <= JOB_CURSOR);
    j->vote = (struct vote){.scalars = v->scalars,
                            .weight = v->weight == 0 ? 1 : v->weight,
                            .user_count = v->user_count};
    memcpy(j->vote.user, v->user, sizeof j->vote.user);
    refill(&j->rank_cursor, v->rank_cursor, v->rank_cursor_bytes);
    refill(&j->shared_cursor, v->shared_cursor, v->shared_cursor_bytes);
    j->arrived = true;
    rank_vote(j);
}

/* ---- the engine ---- */

void job_rank_reduced(struct job_rank *j, const struct fence *fence, double sum_squares,
                      bool non_finite, const uint64_t *checksums, size_t checksum_count) {
    if (j->stage != STAGE_OPEN || fence_compare(fence, &j->fence) != 0) {
        return; /* the sum of a void try */
    }
    j->reduced = true;
    j->sum_squares = sum_squares;
    j->non_finite = non_finite;
    refill(&j->checksums, checksums, checksum_count * sizeof *checksums);
    rank_vote(j);
}

void job_rank_poke(struct job_rank *j) {
    rank_begin_kept(j);
    rank_vote(j);
}

/* ---- asking ---- */

bool job_rank_open_fence(const struct job_rank *j, struct fence *fence) {
    *fence = j->fence;
    return j->stage == STAGE_OPEN;
}

bool job_rank_entered(const struct job_rank *j) {
    return j->inside && j->stage == STAGE_OPEN;
}

uint64_t job_rank_granted(const struct job_rank *j) {
    return j->granted;
}

uint64_t job_rank_decided(const struct job_rank *j) {
    return j->decided;
}

const char *job_rank_phase(const struct job_rank *j) {
    if (j->stage == STAGE_NONE) {
        return j->begin.any ? "waits for its workers" : "no try";
    }
    if (j->stage == STAGE_VOTED) {
        return j->said_yes ? "in doubt" : "void";
    }
    if (!j->inside) {
        return "open";
    }
    return !j->arrived ? "run" : j->reduced ? "waits to vote" : "reduce";
}
