/* The ops between job/, engine/ and the trainer's session. They only pass on: what a decision or a
 * vote means is job/'s, what a collective is the engine's. None calls back into job/. */
#include "zerod/rank.h"

#include "base/clock.h"
#include "zerod/session.h"

static struct session *in_try(struct rank *r) {
    return r->session && r->session->state == SESSION_ATTACHED && r->session->entered ? r->session
                                                                                      : NULL;
}

/* ---- job/ to the coordinator ---- */

static void op_grant(void *ctx, uint64_t generation, const uint8_t uuid[JOB_UUID],
                     const struct job_report *report) {
    struct vote_message votes[2];
    struct decision_message decisions[2];
    Zerod__V1__Vote *vote_list[2];
    Zerod__V1__Decision *decision_list[2];
    Zerod__V1__Grant m = ZEROD__V1__GRANT__INIT;
    m.generation = generation;
    m.coordinator = (ProtobufCBinaryData){JOB_UUID, (uint8_t *)uuid};
    m.votes = vote_list;
    m.decisions = decision_list;
    for (int i = 0; i < 2; i++) {
        if (report->has_vote[i]) {
            vote_to_message(&report->votes[i], true, &votes[i]);
            vote_list[m.n_votes++] = &votes[i].vote;
        }
        if (report->has_decision[i]) {
            decision_to_message(&report->decisions[i], &decisions[i]);
            decision_list[m.n_decisions++] = &decisions[i].decision;
        }
    }
    Zerod__V1__Fence opened = fence_to_message(&report->opened);
    m.opened = &opened;
    Zerod__V1__DaemonMessage out = ZEROD__V1__DAEMON_MESSAGE__INIT;
    out.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_GRANT;
    out.grant = &m;
    link_send(ctx, &out);
}

static void op_refuse(void *ctx, uint64_t generation, const uint8_t uuid[JOB_UUID]) {
    Zerod__V1__GrantedTo m = ZEROD__V1__GRANTED_TO__INIT;
    Zerod__V1__DaemonMessage out = ZEROD__V1__DAEMON_MESSAGE__INIT;
    m.generation = generation;
    m.coordinator = (ProtobufCBinaryData){JOB_UUID, (uint8_t *)uuid};
    out.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_GRANTED_TO;
    out.granted_to = &m;
    link_send(ctx, &out);
}

static void op_vote(void *ctx, const struct vote *v) {
    struct rank *r = ctx;
    struct vote_message m;
    vote_to_message(v, r->options.rank == 0, &m);
    Zerod__V1__DaemonMessage out = ZEROD__V1__DAEMON_MESSAGE__INIT;
    out.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_VOTE;
    out.vote = &m.vote;
    link_send(r, &out);
    r->in_doubt = v->yes;
    if (drill_due(&r->drill, (unsigned)r->options.rank, DRILL_VOTED, &v->fence) && r->session) {
        drill_kill(&r->drill, r->session->pidfd);
        Zerod__V1__Drilled drilled = ZEROD__V1__DRILLED__INIT;
        zerod__v1__daemon_message__init(&out);
        out.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_DRILLED;
        out.drilled = &drilled;
        link_send(r, &out);
    }
}

/* ---- job/ to the engine ---- */

static void op_open(void *ctx, const struct fence *f) {
    struct rank *r = ctx;
    r->last_open = *f;
    r->in_doubt = false;
    engine_open(r->engine, f);
    uv_async_send(&r->work); /* an attach that waited for the outcome goes on from there */
}

static void op_cancel(void *ctx, const struct fence *f) {
    struct rank *r = ctx;
    r->in_doubt = false;
    engine_cancel(r->engine, f);
    uv_async_send(&r->work);
}

/* Nobody reads this rank's memory at a decision: before it all reads of the try are done, after it
 * peers wait for our part of the update. So the difference of two is what a step sent. */
static void count_step(struct rank *r) {
    struct engine_status now;
    engine_status(r->engine, &now);
    for (int g = 0; g < 2; g++) {
        r->sent_last_step[g] = traffic_since(&now.sent_by_group[g], &r->sent[g]);
        r->sent[g] = now.sent_by_group[g];
    }
}

static void op_apply(void *ctx, const struct decision *d) {
    struct rank *r = ctx;
    r->in_doubt = false;
    r->scale = d->scale.scale;
    r->skips_in_row = d->skips_in_row;
    count_step(r);
    if (drill_due(&r->drill, (unsigned)r->options.rank, DRILL_APPLY, &d->fence) && r->session) {
        drill_kill(&r->drill, r->session->pidfd);
    }
    engine_apply(r->engine, d->fence.step, d->outcome == OUTCOME_COMMIT, &d->scalars);
}

static bool op_idle(void *ctx) {
    struct rank *r = ctx;
    return !r->engine || engine_idle(r->engine);
}

static bool op_quiet(void *ctx) {
    struct rank *r = ctx;
    return !r->engine || engine_quiet(r->engine);
}

/* ---- job/ to the trainer ---- */

static void op_entered(void *ctx, const struct fence *f, const struct vote *committed,
                       const char *void_reason) {
    struct rank *r = ctx;
    struct session *s = r->session;
    if (!s || !s->begin_id) {
        return;
    }
    Zerod__V1__Fence fence = fence_to_message(f);
    Zerod__V1__Entered m = ZEROD__V1__ENTERED__INIT;
    m.fence = &fence;
    m.loading = f->step == 0;
    if (committed) {
        m.rank_cursor =
            (ProtobufCBinaryData){committed->rank_cursor_bytes, (uint8_t *)committed->rank_cursor};
        m.shared_cursor = (ProtobufCBinaryData){committed->shared_cursor_bytes,
                                                (uint8_t *)committed->shared_cursor};
    }
    m.loss_scale = r->scale;
    m.void_reason = (char *)void_reason;
    Zerod__V1__TrainerReply reply = ZEROD__V1__TRAINER_REPLY__INIT;
    reply.id = s->begin_id;
    reply.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_ENTERED;
    reply.entered = &m;
    s->begin_id = 0;
    session_say(s, &reply);
    calls_enter(s, f);
    engine_enter(r->engine);
}

static void op_stepped(void *ctx, const struct decision *d, const struct fence *next) {
    struct rank *r = ctx;
    struct session *s = in_try(r);
    if (!s || !s->step_id) {
        return;
    }
    Zerod__V1__Fence fence = fence_to_message(next);
    Zerod__V1__Outcome m = ZEROD__V1__OUTCOME__INIT;
    m.kind = d->outcome == OUTCOME_COMMIT ? ZEROD__V1__OUTCOME_KIND__OUTCOME_COMMITTED
                                          : ZEROD__V1__OUTCOME_KIND__OUTCOME_SKIPPED;
    m.grad_norm = d->scalars.grad_norm;
    m.n_user = d->user_count;
    m.user = (double *)d->user;
    m.next = &fence;
    m.loss_scale = d->scale.scale;
    Zerod__V1__TrainerReply reply = ZEROD__V1__TRAINER_REPLY__INIT;
    reply.id = s->step_id;
    reply.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_OUTCOME;
    reply.outcome = &m;
    s->step_id = 0;
    r->waits.step_ns += (uint64_t)(clock_ns() - s->step_since_ns);
    session_say(s, &reply);
    calls_enter(s, next);
    engine_enter(r->engine);
}

static void op_voided(void *ctx, const struct fence *f, int code, const char *reason) {
    struct rank *r = ctx;
    struct session *s = in_try(r);
    if (!s || !fence_equal(&s->fence, f)) {
        return; /* it left the try by itself and knows */
    }
    s->entered = false;
    uint64_t id = s->step_id;
    s->step_id = 0;
    session_refuse(s, id, code, reason, true);
}

const struct job_rank_ops rank_job_ops = {
    .grant = op_grant,
    .refuse = op_refuse,
    .vote = op_vote,
    .open = op_open,
    .cancel = op_cancel,
    .apply = op_apply,
    .idle = op_idle,
    .quiet = op_quiet,
    .entered = op_entered,
    .stepped = op_stepped,
    .voided = op_voided,
};

/* ---- from the engine ---- */

static void on_notify(void *ctx) {
    uv_async_send(&((struct rank *)ctx)->work);
}

static void on_gathered(void *ctx, const struct fence *f, uint32_t position, uint32_t unit,
                        uint64_t offset, bool eval) {
    struct session *s = in_try(ctx);
    if (!s || !fence_equal(&s->fence, f)) {
        return;
    }
    Zerod__V1__Fence fence = fence_to_message(f);
    Zerod__V1__Gathered m = ZEROD__V1__GATHERED__INIT;
    m.fence = &fence;
    m.position = position;
    m.unit = unit;
    m.offset = offset;
    m.eval = eval;
    Zerod__V1__TrainerReply reply = ZEROD__V1__TRAINER_REPLY__INIT;
    reply.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_GATHERED;
    reply.gathered = &m;
    session_say(s, &reply);
    if (eval != s->eval) {
        return;
    }
    if (++s->gathers_told == s->gathers_asked && s->gather_since_ns) {
        uint64_t waited = (uint64_t)(clock_ns() - s->gather_since_ns);
        s->gather_wait_ns += waited;
        s->rank->waits.gather_ns += waited;
        s->gather_since_ns = 0;
    }
}

static void on_granted(void *ctx, const struct fence *f, uint32_t sequence, uint64_t offset) {
    struct session *s = in_try(ctx);
    if (!s || !fence_equal(&s->fence, f)) {
        return;
    }
    Zerod__V1__Fence fence = fence_to_message(f);
    Zerod__V1__Granted m = ZEROD__V1__GRANTED__INIT;
    m.fence = &fence;
    m.sequence = sequence;
    m.offset = offset;
    Zerod__V1__TrainerReply reply = ZEROD__V1__TRAINER_REPLY__INIT;
    reply.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_GRANTED;
    reply.granted = &m;
    session_say(s, &reply);
}

static void on_reduced(void *ctx, const struct fence *f, double sum_squares, bool non_finite,
                       const uint64_t *checksums, size_t checksum_count) {
    struct rank *r = ctx;
    job_rank_reduced(r->job, f, sum_squares, non_finite, checksums, checksum_count);
}

static void on_progress(void *ctx) {
    job_rank_poke(((struct rank *)ctx)->job);
}

static void on_hashed(void *ctx, uint64_t sum, uint64_t version) {
    admin_hashed(ctx, sum, version);
}

const struct engine_callbacks rank_engine_callbacks = {
    .notify = on_notify,
    .gathered = on_gathered,
    .granted = on_granted,
    .reduced = on_reduced,
    .progress = on_progress,
    .hashed = on_hashed,
};

void rank_hear_engine(struct rank *r) {
    if (r->engine) {
        engine_events(r->engine);
    }
    if (!r->ending) {
        session_determined(r);
    }
}
