/* Fences, votes and decisions between messages and structs. Models are in convert_model.c. */
#include "process/convert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- fences, votes, decisions ---- */

struct fence fence_from_message(const Zerod__V1__Fence *from) {
    if (!from) {
        return (struct fence){0};
    }
    return (struct fence){from->generation, from->step, from->attempt};
}

Zerod__V1__Fence fence_to_message(const struct fence *f) {
    Zerod__V1__Fence to = ZEROD__V1__FENCE__INIT;
    to.generation = f->generation;
    to.step = f->step;
    to.attempt = f->attempt;
    return to;
}

static int check_users(size_t count, const char *what, struct err *e) {
    if (count <= JOB_USER) {
        return 0;
    }
    return err_set(e, ST_INVALID_ARGUMENT, "%s carries %zu user doubles, the limit is %d", what,
                   count, JOB_USER);
}

static int check_cursor(size_t bytes, const char *what, struct err *e) {
    if (bytes <= JOB_CURSOR) {
        return 0;
    }
    return err_set(e, ST_INVALID_ARGUMENT, "%s carries a cursor of %zu bytes, the limit is %d",
                   what, bytes, JOB_CURSOR);
}

static int check_vote(const Zerod__V1__Vote *v, struct err *e) {
    if (!v->fence || !v->scalars) {
        return err_set(e, ST_INVALID_ARGUMENT, "a vote without fence or scalars");
    }
    if (v->yes && !(isfinite(v->weight) && v->weight > 0)) {
        return err_set(e, ST_INVALID_ARGUMENT, "a vote with weight %g: must be finite and > 0",
                       v->weight);
    }
    if (!v->yes && (v->code <= ST_OK || v->code > ST_UNAUTHENTICATED || !v->reason[0])) {
        return err_set(e, ST_INVALID_ARGUMENT, "a NO with status %d and %s reason", (int)v->code,
                       v->reason[0] ? "a" : "no");
    }
    int code = check_users(v->n_user, "a vote", e);
    return code ? code : check_cursor(v->shared_cursor.len, "a vote", e);
}

int vote_from_message(const Zerod__V1__Vote *from, struct vote *out, struct err *e) {
    int code = check_vote(from, e);
    if (code) {
        return code;
    }
    *out = (struct vote){
        .fence = fence_from_message(from->fence),
        .yes = from->yes,
        .code = from->code,
        .sum_squares = from->sum_of_squares,
        .non_finite = from->non_finite,
        .scalars = {from->scalars->learning_rate, from->scalars->clip,
                    from->scalars->micro_batches},
        .weight = from->weight,
        .user_count = (uint32_t)from->n_user,
        .checksum = from->checksum,
        .checksum_count = from->n_checksums,
        .checksums = from->checksums,
        .shared_cursor_bytes = from->shared_cursor.len,
        .shared_cursor = from->shared_cursor.data,
    };
    (void)snprintf(out->reason, sizeof out->reason, "%s", from->reason);
    for (size_t i = 0; i < from->n_user; i++) {
        out->user[i] = from->user[i];
    }
    return 0;
}

int decision_from_message(const Zerod__V1__Decision *from, struct decision *out, struct err *e) {
    if (!from->fence || (from->outcome != OUTCOME_COMMIT && from->outcome != OUTCOME_SKIP)) {
        return err_set(e, ST_INVALID_ARGUMENT, "a decision without fence or with outcome %u",
                       from->outcome);
    }
    int code = check_users(from->n_user, "a decision", e);
    code = code ? code : check_cursor(from->shared_cursor.len, "a decision", e);
    if (code) {
        return code;
    }
    *out = (struct decision){
        .fence = fence_from_message(from->fence),
        .outcome = (enum outcome)from->outcome,
        .t = from->t,
        .skips_in_row = from->skips_in_row,
        .learning_rate = from->learning_rate,
        .scale = {from->loss_scale, from->scale_good, from->scale_hysteresis},
        .scalars = {from->grad_norm, from->multiplier, from->decay, from->step_size,
                    from->inv_sqrt_c2, from->first},
        .user_count = (uint32_t)from->n_user,
        .shared_cursor_bytes = from->shared_cursor.len,
        .shared_cursor = from->shared_cursor.data,
    };
    for (size_t i = 0; i < from->n_user; i++) {
        out->user[i] = from->user[i];
    }
    return 0;
}

int report_from_message(const Zerod__V1__Grant *from, struct job_report *out, struct err *e) {
    *out = (struct job_report){.opened = fence_from_message(from->opened)};
    int code = 0;
    for (size_t i = 0; code == 0 && i < from->n_votes; i++) {
        struct vote v;
        code = vote_from_message(from->votes[i], &v, e);
        if (code == 0) {
            out->has_vote[v.fence.step % 2] = true;
            out->votes[v.fence.step % 2] = v;
        }
    }
    for (size_t i = 0; code == 0 && i < from->n_decisions; i++) {
        struct decision d;
        code = decision_from_message(from->decisions[i], &d, e);
        if (code == 0) {
            out->has_decision[d.fence.step % 2] = true;
            out->decisions[d.fence.step % 2] = d;
        }
    }
    return code;
}

/* The casts below take const away: protobuf-c has no const members, and packing only reads. */

void vote_to_message(const struct vote *from, bool with_shared_cursor, struct vote_message *to) {
    zerod__v1__vote__init(&to->vote);
    zerod__v1__scalars__init(&to->scalars);
    to->fence = fence_to_message(&from->fence);
    to->scalars.learning_rate = from->scalars.learning_rate;
    to->scalars.clip = from->scalars.clip;
    to->scalars.micro_batches = from->scalars.micro_batches;
    to->vote.fence = &to->fence;
    to->vote.scalars = &to->scalars;
    to->vote.yes = from->yes;
    to->vote.code = from->code;
    to->vote.reason = (char *)from->reason;
    to->vote.sum_of_squares = from->sum_squares;
    to->vote.non_finite = from->non_finite;
    to->vote.weight = from->weight;
    to->vote.n_user = from->user_count;
    to->vote.user = (double *)from->user;
    to->vote.checksum = from->checksum;
    to->vote.n_checksums = from->checksum_count;
    to->vote.checksums = (uint64_t *)from->checksums;
    if (with_shared_cursor) {
        to->vote.shared_cursor.len = from->shared_cursor_bytes;
        to->vote.shared_cursor.data = (uint8_t *)from->shared_cursor;
    }
}

void decision_to_message(const struct decision *from, struct decision_message *to) {
    zerod__v1__decision__init(&to->decision);
    to->fence = fence_to_message(&from->fence);
    to->decision.fence = &to->fence;
    to->decision.outcome = (uint32_t)from->outcome;
    to->decision.t = from->t;
    to->decision.skips_in_row = from->skips_in_row;
    to->decision.grad_norm = from->scalars.grad_norm;
    to->decision.n_user = from->user_count;
    to->decision.user = (double *)from->user;
    to->decision.multiplier = from->scalars.multiplier;
    to->decision.decay = from->scalars.decay;
    to->decision.step_size = from->scalars.step_size;
    to->decision.inv_sqrt_c2 = from->scalars.inv_sqrt_c2;
    to->decision.first = from->scalars.first;
    to->decision.loss_scale = from->scale.scale;
    to->decision.scale_good = from->scale.good;
    to->decision.scale_hysteresis = from->scale.hysteresis;
    to->decision.learning_rate = from->learning_rate;
    to->decision.shared_cursor.len = from->shared_cursor_bytes;
    to->decision.shared_cursor.data = (uint8_t *)from->shared_cursor;
}
