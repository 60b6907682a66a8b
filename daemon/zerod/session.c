/* The Trainer service: one stream is one attachment.
 *
 * A trainer registers first; while an attached trainer's process lives and its stream is open,
 * another is refused by name. Its calls are in calls.c, the attachment's end in depart.c. */
#include "zerod/session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/unpack.h"

void session_say(struct session *s, Zerod__V1__TrainerReply *reply) {
    if (s->call && grpc_call_send(s->call, &reply->base) == -ST_RESOURCE_EXHAUSTED) {
        grpc_call_finish(s->call, ST_RESOURCE_EXHAUSTED, "the trainer does not read its answers");
    }
}

static void say_refused(struct grpc_call *call, uint64_t id, int code, const char *text,
                        bool is_void) {
    Zerod__V1__Refused refused = ZEROD__V1__REFUSED__INIT;
    Zerod__V1__TrainerReply reply = ZEROD__V1__TRAINER_REPLY__INIT;
    refused.code = code;
    refused.text = (char *)text;
    refused.void_ = is_void;
    reply.id = id;
    reply.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_REFUSED;
    reply.refused = &refused;
    (void)grpc_call_send(call, &reply.base);
}

void session_refuse(struct session *s, uint64_t id, int code, const char *text, bool is_void) {
    if (s->call) {
        say_refused(s->call, id, code, text, is_void);
    }
}

/* ---- registering ---- */

static void refuse_registration(struct session *s, const struct err *e) {
    struct grpc_call *call = s->call;
    session_refuse(s, s->register_id, e->code, e->text, false);
    session_drop(s);
    grpc_call_fail(call, e);
}

void session_attach(struct session *s) {
    struct rank *r = s->rank;
    struct err e = {0};
    int fds[2];
    uint64_t bytes[2];
    uint8_t token[HANDOVER_TOKEN];
    r->attachment++;
    int code = rank_memory_attach(r, &e);
    if (code == 0) {
        engine_trainer_fds(r->engine, fds, bytes);
        code = handover_ticket(r->handover, fds, 2, token, &e);
    }
    if (code) {
        refuse_registration(s, &e);
        return;
    }
    s->state = SESSION_ATTACHED;
    registered_say(s, token, bytes);
    job_rank_attached(r->job, r->attachment);
}

void session_agreed(struct rank *r) {
    if (r->session && r->session->state == SESSION_AGREEING) {
        session_attach(r->session);
    }
}

void session_refused(struct rank *r, int code, const char *text) {
    if (r->session && r->session->state == SESSION_AGREEING) {
        struct err e;
        (void)err_set(&e, (enum status)code, "%s", text);
        refuse_registration(r->session, &e);
    }
}

void session_determined(struct rank *r) {
    if (r->session && r->session->state == SESSION_WAITING && !r->in_doubt) {
        session_attach(r->session);
    }
}

/* A first registration goes to the coordinator, later ones must equal what was agreed. */
static int take_model(struct rank *r, const Zerod__V1__Model *message, struct err *e) {
    struct model m;
    int code = model_from_message(message, &r->options.defaults, &m, e);
    if (code == 0 && r->agreed) {
        code = model_difference(&r->model, (unsigned)r->options.rank, &m, (unsigned)r->options.rank,
                                e);
    }
    if (code || r->agreed) {
        model_free(&m);
        return code;
    }
    model_free(&r->model);
    r->model = m;
    r->has_model = true;
    Zerod__V1__Model filled = *message;
    model_fill_message(&m, &filled);
    size_t n = zerod__v1__model__get_packed_size(&filled);
    uint8_t *bytes = mem_zeroed(n, 1);
    (void)zerod__v1__model__pack(&filled, bytes);
    buf_free(&r->registration);
    buf_append(&r->registration, bytes, n);
    link_send_registration(r, bytes, n);
    free(bytes);
    return 0;
}

static struct session *session_new(struct rank *r, struct grpc_call *call, int pidfd) {
    struct session *s = mem_zeroed(1, sizeof *s);
    s->rank = r;
    s->call = call;
    s->pid = grpc_call_peer(call)->pid;
    s->group = r->options.trainer_groups ? getpgid(s->pid) : 0;
    s->pidfd = pidfd;
    uv_poll_init(&r->loop, &s->death, pidfd);
    s->death.data = s;
    uv_poll_start(&s->death, UV_READABLE, session_on_death);
    grpc_call_set_data(call, s);
    r->session = s;
    return s;
}

static int may_register(struct rank *r, struct err *e) {
    if (r->ending) {
        return err_set(e, ST_UNAVAILABLE, "rank %u's daemon is ending", (unsigned)r->options.rank);
    }
    if (r->session) {
        return err_set(e, ST_ALREADY_EXISTS, "rank %u has a live trainer, pid %d",
                       (unsigned)r->options.rank, (int)r->session->pid);
    }
    return 0;
}

static void register_trainer(struct rank *r, struct grpc_call *call,
                             const Zerod__V1__TrainerRequest *m) {
    struct err e = {0};
    int pidfd = -1;
    int code = may_register(r, &e);
    if (code == 0) {
        pidfd = (int)syscall(SYS_pidfd_open, grpc_call_peer(call)->pid, 0);
        if (pidfd < 0) {
            code = err_set(&e, ST_FAILED_PRECONDITION, "the trainer's pid %d cannot be watched: %s",
                           (int)grpc_call_peer(call)->pid, strerror(errno));
        }
    }
    if (code) {
        say_refused(call, m->id, e.code, e.text, false);
        grpc_call_fail(call, &e);
        return;
    }
    session_end_farewell(r);
    struct session *s = session_new(r, call, pidfd);
    s->register_id = m->id;
    s->state = r->agreed ? SESSION_WAITING : SESSION_AGREEING;
    if (!m->register_->model || take_model(r, m->register_->model, &e)) {
        if (!e.code) {
            (void)err_set(&e, ST_INVALID_ARGUMENT, "register without a model");
        }
        refuse_registration(s, &e);
        return;
    }
    session_determined(r);
}

/* ---- the stream ---- */

static void on_message(struct grpc_call *call, const uint8_t *bytes, size_t len) {
    struct rank *r = grpc_call_context(call);
    struct session *s = grpc_call_data(call);
    Zerod__V1__TrainerRequest *m = (Zerod__V1__TrainerRequest *)unpack_message(
        &zerod__v1__trainer_request__descriptor, bytes, len);
    if (!m) {
        grpc_call_finish(call, ST_INVALID_ARGUMENT, "not a TrainerRequest");
        return;
    }
    bool registers = m->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_REGISTER;
    if (!s && registers) {
        register_trainer(r, call, m);
    } else if (!s || registers || s->state != SESSION_ATTACHED) {
        grpc_call_finish(call, ST_FAILED_PRECONDITION,
                         registers ? "registered already" : "register first, and wait for it");
    } else if (m->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_STEP && !s->held) {
        s->held = m; /* calls.c decides when job/ hears of it */
        calls_dispatch(s, m);
        return;
    } else {
        calls_dispatch(s, m);
    }
    zerod__v1__trainer_request__free_unpacked(m, NULL);
}

static void on_half_close(struct grpc_call *call) {
    grpc_call_finish(call, ST_OK, NULL);
}

static void on_done(struct grpc_call *call) {
    struct session *s = grpc_call_data(call);
    if (s) {
        s->call = NULL;
        session_lost(s);
    }
}

static const struct grpc_method methods[] = {
    {.path = "/zerod.v1.Trainer/Attach",
     .role = GRPC_TRAIN,
     .kind = GRPC_BIDI,
     .on_message = on_message,
     .on_half_close = on_half_close,
     .on_done = on_done},
};

const struct grpc_service *session_service(struct rank *r) {
    static struct grpc_service service = {.methods = methods, .method_count = 1};
    service.context = r;
    return &service;
}
