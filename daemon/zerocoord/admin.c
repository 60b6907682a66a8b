/* The Admin service of the coordinator. */
#include <stdlib.h>

#include "base/buf.h"
#include "process/admin.h"
#include "zerocoord/coord.h"

static void on_status(struct grpc_call *call, const ProtobufCMessage *request) {
    struct coord *c = grpc_call_context(call);
    size_t world = (size_t)c->options.world, n = 0;
    Zerod__V1__Member *members = mem_zeroed(world, sizeof *members);
    Zerod__V1__Member **list = mem_zeroed(world, sizeof *list);
    (void)request;
    for (size_t i = 0; i < world; i++) {
        const struct member *m = &c->members[i];
        if (m->call) {
            zerod__v1__member__init(&members[n]);
            members[n].rank = (uint32_t)i;
            members[n].pid = m->pid;
            members[n].address = m->address;
            members[n].attached = m->ready;
            list[n] = &members[n];
            n++;
        }
    }
    struct fence f = job_coordinator_fence(c->job);
    Zerod__V1__Fence fence = fence_to_message(&f);
    Zerod__V1__JobStatus job = ZEROD__V1__JOB_STATUS__INIT;
    job.job = (char *)c->options.job;
    job.world_size = (uint32_t)world;
    job.generation = job_coordinator_generation(c->job);
    job.fence = &fence;
    job.phase = (char *)job_coordinator_phase(c->job);
    job.n_members = n;
    job.members = list;
    job.attempts = job_coordinator_attempts(c->job);
    job.steps = c->steps;
    Zerod__V1__StatusReply reply = ZEROD__V1__STATUS_REPLY__INIT;
    reply.of_case = ZEROD__V1__STATUS_REPLY__OF_JOB;
    reply.job = &job;
    grpc_call_reply(call, &reply.base);
    free(members);
    free(list);
}

static void on_hash(struct grpc_call *call, const ProtobufCMessage *request) {
    (void)request;
    grpc_call_finish(call, ST_UNIMPLEMENTED, "the daemons hold the parameters; ask each of them");
}

static void on_describe(struct grpc_call *call, const ProtobufCMessage *request) {
    (void)request;
    grpc_call_finish(call, ST_UNIMPLEMENTED, "the daemons keep the model; ask one of them");
}

/* ---- watching steps ---- */

static void on_watch(struct grpc_call *call, const ProtobufCMessage *request) {
    struct coord *c = grpc_call_context(call);
    (void)request;
    for (int i = 0; i < WATCHERS; i++) {
        if (!c->watchers[i]) {
            c->watchers[i] = call;
            return;
        }
    }
    grpc_call_finish(call, ST_RESOURCE_EXHAUSTED, "too many watchers");
}

static void on_watch_done(struct grpc_call *call) {
    struct coord *c = grpc_call_context(call);
    for (int i = 0; i < WATCHERS; i++) {
        if (c->watchers[i] == call) {
            c->watchers[i] = NULL;
        }
    }
}

void admin_tell(struct coord *c, const struct decision *d, int code, const char *reason) {
    Zerod__V1__Fence fence = fence_to_message(&d->fence);
    Zerod__V1__StepEvent m = ZEROD__V1__STEP_EVENT__INIT;
    (void)code;
    m.fence = &fence;
    m.world_size = (uint32_t)c->options.world;
    m.reason = (char *)reason;
    if (d->outcome != OUTCOME_ABORT) {
        m.outcome = d->outcome == OUTCOME_COMMIT ? ZEROD__V1__OUTCOME_KIND__OUTCOME_COMMITTED
                                                 : ZEROD__V1__OUTCOME_KIND__OUTCOME_SKIPPED;
        m.grad_norm = d->scalars.grad_norm;
        m.n_user = d->user_count;
        m.user = (double *)d->user;
    }
    for (int i = 0; i < WATCHERS; i++) {
        struct grpc_call *call = c->watchers[i];
        if (call && grpc_call_send(call, &m.base) == -ST_RESOURCE_EXHAUSTED) {
            grpc_call_finish(call, ST_RESOURCE_EXHAUSTED, "the watcher does not read");
        }
    }
}

void admin_end(struct coord *c) {
    for (int i = 0; i < WATCHERS; i++) {
        if (c->watchers[i]) {
            grpc_call_finish(c->watchers[i], ST_OK, NULL);
        }
    }
}

static const struct admin_answers answers = {
    .status = {.on_request = on_status},
    .describe = {.on_request = on_describe},
    .hash = {.on_request = on_hash},
    .watch = {.on_request = on_watch, .on_done = on_watch_done},
};

const struct grpc_service *admin_service(struct coord *c) {
    static struct grpc_method methods[ADMIN_METHODS];
    static struct grpc_service service;
    service = admin_service_of(&answers, methods, c);
    return &service;
}
