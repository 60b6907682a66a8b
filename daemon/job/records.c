/* Records in adopted memory: written so that a death at any instruction leaves either the record or
 * none (words.h). Stores of a killed process are seen by its successor in program order, so a
 * compiler barrier between body and crc is all the order that is needed. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/crc.h"
#include "job/faults.h"
#include "job/words.h"

bool same_try(const struct fence *a, const struct fence *b) {
    return a->generation == b->generation && a->step == b->step &&
           (a->attempt == b->attempt || !RULE(fence_has_attempt));
}

/* A record's parts are far apart (cursors are used up to their lengths): the crc of the parts'
 * crcs. */
static uint32_t vote_crc(const struct vote_record *v) {
    const uint32_t parts[] = {crc32c(&v->vote, sizeof v->vote),
                              crc32c(v->rank_cursor, v->vote.rank_cursor_bytes),
                              crc32c(v->shared_cursor, v->vote.shared_cursor_bytes)};
    return crc32c(parts, sizeof parts);
}

static uint32_t decision_crc(const struct decision_record *d) {
    const uint32_t parts[] = {crc32c(&d->decision, sizeof d->decision),
                              crc32c(d->shared_cursor, d->decision.shared_cursor_bytes)};
    return crc32c(parts, sizeof parts);
}

static uint32_t grant_crc(const struct grant_record *g) {
    const uint32_t parts[] = {crc32c(&g->generation, sizeof g->generation),
                              crc32c(g->coordinator, sizeof g->coordinator)};
    return crc32c(parts, sizeof parts);
}

/* Fresh zeros are no record whatever the crc of zeros is: attempts and generations count from 1. */
static bool vote_valid(const struct vote_record *v) {
    return v->vote.fence.attempt && v->vote.rank_cursor_bytes <= JOB_CURSOR &&
           v->vote.shared_cursor_bytes <= JOB_CURSOR &&
           (v->crc == vote_crc(v) || !RULE(records_have_crc));
}

static bool decision_valid(const struct decision_record *d) {
    return d->decision.fence.attempt && d->decision.shared_cursor_bytes <= JOB_CURSOR &&
           (d->crc == decision_crc(d) || !RULE(records_have_crc));
}

static bool grant_valid(const struct grant_record *g) {
    return g->generation && g->crc == grant_crc(g);
}

static void finish(uint32_t *crc, uint32_t value) {
    atomic_signal_fence(memory_order_seq_cst);
    JOB_POINT("in a record");
    *(volatile uint32_t *)crc = value;
    atomic_signal_fence(memory_order_seq_cst);
}

/* Which of the two buffers a record of |step| is written to: its parity's. "The older one" would
 * lose the vote of S-1 when S is voted on a second time. */
static unsigned buffer(uint64_t step, const struct fence *first, const struct fence *second) {
    if (RULE(records_by_step)) {
        return step & 1;
    }
    return fence_compare(first, second) > 0;
}

/* ---- votes ---- */

void records_write_vote(struct records *r, const struct vote *v) {
    assert(v->rank_cursor_bytes <= JOB_CURSOR && v->shared_cursor_bytes <= JOB_CURSOR);
    struct vote_record *to =
        &r->votes[buffer(v->fence.step, &r->votes[0].vote.fence, &r->votes[1].vote.fence)];
    to->vote = *v;
    to->vote.rank_cursor = to->vote.shared_cursor = NULL;
    to->vote.checksums = NULL;
    to->vote.checksum_count = 0;
    JOB_POINT("between the parts of a record");
    if (v->rank_cursor_bytes) {
        memcpy(to->rank_cursor, v->rank_cursor, v->rank_cursor_bytes);
    }
    if (v->shared_cursor_bytes) {
        memcpy(to->shared_cursor, v->shared_cursor, v->shared_cursor_bytes);
    }
    finish(&to->crc, vote_crc(to));
}

bool records_read_vote(const struct records *r, uint64_t step, struct vote *out) {
    const struct vote_record *found = NULL;
    for (unsigned i = 0; i < 2; i++) {
        const struct vote_record *v = &r->votes[i];
        if (v->vote.fence.step == step && vote_valid(v) &&
            (!found || fence_compare(&found->vote.fence, &v->vote.fence) < 0)) {
            found = v;
        }
    }
    if (!found) {
        return false;
    }
    *out = found->vote;
    out->rank_cursor = found->rank_cursor;
    out->shared_cursor = found->shared_cursor;
    return true;
}

/* ---- decisions ---- */

void records_write_decision(struct records *r, const struct decision *d) {
    assert(d->shared_cursor_bytes <= JOB_CURSOR);
    struct decision_record *to = &r->decisions[buffer(
        d->fence.step, &r->decisions[0].decision.fence, &r->decisions[1].decision.fence)];
    to->decision = *d;
    to->decision.shared_cursor = NULL;
    JOB_POINT("between the parts of a record");
    if (d->shared_cursor_bytes) {
        memcpy(to->shared_cursor, d->shared_cursor, d->shared_cursor_bytes);
    }
    finish(&to->crc, decision_crc(to));
}

static bool read_decision(const struct decision_record *from, struct decision *out) {
    if (!from) {
        return false;
    }
    *out = from->decision;
    out->shared_cursor = from->shared_cursor;
    return true;
}

bool records_read_decision(const struct records *r, uint64_t step, struct decision *out) {
    const struct decision_record *found = NULL;
    for (unsigned i = 0; i < 2; i++) {
        const struct decision_record *d = &r->decisions[i];
        if (d->decision.fence.step == step && decision_valid(d)) {
            found = d;
        }
    }
    return read_decision(found, out);
}

bool records_last_decision(const struct records *r, struct decision *out) {
    const struct decision_record *found = NULL;
    for (unsigned i = 0; i < 2; i++) {
        const struct decision_record *d = &r->decisions[i];
        if (decision_valid(d) && (!found || found->decision.fence.step < d->decision.fence.step)) {
            found = d;
        }
    }
    return read_decision(found, out);
}

/* ---- grants ---- */

/* The one that is overwritten is the lower one (or the torn one): the higher stays whole. */
void records_write_grant(struct records *r, uint64_t generation, const uint8_t uuid[JOB_UUID]) {
    const bool second =
        grant_valid(&r->grants[0]) &&
        (!grant_valid(&r->grants[1]) || r->grants[1].generation < r->grants[0].generation);
    struct grant_record *to = &r->grants[second];
    to->generation = generation;
    memcpy(to->coordinator, uuid, JOB_UUID);
    finish(&to->crc, grant_crc(to));
}

bool records_read_grant(const struct records *r, uint64_t *generation, uint8_t uuid[JOB_UUID]) {
    const struct grant_record *found = NULL;
    for (unsigned i = 0; i < 2; i++) {
        const struct grant_record *g = &r->grants[i];
        if (grant_valid(g) && (!found || found->generation < g->generation)) {
            found = g;
        }
    }
    if (!found) {
        return false;
    }
    *generation = found->generation;
    memcpy(uuid, found->coordinator, JOB_UUID);
    return true;
}
