/* The Coordinator service: each daemon's stream, from Hello on. The models that the ranks
 * registered are compared here, offers of memory are relayed, and what concerns steps goes to job/.
 * The loss of a daemon ends the job (a later version waits for its successor here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/unpack.h"
#include "zerocoord/coord.h"

enum { REASON = 512 };

static void send_to(struct coord *c, unsigned rank, const Zerod__V1__CoordinatorMessage *m) {
    struct grpc_call *call = c->members[rank].call;
    if (call && grpc_call_send(call, &m->base) == -ST_RESOURCE_EXHAUSTED) {
        grpc_call_finish(call, ST_RESOURCE_EXHAUSTED, "the daemon does not read its messages");
    }
}

static void send_to_all(struct coord *c, const Zerod__V1__CoordinatorMessage *m) {
    for (unsigned i = 0; i < c->options.world; i++) {
        send_to(c, i, m);
    }
}

/* ---- job/ ---- */

static void op_ask(void *ctx, unsigned rank, uint64_t generation, const uint8_t uuid[JOB_UUID]) {
    Zerod__V1__Ask ask = ZEROD__V1__ASK__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    ask.generation = generation;
    ask.coordinator = (ProtobufCBinaryData){JOB_UUID, (uint8_t *)uuid};
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_ASK;
    m.ask = &ask;
    send_to(ctx, rank, &m);
}

static void op_begin(void *ctx, unsigned rank, const struct fence *f, int code,
                     const char *reason) {
    Zerod__V1__Fence fence = fence_to_message(f);
    Zerod__V1__OpenTry begin = ZEROD__V1__OPEN_TRY__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    begin.fence = &fence;
    begin.code = code;
    begin.reason = (char *)reason;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_BEGIN;
    m.begin = &begin;
    send_to(ctx, rank, &m);
}

static void op_decision(void *ctx, unsigned rank, uint64_t generation, const struct decision *d) {
    struct decision_message decision;
    Zerod__V1__Announce announce = ZEROD__V1__ANNOUNCE__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    decision_to_message(d, &decision);
    announce.generation = generation;
    announce.decision = &decision.decision;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_DECISION;
    m.decision = &announce;
    send_to(ctx, rank, &m);
}

static void op_determined(void *ctx, const struct decision *d, int code, const char *reason) {
    struct coord *c = ctx;
    c->steps += d->outcome != OUTCOME_ABORT && d->fence.step > 0;
    admin_tell(c, d, code, reason);
}

static void op_give_up(void *ctx, int code, const char *reason) {
    char text[REASON];
    (void)snprintf(text, sizeof text, "%s: %s", status_name(code), reason);
    coord_end(ctx, text);
}

const struct job_coordinator_ops coord_job_ops = {
    .ask = op_ask,
    .begin = op_begin,
    .decision = op_decision,
    .determined = op_determined,
    .give_up = op_give_up,
};

/* ---- agreeing on the model ---- */

static void forget_models(struct coord *c) {
    for (unsigned i = 0; i < c->options.world; i++) {
        model_free(&c->members[i].model);
        c->members[i].registered = false;
    }
}

static void refuse_all(struct coord *c, const struct err *e) {
    Zerod__V1__Refused refused = ZEROD__V1__REFUSED__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    refused.code = e->code;
    refused.text = (char *)e->text;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_REFUSED;
    m.refused = &refused;
    log_warn("the ranks' models differ: %s", e->text);
    send_to_all(c, &m);
    forget_models(c);
}

static void agree(struct coord *c) {
    struct err e = {0};
    for (unsigned i = 0; i < c->options.world; i++) {
        if (!c->members[i].registered) {
            return;
        }
    }
    for (unsigned i = 1; i < c->options.world; i++) {
        if (model_difference(&c->members[0].model, 0, &c->members[i].model, i, &e)) {
            refuse_all(c, &e);
            return;
        }
    }
    struct model *m0 = &c->members[0].model;
    c->units = m0->units; /* of the models only the units' names are still needed */
    m0->units = NULL;
    struct decide_options o = {.optimizer = m0->optimizer,
                               .scaling = m0->scaling,
                               .gradient_divisor = m0->gradient_divisor,
                               .max_skips_in_row = c->options.max_skips,
                               .units = c->units,
                               .unit_count = m0->unit_count};
    job_coordinator_options(c->job, &o);
    c->agreed = true;
    forget_models(c);
    Zerod__V1__Agreed agreed = ZEROD__V1__AGREED__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_AGREED;
    m.agreed = &agreed;
    send_to_all(c, &m);
}

static int on_registration(struct member *who, const ProtobufCBinaryData *bytes, struct err *e) {
    struct coord *c = who->coord;
    if (c->agreed) {
        return err_set(e, ST_FAILED_PRECONDITION, "rank %u: the job has a model already",
                       who->rank);
    }
    Zerod__V1__Model *m =
        (Zerod__V1__Model *)unpack_message(&zerod__v1__model__descriptor, bytes->data, bytes->len);
    if (!m) {
        return err_set(e, ST_INVALID_ARGUMENT, "rank %u: the registration is no Model", who->rank);
    }
    model_free(&who->model);
    int code = model_from_message(m, NULL, &who->model, e);
    zerod__v1__model__free_unpacked(m, NULL);
    who->registered = code == 0;
    if (code == 0) {
        agree(c);
    }
    return code;
}

/* ---- from the daemons ---- */

static int check_hello(const struct coord *c, const Zerod__V1__Hello *h, struct err *e) {
    if (strcmp(h->job, c->options.job) != 0) {
        return err_set(e, ST_FAILED_PRECONDITION, "this is job %.64s, rank %u is of job %.64s",
                       c->options.job, h->rank, h->job);
    }
    if (h->world_size != c->options.world || h->rank >= c->options.world) {
        return err_set(e, ST_INVALID_ARGUMENT, "rank %u of %u ranks: this job has %u", h->rank,
                       h->world_size, (unsigned)c->options.world);
    }
    if (c->members[h->rank].call) {
        return err_set(e, ST_ALREADY_EXISTS, "rank %u has a daemon, pid %llu", h->rank,
                       (unsigned long long)c->members[h->rank].pid);
    }
    return 0;
}

static int on_hello(struct coord *c, struct grpc_call *call, const Zerod__V1__Hello *h,
                    struct err *e) {
    int code = check_hello(c, h, e);
    if (code) {
        return code;
    }
    struct member *m = &c->members[h->rank];
    m->call = call;
    m->pid = h->pid;
    free(m->address);
    m->address = mem_text(h->address);
    grpc_call_set_data(call, m);
    job_coordinator_joined(c->job, m->rank, h->granted);
    return 0;
}

static int on_grant(struct member *who, const Zerod__V1__Grant *g, struct err *e) {
    struct job_report report;
    int code = report_from_message(g, &report, e);
    if (code == 0) {
        job_coordinator_on_grant(who->coord->job, who->rank, g->generation, &report);
    }
    return code;
}

static int on_granted_to(struct member *who, const Zerod__V1__GrantedTo *g, struct err *e) {
    if (g->coordinator.len != JOB_UUID) {
        return err_set(e, ST_INVALID_ARGUMENT, "rank %u: a uuid of %zu bytes, not %d", who->rank,
                       g->coordinator.len, JOB_UUID);
    }
    job_coordinator_on_refused(who->coord->job, who->rank, g->generation, g->coordinator.data);
    return 0;
}

static int on_vote(struct member *who, const Zerod__V1__Vote *m, struct err *e) {
    struct vote v;
    int code = vote_from_message(m, &v, e);
    if (code == 0) {
        job_coordinator_on_vote(who->coord->job, who->rank, &v, clock_ns());
    }
    return code;
}

static int on_offer(struct member *who, Zerod__V1__Offer *o, struct err *e) {
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    if (o->to >= who->coord->options.world || o->to == who->rank || o->rank != who->rank) {
        return err_set(e, ST_INVALID_ARGUMENT, "rank %u offers memory of rank %u to rank %u",
                       who->rank, o->rank, o->to);
    }
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_OFFER;
    m.offer = o;
    send_to(who->coord, o->to, &m);
    return 0;
}

static int on_ready(struct member *who, struct err *e) {
    struct coord *c = who->coord;
    if (!c->agreed) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "rank %u has memory for a model before all agreed", who->rank);
    }
    who->ready = true;
    for (unsigned i = 0; i < c->options.world; i++) {
        if (!c->members[i].ready) {
            return 0;
        }
    }
    job_coordinator_ready(c->job);
    return 0;
}

static void on_drilled(struct member *who) {
    Zerod__V1__Drilled drilled = ZEROD__V1__DRILLED__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_DRILLED;
    m.drilled = &drilled;
    send_to_all(who->coord, &m);
}

static void on_finished(struct member *who) {
    Zerod__V1__Finished finished = ZEROD__V1__FINISHED__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    finished.rank = who->rank;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_FINISHED;
    m.finished = &finished;
    send_to_all(who->coord, &m);
}

static int dispatch(struct member *who, const Zerod__V1__DaemonMessage *m, struct err *e) {
    switch (m->what_case) {
    case ZEROD__V1__DAEMON_MESSAGE__WHAT_GRANT:
        return on_grant(who, m->grant, e);
    case ZEROD__V1__DAEMON_MESSAGE__WHAT_GRANTED_TO:
        return on_granted_to(who, m->granted_to, e);
    case ZEROD__V1__DAEMON_MESSAGE__WHAT_REGISTRATION:
        return on_registration(who, &m->registration, e);
    case ZEROD__V1__DAEMON_MESSAGE__WHAT_OFFER:
        return on_offer(who, m->offer, e);
    case ZEROD__V1__DAEMON_MESSAGE__WHAT_VOTE:
        return on_vote(who, m->vote, e);
    case ZEROD__V1__DAEMON_MESSAGE__WHAT_READY:
        return on_ready(who, e);
    case ZEROD__V1__DAEMON_MESSAGE__WHAT_FINISHED:
        on_finished(who);
        return 0;
    case ZEROD__V1__DAEMON_MESSAGE__WHAT_DRILLED:
        on_drilled(who);
        return 0;
    default:
        return err_set(e, ST_INVALID_ARGUMENT, "rank %u sent a message that has no place here",
                       who->rank);
    }
}

static void on_message(struct grpc_call *call, const uint8_t *bytes, size_t len) {
    struct coord *c = grpc_call_context(call);
    struct member *who = grpc_call_data(call);
    struct err e = {0};
    Zerod__V1__DaemonMessage *m = (Zerod__V1__DaemonMessage *)unpack_message(
        &zerod__v1__daemon_message__descriptor, bytes, len);
    if (!m) {
        grpc_call_finish(call, ST_INVALID_ARGUMENT, "not a DaemonMessage");
        return;
    }
    int code = 0;
    if (c->ending) {
        code = err_set(&e, ST_UNAVAILABLE, "the coordinator is ending");
    } else if (who) {
        code = dispatch(who, m, &e);
    } else if (m->what_case == ZEROD__V1__DAEMON_MESSAGE__WHAT_HELLO) {
        code = on_hello(c, call, m->hello, &e);
    } else {
        code = err_set(&e, ST_FAILED_PRECONDITION, "say hello first");
    }
    if (code) {
        grpc_call_fail(call, &e);
    }
    zerod__v1__daemon_message__free_unpacked(m, NULL);
}

static void on_done(struct grpc_call *call) {
    struct member *who = grpc_call_data(call);
    char reason[REASON];
    if (!who) {
        return;
    }
    who->call = NULL;
    if (!who->coord->ending) {
        job_coordinator_lost(who->coord->job, who->rank);
        (void)snprintf(reason, sizeof reason, "rank %u's daemon (pid %llu) is gone", who->rank,
                       (unsigned long long)who->pid);
        coord_end(who->coord, reason);
    }
}

static const struct grpc_method methods[] = {
    {.path = "/zerod.v1.Coordinator/Join",
     .role = GRPC_ADMIN,
     .kind = GRPC_BIDI,
     .on_message = on_message,
     .on_done = on_done},
};

const struct grpc_service *roster_service(struct coord *c) {
    static struct grpc_service service = {.methods = methods, .method_count = 1};
    service.context = c;
    return &service;
}

void roster_stop(struct coord *c, const char *reason) {
    Zerod__V1__Stop stop = ZEROD__V1__STOP__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    stop.reason = (char *)(reason ? reason : "the coordinator was told to end");
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_STOP;
    m.stop = &stop;
    for (unsigned i = 0; i < c->options.world; i++) {
        if (c->members[i].call) {
            send_to(c, i, &m);
            grpc_call_finish(c->members[i].call, ST_OK, NULL);
        }
    }
}

void roster_free(struct coord *c) {
    for (unsigned i = 0; i < c->options.world; i++) {
        model_free(&c->members[i].model);
        free(c->members[i].address);
    }
    free(c->members);
    free(c->units);
}
