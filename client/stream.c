/* The stream of one attachment: requests out, the daemon's messages in. Each message is turned into
 * state here at once, in the order in which the daemon sent them; a message of another fence than
 * that of the open try is of the past and ignored. Anything that cannot be true ends the attachment
 * before memory is touched. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/client.h"
#include "proto/framing.h"
#include "proto/grpc_server.h"
#include "proto/unpack.h"

enum { DRAIN_TURNS = 1024 }; /* a daemon that never stops talking holds no call up */

/* ---- state ---- */

void state_void(struct zerod *z, int code, const char *text) {
    if (z->state != STATE_OPEN) {
        return;
    }
    z->state = STATE_VOID;
    z->asked = (struct asked){0};
    z->given_is_next = false;
    lending_revoke(&z->lending);
    (void)err_set(&z->why, (enum status)code, "%s", text);
}

void state_dead(struct zerod *z, int code, const char *text) {
    if (z->state == STATE_DEAD) {
        return;
    }
    bool in_doubt = z->asked.kind == ASKED_STEP;
    z->state = STATE_DEAD;
    lending_revoke(&z->lending);
    if (in_doubt) { /* the vote may have been cast: nobody here can say */
        (void)err_set(&z->why, ST_UNAVAILABLE, "outcome of step %" PRIu64 " unknown: %s",
                      z->fence.step, text);
    } else {
        (void)err_set(&z->why, (enum status)code, "%s", text);
    }
}

static struct fence fence_of(const Zerod__V1__Fence *f) {
    return (struct fence){f->generation, f->step, f->attempt};
}

void state_enter(struct zerod *z, const Zerod__V1__Fence *fence, bool loading) {
    lending_revoke(&z->lending);
    z->fence = fence_of(fence);
    z->loading = loading;
    z->state = STATE_OPEN;
    z->fresh = true;
    z->asked = (struct asked){0};
    z->pending = (struct err){0};
}

/* The daemon said what cannot be. */
static void broken(struct zerod *z, const char *text) {
    state_dead(z, ST_INTERNAL, text);
    if (z->stream) {
        grpc_client_cancel(z->stream);
    }
}

/* ---- what the daemon says ---- */

static bool is_current(const struct zerod *z, const Zerod__V1__Fence *f) {
    const struct fence said = f ? fence_of(f) : (struct fence){0};
    return f && z->state == STATE_OPEN && fence_equal(&said, &z->fence);
}

static bool is_answer(const struct zerod *z, uint64_t id, enum asked_kind kind) {
    return z->asked.kind == kind && z->asked.id == id;
}

static void keep_bytes(struct buf *to, const uint8_t *bytes, size_t n) {
    buf_consume(to, buf_unread(to));
    buf_append(to, bytes, n);
}

static bool is_scale(double s) {
    return isfinite(s) && s > 0;
}

static void on_entered(struct zerod *z, uint64_t id, const Zerod__V1__Entered *m) {
    if (!is_answer(z, id, ASKED_BEGIN) || !m->fence) {
        broken(z, "the daemon entered a try that nobody asked for");
        return;
    }
    if (m->rank_cursor.len > ZEROD_CURSOR || m->shared_cursor.len > ZEROD_CURSOR) {
        broken(z, "the daemon gave a cursor of more than 65536 bytes");
        return;
    }
    if (!is_scale(m->loss_scale)) {
        broken(z, "the daemon entered a try with a loss scale that is not above 0");
        return;
    }
    state_enter(z, m->fence, m->loading);
    z->loss_scale = m->loss_scale;
    keep_bytes(&z->current.rank, m->rank_cursor.data, m->rank_cursor.len);
    keep_bytes(&z->current.shared, m->shared_cursor.data, m->shared_cursor.len);
    z->given_is_next = false;
    (void)snprintf(z->void_reason, sizeof z->void_reason, "%s", m->void_reason);
}

static void on_outcome(struct zerod *z, uint64_t id, const Zerod__V1__Outcome *m) {
    if (!is_answer(z, id, ASKED_STEP) || !m->next || m->n_user > ZEROD_USER ||
        !is_scale(m->loss_scale) ||
        (m->kind != ZEROD__V1__OUTCOME_KIND__OUTCOME_COMMITTED &&
         m->kind != ZEROD__V1__OUTCOME_KIND__OUTCOME_SKIPPED)) {
        broken(z, "the daemon sent an outcome that fits no step");
        return;
    }
    z->outcome = (struct zerod_outcome){
        .kind = (enum zerod_outcome_kind)m->kind,
        .grad_norm = m->grad_norm,
        .next_step = m->next->step,
        .loss_scale = m->loss_scale,
    };
    for (size_t i = 0; i < m->n_user; i++) {
        z->outcome.user[i] = m->user[i];
    }
    z->have_outcome = true;
    state_enter(z, m->next, false);
    z->loss_scale = m->loss_scale;
    z->given_is_next = true;
    z->void_reason[0] = '\0';
}

static void on_refused(struct zerod *z, uint64_t id, const Zerod__V1__Refused *m) {
    int code = m->code >= ST_CANCELLED && m->code <= ST_UNAUTHENTICATED ? m->code : ST_UNKNOWN;
    bool mine = id && z->asked.kind != ASKED_NOTHING && z->asked.id == id;
    if (mine) {
        z->asked = (struct asked){0};
        (void)err_set(&z->refusal, (enum status)code, "%s", m->text);
    }
    if (m->void_) {
        state_void(z, code, m->text);
    } else if (!mine && z->state == STATE_OPEN && !z->pending.code) {
        (void)err_set(&z->pending, (enum status)code, "%s", m->text);
    }
}

static void on_done_answer(struct zerod *z, uint64_t id) {
    if (id == 0 || z->asked.id != id) {
        return; /* of a request whose try is over */
    }
    if (z->asked.kind == ASKED_BEGIN_EVAL || z->asked.kind == ASKED_END_EVAL) {
        lending_eval(&z->lending, z->asked.kind == ASKED_BEGIN_EVAL);
    } else if (z->asked.kind != ASKED_DETACH) {
        broken(z, "the daemon said done to what has another answer");
        return;
    }
    z->asked = (struct asked){0};
    z->answered = true;
}

static void on_registered(struct zerod *z, uint64_t id, Zerod__V1__TrainerReply *reply) {
    if (!is_answer(z, id, ASKED_REGISTER)) {
        broken(z, "the daemon registered us twice");
        return;
    }
    z->asked = (struct asked){0};
    z->registered = reply->registered; /* taken out of the reply, freed by attach.c */
    reply->registered = NULL;
    reply->answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER__NOT_SET;
}

static void on_push(struct zerod *z, const Zerod__V1__TrainerReply *r) {
    struct err e;
    int rc = 0;
    if (r->answer_case == ZEROD__V1__TRAINER_REPLY__ANSWER_GATHERED) {
        const Zerod__V1__Gathered *m = r->gathered;
        if (is_current(z, m->fence)) {
            rc = lending_gathered(&z->lending, m->eval, m->position, m->unit, m->offset, &e);
        }
    } else if (is_current(z, r->granted->fence)) {
        rc = lending_granted(&z->lending, r->granted->sequence, r->granted->offset, &e);
    }
    if (rc) {
        broken(z, e.text);
    }
}

static void take_in(struct zerod *z, Zerod__V1__TrainerReply *r) {
    switch (r->answer_case) {
    case ZEROD__V1__TRAINER_REPLY__ANSWER_REGISTERED:
        on_registered(z, r->id, r);
        return;
    case ZEROD__V1__TRAINER_REPLY__ANSWER_ENTERED:
        on_entered(z, r->id, r->entered);
        return;
    case ZEROD__V1__TRAINER_REPLY__ANSWER_GATHERED:
    case ZEROD__V1__TRAINER_REPLY__ANSWER_GRANTED:
        on_push(z, r);
        return;
    case ZEROD__V1__TRAINER_REPLY__ANSWER_OUTCOME:
        on_outcome(z, r->id, r->outcome);
        return;
    case ZEROD__V1__TRAINER_REPLY__ANSWER_REFUSED:
        on_refused(z, r->id, r->refused);
        return;
    case ZEROD__V1__TRAINER_REPLY__ANSWER_DONE:
        on_done_answer(z, r->id);
        return;
    default:
        return; /* a newer daemon's word */
    }
}

static void on_message(struct grpc_stream *s, const uint8_t *bytes, size_t len) {
    struct zerod *z = grpc_stream_data(s);
    if (z->state == STATE_DEAD) {
        return;
    }
    ProtobufCMessage *m = unpack_message(&zerod__v1__trainer_reply__descriptor, bytes, len);
    if (!m) {
        broken(z, "the daemon sent what is no message of zerod");
        return;
    }
    take_in(z, (Zerod__V1__TrainerReply *)m);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void on_end(struct grpc_stream *s, int code, const char *text) {
    struct zerod *z = grpc_stream_data(s);
    char words[ERR_TEXT];
    z->stream = NULL;
    (void)snprintf(words, sizeof words, "the daemon at %s ended the attachment: %s", z->address,
                   text[0] ? text : "no reason given");
    /* A trainer must not take it for the end of a try, or for a call's own answer. */
    bool passed_on =
        code == ST_INTERNAL || (z->attachment == 0 && code != ST_OK && code != ST_CANCELLED);
    state_dead(z, passed_on ? code : ST_UNAVAILABLE, words);
}

/* ---- requests ---- */

static const struct grpc_stream_handlers handlers = {.on_message = on_message, .on_done = on_end};

void stream_open(struct zerod *z) {
    z->stream = grpc_client_start(grpc_channel_client(z->channel), "/zerod.v1.Trainer/Attach",
                                  &handlers, z, GRPC_NEVER, clock_ns());
}

int64_t stream_deadline(const struct zerod *z) {
    int64_t now = clock_ns();
    return z->timeout_ns > INT64_MAX - now ? INT64_MAX : now + z->timeout_ns;
}

/* Of the channel: the stream's end said so already, unless there was none. */
static int lost(struct zerod *z, const struct err *e) {
    char words[ERR_TEXT];
    (void)snprintf(words, sizeof words, "the daemon at %s is gone: %.150s", z->address, e->text);
    state_dead(z, ST_UNAVAILABLE, words);
    return -ST_UNAVAILABLE;
}

static int pump(struct zerod *z, int64_t timeout_ns) {
    struct err e = {0};
    z->put = false;
    int rc = grpc_channel_pump(z->channel, timeout_ns, &e);
    return rc < 0 ? lost(z, &e) : rc;
}

void stream_look(struct zerod *z) {
    struct err e = {0};
    if (z->put) {
        stream_drain(z);
    } else if (z->state != STATE_DEAD && grpc_channel_look(z->channel, &e) < 0) {
        (void)lost(z, &e);
    }
}

void stream_drain(struct zerod *z) {
    for (int turn = 0; turn < DRAIN_TURNS && z->state != STATE_DEAD && pump(z, 0) > 0; turn++) {
    }
}

int stream_wait(struct zerod *z, int64_t deadline) {
    int64_t now = clock_ns();
    if (now >= deadline) {
        return -ST_DEADLINE_EXCEEDED;
    }
    (void)pump(z, deadline == INT64_MAX ? -1 : deadline - now);
    return 0;
}

static int queue(struct zerod *z, Zerod__V1__TrainerRequest *request) {
    Zerod__V1__Fence fence = ZEROD__V1__FENCE__INIT;
    if (z->state == STATE_OPEN) {
        fence.generation = z->fence.generation;
        fence.step = z->fence.step;
        fence.attempt = z->fence.attempt;
        request->fence = &fence;
    }
    int rc = z->stream ? grpc_client_send(z->stream, &request->base) : -ST_CANCELLED;
    request->fence = NULL;
    if (rc == -ST_RESOURCE_EXHAUSTED) {
        return client_fail(z, ST_RESOURCE_EXHAUSTED,
                           "a message of %zu bytes, larger than gRPC's "
                           "limit of %d",
                           protobuf_c_message_get_packed_size(&request->base), GRPC_MESSAGE_MAX);
    }
    if (rc) {
        stream_drain(z); /* learns why */
        state_dead(z, ST_UNAVAILABLE, "the stream to the daemon has ended");
        return client_fail_with(z, &z->why);
    }
    return 0;
}

int stream_ask(struct zerod *z, enum asked_kind kind, uint32_t unit,
               Zerod__V1__TrainerRequest *request) {
    request->id = ++z->last_id;
    z->refusal = (struct err){0};
    z->answered = false;
    int rc = queue(z, request);
    if (!rc) {
        z->asked = (struct asked){kind, unit, request->id};
        z->fresh = false;
    }
    return rc;
}

/* A daemon that does not read makes the caller wait here, not grow. */
int stream_room(struct zerod *z) {
    int64_t deadline = stream_deadline(z);
    while (z->stream && grpc_stream_full(z->stream)) {
        if (stream_wait(z, deadline)) {
            return client_fail(z, ST_DEADLINE_EXCEEDED, "the daemon at %s takes no messages",
                               z->address);
        }
    }
    return z->state == STATE_OPEN ? 0 : client_fail_with(z, &z->why);
}

int stream_put(struct zerod *z, Zerod__V1__TrainerRequest *request) {
    int rc = stream_room(z);
    rc = rc ? rc : queue(z, request);
    if (rc) {
        return rc;
    }
    z->fresh = false;
    z->put = true;
    return 0;
}

int stream_tell(struct zerod *z, Zerod__V1__TrainerRequest *request) {
    int rc = stream_put(z, request);
    if (rc) {
        return rc;
    }
    stream_drain(z);
    return z->state == STATE_OPEN ? 0 : client_fail_with(z, &z->why);
}
