/* The Admin service of a daemon: what `zeroctl status` and zerorun ask. */
#include <string.h>

#include "process/admin.h"
#include "proto/unpack.h"
#include "zerod/session.h"

static Zerod__V1__Memory memory_to_message(const struct memory *m) {
    Zerod__V1__Memory to = ZEROD__V1__MEMORY__INIT;
    to.params = m->params;
    to.grads = m->grads;
    to.optimizer = m->optimizer;
    to.gather_slots = m->gather_slots;
    to.grad_slots = m->grad_slots;
    to.padding = m->padding;
    to.rounding = m->rounding;
    to.fixed = m->fixed;
    return to;
}

static Zerod__V1__Traffic traffic_to_message(const struct traffic *t) {
    Zerod__V1__Traffic to = ZEROD__V1__TRAFFIC__INIT;
    to.all_gather_bytes = t->all_gather_bytes;
    to.all_gather_elements = t->all_gather_elements;
    to.reduce_scatter_bytes = t->reduce_scatter_bytes;
    to.reduce_scatter_elements = t->reduce_scatter_elements;
    to.all_reduce_bytes = t->all_reduce_bytes;
    to.all_reduce_elements = t->all_reduce_elements;
    return to;
}

/* Traffic of both groups together and of each: [0] within, [1] between. */
struct by_group {
    Zerod__V1__Traffic all, group[2];
    Zerod__V1__Traffic *list[2];
};

static void fill_groups(const struct traffic by[2], struct by_group *to) {
    struct traffic all = by[0];
    traffic_add(&all, &by[1]);
    to->all = traffic_to_message(&all);
    for (int g = 0; g < 2; g++) {
        to->group[g] = traffic_to_message(&by[g]);
        to->list[g] = &to->group[g];
    }
}

/* The parts that a RankStatus points to. */
struct parts {
    Zerod__V1__Fence fence;
    Zerod__V1__Memory measured, formula;
    struct by_group sent, last_step, per_step;
    Zerod__V1__Traffic ddp;
};

/* What follows from the model alone. */
static void fill_planned(struct rank *r, Zerod__V1__RankStatus *m, struct parts *p) {
    struct traffic by[2], ddp = layout_traffic_ddp(&r->layout);
    struct slots slots = {(uint32_t)r->options.gather_slots, (uint32_t)r->options.grad_slots};
    struct memory formula = layout_memory(&r->layout, (unsigned)r->options.rank, &slots);
    formula.rounding = r->planned.rounding;
    formula.fixed = r->planned.fixed;
    memory_add(&formula, &r->records_memory.lines);
    layout_traffic_by_group(&r->layout, by);
    fill_groups(by, &p->per_step);
    p->formula = memory_to_message(&formula);
    p->ddp = traffic_to_message(&ddp);
    m->formula = &p->formula;
    m->sent_per_step_formula = &p->per_step.all;
    m->n_sent_per_step_formula_by_group = 2;
    m->sent_per_step_formula_by_group = p->per_step.list;
    m->sent_per_step_ddp = &p->ddp;
    m->elements = r->layout.elements;
    m->strategy = (char *)strategy_name(r->model.strategy);
    m->shard_size = r->layout.inner;
    m->param_dtype = (char *)dtype_name(r->model.param_dtype);
    m->wire_dtype = (char *)dtype_name(r->model.wire_dtype);
    m->kept_dtype = (char *)dtype_name(r->model.kept_dtype);
    m->optimizer = (char *)optimizer_name(r->model.optimizer.kind);
    m->loss_scale = r->scale;
    m->skips_in_row = r->skips_in_row;
    m->warning = r->warning;
}

/* A dry run measures nothing: what would be allocated stands there. */
static void fill_dry(struct rank *r, Zerod__V1__RankStatus *m, struct parts *p) {
    struct memory account = r->planned;
    memory_add(&account, &r->records_memory.lines);
    p->measured = memory_to_message(&account);
    m->measured = &p->measured;
    m->memory_total = memory_total(&account);
}

static void fill_engine(struct rank *r, Zerod__V1__RankStatus *m, struct parts *p) {
    struct engine_status s;
    engine_status(r->engine, &s);
    memory_add(&s.measured, &r->records_memory.lines);
    p->measured = memory_to_message(&s.measured);
    m->measured = &p->measured;
    m->memory_total = s.total_bytes + r->records_memory.bytes;
    m->huge_bytes = s.huge_bytes;
    fill_groups(s.sent_by_group, &p->sent);
    fill_groups(r->sent_last_step, &p->last_step);
    m->sent = &p->sent.all;
    m->n_sent_by_group = 2;
    m->sent_by_group = p->sent.list;
    m->sent_last_step = &p->last_step.all;
    m->n_sent_last_step_by_group = 2;
    m->sent_last_step_by_group = p->last_step.list;
    m->gathers = s.gathers;
    m->gathers_ahead = s.gathers_ahead;
    m->eval_gathers = s.eval_gathers;
    m->reduce_ns = s.reduce_ns;
    m->update_ns = s.update_ns;
}

static bool is_planned(const struct rank *r) {
    return r->agreed && r->layout.model;
}

static const char *phase_of(const struct rank *r) {
    if (r->options.dry_run && is_planned(r)) {
        return "planned";
    }
    return r->engine ? job_rank_phase(r->job) : "waiting for a trainer's model";
}

static void on_status(struct grpc_call *call, const ProtobufCMessage *request) {
    struct rank *r = grpc_call_context(call);
    struct parts p;
    Zerod__V1__RankStatus m = ZEROD__V1__RANK_STATUS__INIT;
    (void)request;
    m.rank = (uint32_t)r->options.rank;
    m.pid = (uint64_t)uv_os_getpid();
    m.strategy = (char *)strategy_name(r->options.defaults.strategy);
    p.fence = fence_to_message(&r->last_open);
    m.fence = &p.fence;
    m.phase = (char *)phase_of(r);
    m.attachment = r->attachment;
    m.trainer_pid = session_trainer_pid(r);
    uint64_t decided = job_rank_decided(r->job);
    m.steps = decided ? decided - 1 : 0; /* step 0 trains nothing */
    m.gather_ns = r->waits.gather_ns;
    m.compute_ns = r->waits.compute_ns;
    m.wait_ns = r->waits.step_ns;
    m.threads = (uint32_t)r->options.threads;
    m.isa = (char *)r->kernels->isa;
    if (is_planned(r)) {
        fill_planned(r, &m, &p);
    }
    if (r->engine) {
        fill_engine(r, &m, &p);
    } else if (is_planned(r)) {
        fill_dry(r, &m, &p);
    }
    Zerod__V1__StatusReply reply = ZEROD__V1__STATUS_REPLY__INIT;
    reply.of_case = ZEROD__V1__STATUS_REPLY__OF_RANK;
    reply.rank = &m;
    grpc_call_reply(call, &reply.base);
}

static void on_describe(struct grpc_call *call, const ProtobufCMessage *request) {
    struct rank *r = grpc_call_context(call);
    (void)request;
    if (!r->agreed) {
        grpc_call_finish(call, ST_FAILED_PRECONDITION, "no model is agreed on yet");
        return;
    }
    ProtobufCMessage *m = unpack_message(&zerod__v1__model__descriptor, buf_bytes(&r->registration),
                                         buf_unread(&r->registration));
    if (!m) {
        grpc_call_finish(call, ST_INTERNAL, "the registration is no Model");
        return;
    }
    grpc_call_reply(call, m);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void on_hash(struct grpc_call *call, const ProtobufCMessage *request) {
    struct rank *r = grpc_call_context(call);
    (void)request;
    if (!r->engine) {
        grpc_call_finish(call, ST_FAILED_PRECONDITION, "no trainer has registered a model yet");
    } else if (r->hash_call) {
        grpc_call_finish(call, ST_RESOURCE_EXHAUSTED, "another Hash is being computed");
    } else {
        r->hash_call = call;
        engine_hash(r->engine);
    }
}

static void on_hash_done(struct grpc_call *call) {
    struct rank *r = grpc_call_context(call);
    if (r->hash_call == call) {
        r->hash_call = NULL; /* the caller went; the engine's answer finds nobody */
    }
}

void admin_hashed(struct rank *r, uint64_t sum, uint64_t version) {
    struct grpc_call *call = r->hash_call;
    if (!call) {
        return;
    }
    r->hash_call = NULL;
    Zerod__V1__HashReply reply = ZEROD__V1__HASH_REPLY__INIT;
    reply.sum = sum;
    reply.version = version;
    grpc_call_reply(call, &reply.base);
}

void admin_end(struct rank *r) {
    if (r->hash_call) { /* the engine that computes it goes */
        grpc_call_finish(r->hash_call, ST_UNAVAILABLE, "the daemon is ending");
        r->hash_call = NULL;
    }
}

static void on_watch(struct grpc_call *call, const ProtobufCMessage *request) {
    (void)request;
    grpc_call_finish(call, ST_UNIMPLEMENTED, "steps are watched at the coordinator");
}

static const struct admin_answers answers = {
    .status = {.on_request = on_status},
    .describe = {.on_request = on_describe},
    .hash = {.on_request = on_hash, .on_done = on_hash_done},
    .watch = {.on_request = on_watch},
};

const struct grpc_service *admin_service(struct rank *r) {
    static struct grpc_method methods[ADMIN_METHODS];
    static struct grpc_service service;
    service = admin_service_of(&answers, methods, r);
    return &service;
}
