/* The stream to the coordinator: dialled at start (again and again for some seconds, since the two
 * start in any order), then one message after the other. Its loss ends the job: a later version's
 * daemon waits for another coordinator here. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/unpack.h"
#include "zerod/session.h"

#define DIAL_FOR_NS INT64_C(10000000000)
enum { REDIAL_MS = 20, REASON = 512 };

void link_send(struct rank *r, const Zerod__V1__DaemonMessage *m) {
    if (r->stream && grpc_client_send(r->stream, &m->base) == -ST_RESOURCE_EXHAUSTED) {
        rank_end(r, "the coordinator does not read its messages");
    }
}

/* A trainer may be quicker than our dialling: its model then waits for the stream. */
void link_send_registration(struct rank *r, const uint8_t *bytes, size_t n) {
    Zerod__V1__DaemonMessage m = ZEROD__V1__DAEMON_MESSAGE__INIT;
    if (!r->stream) {
        buf_free(&r->unsent);
        buf_append(&r->unsent, bytes, n);
        return;
    }
    m.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_REGISTRATION;
    m.registration = (ProtobufCBinaryData){n, (uint8_t *)bytes};
    link_send(r, &m);
}

static void say_hello(struct rank *r) {
    Zerod__V1__Hello hello = ZEROD__V1__HELLO__INIT;
    hello.job = (char *)r->options.job;
    hello.rank = (uint32_t)r->options.rank;
    hello.world_size = (uint32_t)r->options.world;
    hello.pid = (uint64_t)uv_os_getpid();
    hello.address = (char *)r->options.listen;
    hello.handover_path = (char *)r->options.handover;
    hello.granted = job_rank_granted(r->job);
    Zerod__V1__DaemonMessage m = ZEROD__V1__DAEMON_MESSAGE__INIT;
    m.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_HELLO;
    m.hello = &hello;
    link_send(r, &m);
}

/* ---- from the coordinator ---- */

static void on_agreed(struct rank *r) {
    struct err e = {0};
    if (r->agreed || !r->has_model) {
        rank_end(r, "the coordinator agreed to a model that nobody registered");
        return;
    }
    r->agreed = true;
    if (rank_memory_allocate(r, &e)) {
        session_refused(r, e.code, e.text);
        rank_end(r, e.text);
        return;
    }
    if (r->options.dry_run) {
        return; /* its trainer waits; whoever asked for the dry run ends it */
    }
    session_agreed(r);
    Zerod__V1__Ready ready = ZEROD__V1__READY__INIT;
    Zerod__V1__DaemonMessage m = ZEROD__V1__DAEMON_MESSAGE__INIT;
    m.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_READY;
    m.ready = &ready;
    link_send(r, &m);
    r->ready = true;
    rpc_health_set(r->serve.health, "zerod.v1.Trainer", true);
}

static void on_ask(struct rank *r, const Zerod__V1__Ask *m) {
    if (m->coordinator.len != JOB_UUID) {
        rank_end(r, "the coordinator asked without its uuid");
        return;
    }
    job_rank_on_ask(r->job, m->generation, m->coordinator.data);
}

static void on_open_try(struct rank *r, const Zerod__V1__OpenTry *m) {
    if (!r->engine || !m->fence) {
        rank_end(r, "the coordinator opened a try before memory was ready");
        return;
    }
    struct fence f = fence_from_message(m->fence);
    job_rank_on_begin(r->job, &f, m->code, m->reason);
}

static void on_decision(struct rank *r, const Zerod__V1__Announce *m) {
    struct decision d;
    struct err e = {0};
    if (!r->engine || !m->decision || decision_from_message(m->decision, &d, &e)) {
        rank_end(r, e.code ? e.text : "the coordinator announced nothing");
        return;
    }
    job_rank_on_decision(r->job, m->generation, &d);
}

static void on_drilled(struct rank *r) {
    r->drill.done = true;
    if (r->session) {
        calls_resume_step(r->session);
    }
}

static void on_finished(struct rank *r, const Zerod__V1__Finished *m) {
    if (m->rank < r->options.world && m->rank != r->options.rank) {
        session_peer_finished(r, m->rank);
    }
}

/* What goes on to the trainer ends its stream, so it must be a status, and an error. */
static void on_refused(struct rank *r, const Zerod__V1__Refused *m) {
    const bool known = m->code > ST_OK && m->code <= ST_UNAUTHENTICATED;
    session_refused(r, known ? m->code : ST_UNKNOWN,
                    m->text[0] ? m->text
                               : "the coordinator refused the model and does not say why");
}

static void dispatch(struct rank *r, const Zerod__V1__CoordinatorMessage *m) {
    switch (m->what_case) {
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_ASK:
        on_ask(r, m->ask);
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_AGREED:
        on_agreed(r);
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_REFUSED:
        on_refused(r, m->refused);
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_OFFER:
        rank_memory_take_offer(r, m->offer);
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_BEGIN:
        on_open_try(r, m->begin);
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_DECISION:
        on_decision(r, m->decision);
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_STOP:
        rank_end(r, m->stop->reason[0] ? m->stop->reason
                                       : "the coordinator ended the job and does not say why");
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_FINISHED:
        on_finished(r, m->finished);
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_DRILLED:
        on_drilled(r);
        break;
    default:
        rank_end(r, "the coordinator sent a message without content");
    }
}

static void on_message(struct grpc_stream *stream, const uint8_t *bytes, size_t len) {
    struct rank *r = grpc_stream_data(stream);
    Zerod__V1__CoordinatorMessage *m = (Zerod__V1__CoordinatorMessage *)unpack_message(
        &zerod__v1__coordinator_message__descriptor, bytes, len);
    if (!m) {
        rank_end(r, "the coordinator sent what is no CoordinatorMessage");
        return;
    }
    if (!r->ending) {
        dispatch(r, m);
    }
    zerod__v1__coordinator_message__free_unpacked(m, NULL);
}

static void on_done(struct grpc_stream *stream, int code, const char *text) {
    struct rank *r = grpc_stream_data(stream);
    char reason[REASON];
    r->stream = NULL;
    (void)snprintf(reason, sizeof reason, "the coordinator is gone: %s: %s", status_name(code),
                   text);
    rank_end(r, reason);
}

static const struct grpc_stream_handlers handlers = {.on_message = on_message, .on_done = on_done};

/* ---- dialling ---- */

static void on_closed(struct rpc_dial *d, const struct err *reason, void *user) {
    struct rank *r = user;
    (void)d;
    r->dial = NULL;
    if (!r->ending) {
        rank_end(r, reason->text);
    }
}

static void try_to_dial(uv_timer_t *t) {
    struct rank *r = t->data;
    struct err e = {0};
    if (rpc_dial(&r->loop, r->options.coordinator, on_closed, r, &r->dial, &e)) {
        if (e.code == ST_UNAVAILABLE && clock_ns() < r->dial_until_ns) {
            uv_timer_start(t, try_to_dial, REDIAL_MS, 0);
            return;
        }
        rank_end(r, e.text);
        return;
    }
    r->stream = grpc_client_start(rpc_dial_client(r->dial), "/zerod.v1.Coordinator/Join", &handlers,
                                  r, GRPC_NEVER, clock_ns());
    say_hello(r);
    if (buf_unread(&r->unsent)) {
        link_send_registration(r, buf_bytes(&r->unsent), buf_unread(&r->unsent));
        buf_free(&r->unsent);
    }
}

void link_start(struct rank *r) {
    uv_timer_init(&r->loop, &r->redial);
    r->redial.data = r;
    r->dial_until_ns = clock_ns() + DIAL_FOR_NS;
    uv_timer_start(&r->redial, try_to_dial, 0, 0);
}

void link_close(struct rank *r) {
    buf_free(&r->unsent);
    uv_close((uv_handle_t *)&r->redial, NULL);
    if (r->dial) {
        rpc_dial_close(r->dial);
    }
}
