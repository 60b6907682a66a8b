/* The simulated daemon around job/'s rank machine: what the daemon's main wires up. */
#include <string.h>

#include "world.h"

/* ---- to the coordinator ---- */

static void fix_cursors(struct vote *v) {
    v->rank_cursor = cursor_bytes(cursor_value(v->rank_cursor, v->rank_cursor_bytes));
    v->shared_cursor = cursor_bytes(cursor_value(v->shared_cursor, v->shared_cursor_bytes));
}

static void on_grant(void *ctx, uint64_t generation, const uint8_t uuid[JOB_UUID],
                     const struct job_report *report) {
    struct sim_rank *r = ctx;
    sim_point("before a grant is sent");
    if (generation < r->granted) {
        violate("rank %u grants g%llu after g%llu", r->rank, (unsigned long long)generation,
                (unsigned long long)r->granted);
    }
    r->granted = generation;
    r->granted_to[generation % GENERATIONS] = (uint8_t)(uuid[0] - 1);
    struct message *m = message_new(GRANT, r->rank, uuid[0] - 1u);
    m->generation = generation;
    m->report = *report;
    for (unsigned i = 0; i < 2; i++) {
        fix_cursors(&m->report.votes[i]);
        struct decision *d = &m->report.decisions[i];
        d->shared_cursor = cursor_bytes(cursor_value(d->shared_cursor, d->shared_cursor_bytes));
    }
    message_send(m);
}

static void on_refuse(void *ctx, uint64_t generation, const uint8_t uuid[JOB_UUID]) {
    const struct sim_rank *r = ctx;
    for (unsigned k = 0; k < w.started; k++) {
        if (w.coordinators[k].job && k + 1 != uuid[0]) {
            struct message *m = message_new(REFUSE, r->rank, k);
            m->generation = generation;
            m->other = uuid[0] - 1u;
            message_send(m);
        }
    }
}

static void on_vote(void *ctx, const struct vote *v) {
    struct sim_rank *r = ctx;
    struct message *m =
        message_new(VOTE, r->rank, r->granted_to[v->fence.generation % GENERATIONS]);
    tell("rank %u votes %s " FENCE " %s", r->rank, v->yes ? "YES" : "NO", F(&v->fence), v->reason);
    m->vote = *v;
    m->vote.checksums = sim_checksums; /* the machine may be gone when the message arrives */
    fix_cursors(&m->vote);
    message_send(m);
    sim_point("after sending a vote");
}

/* ---- to the engine ---- */

static void on_open(void *ctx, const struct fence *f) {
    struct sim_rank *r = ctx;
    if (r->engine.fence.generation && fence_compare(f, &r->engine.fence) <= 0) {
        violate("rank %u opens " FENCE " after " FENCE, r->rank, F(f), F(&r->engine.fence));
    }
    engine_open(r, f);
}

static void on_cancel(void *ctx, const struct fence *f) {
    struct sim_rank *r = ctx;
    if (r->engine.trying && fence_compare(f, &r->engine.fence) == 0) {
        r->engine.trying = false;
    }
}

static void on_apply(void *ctx, const struct decision *d) {
    struct sim_rank *r = ctx;
    note_decision(d);
    if (d->fence.step + 1 < r->decided) {
        violate("rank %u had %llu steps decided and applies " FENCE, r->rank,
                (unsigned long long)r->decided, F(&d->fence));
    }
    r->decided = d->fence.step + 1;
    engine_apply(r, d);
    sim_point("after handing a decision to the engine");
}

static bool is_idle(void *ctx) {
    const struct sim_rank *r = ctx;
    return !r->engine.reading.any && !r->engine.late.any;
}

static bool is_quiet(void *ctx) {
    const struct sim_rank *r = ctx;
    return !r->engine.reading.any && !r->engine.applying;
}

/* ---- to the trainer ---- */

/* What the daemon would tell the trainer to multiply its loss with. */
static void check_scale_on_record(const struct sim_rank *r, const struct fence *f) {
    struct decision d;
    if (!f->step) {
        return;
    }
    if (!records_read_decision(r->memory.records, f->step - 1, &d) ||
        d.scale.scale != scale_for(f->step)) {
        violate("rank %u enters " FENCE " without its loss scale on record", r->rank, F(f));
    }
}

static void on_entered(void *ctx, const struct fence *f, const struct vote *committed,
                       const char *void_reason) {
    struct sim_rank *r = ctx;
    (void)void_reason;
    if (f->step && !committed) {
        violate("begin() of step %llu: the cursor committed with the step before is lost",
                (unsigned long long)f->step);
    }
    if (fence_compare(f, &r->entered) == 0) {
        violate("two trainers of rank %u enter " FENCE, r->rank, F(f));
    }
    check_scale_on_record(r, f);
    r->entered = *f;
    struct notice n = {.kind = ENTERED, .fence = *f};
    if (committed) {
        n.cursor = cursor_value(committed->rank_cursor, committed->rank_cursor_bytes);
    }
    if (committed &&
        cursor_value(committed->shared_cursor, committed->shared_cursor_bytes) != 100 + f->step) {
        violate("rank %u enters " FENCE " with another rank's or step's shared cursor", r->rank,
                F(f));
    }
    trainer_notice(r, &n);
}

static void on_stepped(void *ctx, const struct decision *d, const struct fence *next) {
    struct sim_rank *r = ctx;
    note_decision(d);
    r->entered = *next;
    trainer_notice(r, &(struct notice){.kind = STEPPED, .fence = d->fence, .next = *next});
}

static void on_voided(void *ctx, const struct fence *f, int code, const char *reason) {
    struct sim_rank *r = ctx;
    (void)reason;
    if (code != ST_ABORTED && code != ST_FAILED_PRECONDITION) {
        violate("rank %u hears that " FENCE " is void with code %d", r->rank, F(f), code);
    }
    note(f, OUTCOME_ABORT);
    trainer_notice(r, &(struct notice){.kind = VOIDED, .fence = *f});
}

static const struct job_rank_ops ops = {
    on_grant, on_refuse, on_vote,    on_open,    on_cancel, on_apply,
    is_idle,  is_quiet,  on_entered, on_stepped, on_voided,
};

/* ---- life and death ---- */

void daemon_start(struct sim_rank *r) {
    tell("rank %u: the daemon starts", r->rank);
    engine_resume(r);
    r->job = job_rank_new(r->rank, r->memory.records, &ops, r);
    for (unsigned k = 0; k < w.started; k++) {
        if (w.coordinators[k].job) {
            connect_to(r->rank, k);
        }
    }
}

void daemon_die(struct sim_rank *r, bool messages) {
    tell("rank %u: the daemon dies%s", r->rank, messages ? " and its messages are lost" : "");
    job_rank_del(r->job);
    r->job = NULL;
    r->lost_trainer = false;
    if (messages) {
        messages_lost(r->rank, COORDINATORS);
    }
    for (unsigned k = 0; k < w.started; k++) {
        message_send(message_new(CLOSED, r->rank, k));
    }
    if (r->trainer.status != GONE) {
        r->trainer.status = DETACHED;
    }
    r->trainer.notice_count = 0;
}

bool daemon_acts(struct sim_rank *r) {
    if (!r->job) {
        daemon_start(r);
        return true;
    }
    if (!r->lost_trainer) {
        return false;
    }
    tell("rank %u: the daemon notices its trainer's death", r->rank);
    r->lost_trainer = false;
    PLANT(arena_outlives_yes, r->slot.any = false);
    job_rank_detached(r->job, ST_ABORTED, "the trainer died");
    return true;
}
