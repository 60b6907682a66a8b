/* A trainer's calls: each is checked against the fence, passed to the engine, and its error turned
 * into an answer, or into a doomed try when the trainer left its plan. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "zerod/session.h"

typedef int engine_call(struct engine *e, uint64_t unit, struct err *err);

static void release_held(struct session *s) {
    if (s->held) {
        zerod__v1__trainer_request__free_unpacked(s->held, NULL);
        s->held = NULL;
    }
}

/* The try cannot be finished: job/ votes NO, and this trainer hears of it first. */
static void doom(struct session *s, uint64_t id, const struct err *e) {
    struct rank *r = s->rank;
    char text[JOB_REASON];
    (void)snprintf(text, sizeof text, "rank %u: %s", (unsigned)r->options.rank, e->text);
    s->entered = false;
    s->step_id = 0;
    release_held(s);
    session_refuse(s, id, e->code, text, true);
    job_rank_doom(r->job, e->code, text);
}

/* Calls of a void try are dropped: their trainer has been told or is being told. */
static bool is_current(struct session *s, const Zerod__V1__TrainerRequest *m) {
    struct fence f = fence_from_message(m->fence);
    return s->entered && fence_equal(&f, &s->fence) && job_rank_check(s->rank->job, &f, NULL) == 0;
}

/* True: the trainer was killed here, and what it may have sent before is not looked at. */
static bool drill_here(struct session *s, enum drill_phase phase) {
    if (!drill_due(&s->rank->drill, (unsigned)s->rank->options.rank, phase, &s->fence)) {
        return false;
    }
    drill_kill(&s->rank->drill, s->pidfd);
    session_lose(s, "died in a drill");
    return true;
}

/* Has another rank's trainer finished, though this one goes on? Then the try is doomed. */
static bool goes_on_alone(struct session *s, uint64_t id) {
    struct rank *r = s->rank;
    unsigned rank = 0;
    struct err e;
    while (rank < r->options.world && !r->peer_finished[rank]) {
        rank++;
    }
    if (rank == r->options.world) {
        return false;
    }
    (void)err_set(&e, ST_FAILED_PRECONDITION,
                  "goes on with step %llu, before which rank %u's trainer has finished",
                  (unsigned long long)s->fence.step, rank);
    doom(s, id, &e);
    return true;
}

void session_peer_finished(struct rank *r, unsigned rank) {
    struct session *s = r->session;
    r->peer_finished[rank] = true;
    if (s && s->state == SESSION_ATTACHED && s->entered && !s->eval &&
        (s->gathers_asked || s->reduces_asked || s->step_id)) {
        (void)goes_on_alone(s, s->step_id);
    }
}

static uint32_t plan_middle(const struct rank *r, enum plan_kind kind) {
    const struct plan *train = model_plan(&r->model, "train");
    uint32_t count = 0;
    for (size_t i = 0; i < train->count; i++) {
        count += train->ops[i].kind == kind;
    }
    return count / 2;
}

static void on_gather(struct session *s, const Zerod__V1__TrainerRequest *m) {
    struct err e = {0};
    if (!s->eval && s->gathers_asked == plan_middle(s->rank, PLAN_GATHER) &&
        drill_here(s, DRILL_GATHER)) {
        return;
    }
    int code = engine_gather(s->rank->engine, m->gather->unit, &e);
    if (code == -ST_RESOURCE_EXHAUSTED) {
        session_refuse(s, m->id, e.code, e.text, false);
    } else if (code) {
        doom(s, m->id, &e);
    } else if (++s->gathers_asked > s->gathers_told) {
        s->gather_since_ns = clock_ns();
    }
}

static void on_prefetch(struct session *s, uint64_t id) {
    struct err e = {0};
    if (engine_prefetch(s->rank->engine, &e)) {
        doom(s, id, &e);
    }
}

static void on_one_way(struct session *s, uint64_t id, uint64_t unit, engine_call *call) {
    struct err e = {0};
    if (call(s->rank->engine, unit, &e)) {
        doom(s, id, &e);
    }
}

static void on_release(struct session *s, const Zerod__V1__TrainerRequest *m) {
    if (!s->eval && s->gathers_asked == plan_middle(s->rank, PLAN_GATHER) &&
        drill_here(s, DRILL_COMPUTE)) {
        return;
    }
    on_one_way(s, m->id, m->release->unit, engine_release);
}

static void on_reduce(struct session *s, const Zerod__V1__TrainerRequest *m) {
    if (s->reduces_asked++ == plan_middle(s->rank, PLAN_REDUCE) && drill_here(s, DRILL_REDUCE)) {
        return;
    }
    on_one_way(s, m->id, m->reduce->unit, engine_reduce);
}

static void say_done(struct session *s, uint64_t id) {
    Zerod__V1__Done done = ZEROD__V1__DONE__INIT;
    Zerod__V1__TrainerReply reply = ZEROD__V1__TRAINER_REPLY__INIT;
    reply.id = id;
    reply.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_DONE;
    reply.done = &done;
    session_say(s, &reply);
}

static void on_eval(struct session *s, uint64_t id, bool begins) {
    struct err e = {0};
    struct engine *engine = s->rank->engine;
    if (begins ? engine_begin_eval(engine, &e) : engine_end_eval(engine, &e)) {
        doom(s, id, &e);
        return;
    }
    s->eval = begins;
    s->gathers_asked = s->gathers_told = 0;
    say_done(s, id);
}

static void on_abort(struct session *s, const Zerod__V1__TrainerRequest *m) {
    struct err e;
    (void)err_set(&e, ST_ABORTED, "the trainer aborted step %llu: %.128s",
                  (unsigned long long)s->fence.step, m->abort->reason);
    doom(s, m->id, &e);
}

static void on_detach(struct session *s, const Zerod__V1__TrainerRequest *m) {
    s->detached = true;
    s->finished = m->detach->finished;
    say_done(s, m->id);
}

/* begin() makes sense only outside of a try. */
static void on_begin(struct session *s, const Zerod__V1__TrainerRequest *m) {
    if (s->entered || s->begin_id) {
        session_refuse(s, m->id, ST_FAILED_PRECONDITION, "begin() inside a try", false);
        return;
    }
    s->begin_id = m->id;
    job_rank_begin(s->rank->job);
}

/* ---- step ---- */

static int check_step(const struct session *s, const Zerod__V1__Step *m, struct err *e) {
    uint32_t k = s->rank->model.micro_batches;
    if (!isfinite(m->learning_rate) || m->learning_rate < 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "step: learning rate %g: must be finite and >= 0",
                       m->learning_rate);
    }
    if (!isfinite(m->clip) || m->clip < 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "step: clip %g: must be finite and >= 0", m->clip);
    }
    if (!isfinite(m->weight) || m->weight < 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "step: weight %g: must be finite and > 0",
                       m->weight);
    }
    if (m->micro_batches && m->micro_batches != k) {
        return err_set(e, ST_INVALID_ARGUMENT, "step: %u micro-batches, %u were registered",
                       m->micro_batches, k);
    }
    if (m->n_user > JOB_USER) {
        return err_set(e, ST_INVALID_ARGUMENT, "step: %zu user doubles, the limit is %d", m->n_user,
                       JOB_USER);
    }
    size_t longest =
        m->rank_cursor.len > m->shared_cursor.len ? m->rank_cursor.len : m->shared_cursor.len;
    if (longest > JOB_CURSOR) {
        return err_set(e, ST_INVALID_ARGUMENT, "step: a cursor of %zu bytes, the limit is %d",
                       longest, JOB_CURSOR);
    }
    return 0;
}

static void fill_vote(const struct rank *r, const Zerod__V1__Step *m, struct vote *v) {
    *v = (struct vote){
        .yes = true,
        .scalars = {m->learning_rate, m->clip, r->model.micro_batches},
        .weight = m->weight > 0 ? m->weight : 1,
        .user_count = (uint32_t)m->n_user,
        .rank_cursor_bytes = m->rank_cursor.len,
        .shared_cursor_bytes = m->shared_cursor.len,
        .rank_cursor = m->rank_cursor.data,
        .shared_cursor = m->shared_cursor.data,
    };
    for (size_t i = 0; i < m->n_user; i++) {
        v->user[i] = m->user[i];
    }
}

static void on_step(struct session *s, const Zerod__V1__TrainerRequest *m) {
    struct err e = {0};
    if (m != s->held) {
        session_refuse(s, m->id, ST_FAILED_PRECONDITION, "step: this try has one already", false);
        return;
    }
    if (check_step(s, m->step, &e)) {
        session_refuse(s, m->id, e.code, e.text, false);
        release_held(s);
        return;
    }
    if (engine_finish(s->rank->engine, &e)) {
        doom(s, m->id, &e);
        return;
    }
    s->step_id = m->id;
    s->step_since_ns = clock_ns();
    s->rank->waits.compute_ns += (uint64_t)(s->step_since_ns - s->try_since_ns) - s->gather_wait_ns;
    calls_resume_step(s);
}

void calls_resume_step(struct session *s) {
    struct rank *r = s->rank;
    struct vote v;
    if (!s->held || !s->entered || !s->step_id) {
        return;
    }
    if (drill_holds_vote(&r->drill, (unsigned)r->options.rank, &s->fence)) {
        return;
    }
    Zerod__V1__TrainerRequest *m = s->held;
    s->held = NULL;
    fill_vote(r, m->step, &v);
    job_rank_step(r->job, &v);
    zerod__v1__trainer_request__free_unpacked(m, NULL);
}

/* ---- all ---- */

void calls_enter(struct session *s, const struct fence *f) {
    s->fence = *f;
    s->entered = true;
    s->eval = false;
    s->gathers_asked = s->gathers_told = s->reduces_asked = 0;
    s->gather_wait_ns = 0;
    s->try_since_ns = clock_ns();
    release_held(s);
}

/* Calls that need the other ranks in the try. */
static bool is_joint(const struct session *s, const Zerod__V1__TrainerRequest *m) {
    return m->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_STEP ||
           m->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE ||
           (m->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_GATHER && !s->eval);
}

static void dispatch_current(struct session *s, const Zerod__V1__TrainerRequest *m) {
    if (is_joint(s, m) && goes_on_alone(s, m->id)) {
        return;
    }
    switch (m->call_case) {
    case ZEROD__V1__TRAINER_REQUEST__CALL_GATHER:
        on_gather(s, m);
        break;
    case ZEROD__V1__TRAINER_REQUEST__CALL_PREFETCH:
        on_prefetch(s, m->id);
        break;
    case ZEROD__V1__TRAINER_REQUEST__CALL_RELEASE:
        on_release(s, m);
        break;
    case ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE:
        on_reduce(s, m);
        break;
    case ZEROD__V1__TRAINER_REQUEST__CALL_LOAD:
        on_one_way(s, m->id, m->load->unit, engine_load);
        break;
    case ZEROD__V1__TRAINER_REQUEST__CALL_STEP:
        on_step(s, m);
        break;
    case ZEROD__V1__TRAINER_REQUEST__CALL_ABORT:
        on_abort(s, m);
        break;
    case ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN_EVAL:
        on_eval(s, m->id, true);
        break;
    case ZEROD__V1__TRAINER_REQUEST__CALL_END_EVAL:
        on_eval(s, m->id, false);
        break;
    default:
        grpc_call_finish(s->call, ST_INVALID_ARGUMENT, "a TrainerRequest without a call");
    }
}

static bool wants_answer(const Zerod__V1__TrainerRequest *m) {
    switch (m->call_case) {
    case ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN:
    case ZEROD__V1__TRAINER_REQUEST__CALL_STEP:
    case ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN_EVAL:
    case ZEROD__V1__TRAINER_REQUEST__CALL_END_EVAL:
    case ZEROD__V1__TRAINER_REQUEST__CALL_DETACH:
        return true;
    default:
        return false;
    }
}

/* A call that is not of the running try. Of a void one the trainer has been told, or is being told;
 * one that names a try of which it was never told would wait for ever. */
static void refuse_stray(struct session *s, const Zerod__V1__TrainerRequest *m) {
    struct fence f = fence_from_message(m->fence);
    struct err e;
    if (!wants_answer(m)) {
        return;
    }
    if (!f.attempt || !fence_equal(&f, &s->fence)) {
        (void)err_set(&e, ST_FAILED_PRECONDITION,
                      "a call in step %llu, attempt %llu, which this trainer has not entered",
                      (unsigned long long)f.step, (unsigned long long)f.attempt);
    } else if (!s->entered || job_rank_check(s->rank->job, &f, &e) != -ST_FAILED_PRECONDITION) {
        return;
    }
    session_refuse(s, m->id, e.code, e.text, false);
}

void calls_dispatch(struct session *s, const Zerod__V1__TrainerRequest *m) {
    if (wants_answer(m) && !m->id) {
        grpc_call_finish(s->call, ST_INVALID_ARGUMENT,
                         "a request that has an answer, without an id (from 1)");
    } else if (m->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN) {
        on_begin(s, m);
    } else if (m->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_DETACH) {
        on_detach(s, m);
    } else if (is_current(s, m)) {
        dispatch_current(s, m);
        return;
    } else {
        refuse_stray(s, m);
    }
    if (m == s->held) {
        release_held(s);
    }
}
