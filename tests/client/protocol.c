/* The fake daemon's protocol: registers, opens tries, follows the plan. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "fake.h"

float fake_param(uint32_t unit) {
    return 10.5f + (float)unit;
}

const struct zerod_model *fake_model(void) {
    static const uint64_t shape_a[] = {64, 3}, shape_5[] = {5}, shape_10[] = {10};
    static const struct zerod_tensor a[] = {
        {.name = "a.weight", .dims = 2, .shape = shape_a, .weight_decay_multiplier = 1},
        {.name = "a.bias", .dims = 1, .shape = shape_5},
    };
    static const struct zerod_tensor b[] = {
        {.name = "b.weight", .dims = 1, .shape = shape_10, .weight_decay_multiplier = 1},
    };
    static const struct zerod_tensor c[] = {{.name = "c.scale"}};
    static const struct zerod_unit units[] = {
        {.name = "a", .tensor_count = 2, .tensors = a},
        {.name = "b", .tensor_count = 1, .tensors = b},
        {.name = "c", .tensor_count = 1, .tensors = c},
    };
    static const struct zerod_op train[] = {
        {ZEROD_GATHER, 0}, {ZEROD_GATHER, 1}, {ZEROD_GATHER, 2}, {ZEROD_REDUCE, 2},
        {ZEROD_GATHER, 1}, {ZEROD_REDUCE, 1}, {ZEROD_REDUCE, 0},
    };
    static const struct zerod_op eval[] = {{ZEROD_GATHER, 0}, {ZEROD_GATHER, 1}, {ZEROD_GATHER, 2}};
    static const struct zerod_plan plans[] = {{"train", 7, train}, {"eval", 3, eval}};
    static const struct zerod_model model = {
        .unit_count = 3,
        .units = units,
        .plan_count = 2,
        .plans = plans,
        .strategy = "zero3",
        .param_dtype = ZEROD_FP32,
        .micro_batches = 2,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .epsilon = 1e-8,
        .weight_decay = 0.1,
    };
    return &model;
}

void fake_refuse(struct fake *f, uint64_t id, int code, const char *text, bool is_void) {
    Zerod__V1__TrainerReply r = ZEROD__V1__TRAINER_REPLY__INIT;
    Zerod__V1__Refused m = ZEROD__V1__REFUSED__INIT;
    m.code = code;
    m.text = (char *)(uintptr_t)text;
    m.void_ = is_void;
    r.id = id;
    r.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_REFUSED;
    r.refused = &m;
    fake_send(f, &r);
    f->open = f->open && !is_void;
}

/* ---- register ---- */

static void learn_plan(struct fake *f, const Zerod__V1__Plan *p) {
    bool train = strcmp(p->name, "train") == 0;
    for (size_t i = 0; i < p->n_ops; i++) {
        if (!train) {
            f->eval[f->eval_gathers++] = p->ops[i]->unit;
        } else if (p->ops[i]->kind == ZEROD__V1__COLLECTIVE__COLLECTIVE_GATHER) {
            f->train[f->train_gathers++] = p->ops[i]->unit;
        } else {
            f->reduce[f->reduces++] = p->ops[i]->unit;
        }
    }
}

static void learn_model(struct fake *f, const Zerod__V1__Model *m) {
    f->units = (unsigned)m->n_units;
    f->train_gathers = f->eval_gathers = f->reduces = 0;
    f->micro_batches = m->micro_batches;
    for (size_t i = 0; i < m->n_plans; i++) {
        learn_plan(f, m->plans[i]);
    }
}

static void place(struct fake *f, const Zerod__V1__Unit *u, unsigned index, Zerod__V1__UnitPlace *p,
                  uint64_t *offsets) {
    uint64_t at = 0;
    for (size_t t = 0; t < u->n_tensors; t++) {
        uint64_t n = 1;
        for (size_t d = 0; d < u->tensors[t]->n_shape; d++) {
            n *= u->tensors[t]->shape[d];
        }
        offsets[t] = at * sizeof(float);
        at += (n + 63) / 64 * 64;
    }
    zerod__v1__unit_place__init(p);
    p->param_bytes = p->grad_bytes = p->load_bytes = at * sizeof(float);
    p->n_param_offsets = p->n_grad_offsets = p->n_load_offsets = u->n_tensors;
    p->param_offsets = p->grad_offsets = p->load_offsets = offsets;
    f->elements[index] = at;
}

static void on_register(struct fake *f, const Zerod__V1__TrainerRequest *request) {
    const Zerod__V1__Model *m = request->register_->model;
    Zerod__V1__UnitPlace places[FAKE_UNITS], *list[FAKE_UNITS];
    uint64_t offsets[FAKE_UNITS][4];
    learn_model(f, m);
    for (unsigned i = 0; i < f->units; i++) {
        place(f, m->units[i], i, &places[i], offsets[i]);
        list[i] = &places[i];
    }
    if (f->o.bad_place) {
        offsets[0][1] = places[0].param_bytes;
    }
    Zerod__V1__TrainerReply r = ZEROD__V1__TRAINER_REPLY__INIT;
    Zerod__V1__Registered g = ZEROD__V1__REGISTERED__INIT;
    Zerod__V1__Ticket ticket = ZEROD__V1__TICKET__INIT;
    uint8_t token[16] = {1, 2, 3};
    ticket.token = (ProtobufCBinaryData){f->o.no_token ? 0 : sizeof token, token};
    ticket.socket_path = f->handover_path;
    g.rank = 0;
    g.world_size = 1;
    g.attachment = f->attachments;
    g.ticket = &ticket;
    g.param_bytes = f->o.promise_params ? f->o.promise_params : f->param_bytes;
    g.grad_slots = (uint32_t)f->o.grad_slots;
    g.grad_bytes = f->o.promise_grads ? f->o.promise_grads : f->grad_bytes;
    g.strategy = m->strategy;
    g.param_dtype = m->param_dtype;
    g.wire_dtype = m->wire_dtype ? m->wire_dtype : ZEROD__V1__DTYPE__DTYPE_FP32;
    g.n_places = f->units;
    g.places = list;
    r.id = request->id;
    r.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_REGISTERED;
    r.registered = &g;
    fake_send(f, &r);
}

/* ---- what is pushed ---- */

static int free_slot(struct fake *f) {
    for (unsigned i = 0; i < f->o.gather_slots; i++) {
        if (!f->slots[i].used) {
            return (int)i;
        }
    }
    return -1;
}

void fake_gathered(struct fake *f, uint32_t position, uint32_t unit, uint64_t offset) {
    Zerod__V1__TrainerReply r = ZEROD__V1__TRAINER_REPLY__INIT;
    Zerod__V1__Gathered m = ZEROD__V1__GATHERED__INIT;
    m.fence = &f->fence;
    m.position = position;
    m.unit = unit;
    m.offset = offset;
    m.eval = f->in_eval;
    r.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_GATHERED;
    r.gathered = &m;
    fake_send(f, &r);
}

static uint32_t planned(const struct fake *f, unsigned position) {
    return f->in_eval ? f->eval[position % f->eval_gathers] : f->train[position % f->train_gathers];
}

static void push_gathers(struct fake *f) {
    unsigned all = f->in_eval ? f->eval_gathers : f->train_gathers * f->micro_batches;
    int slot;
    while (f->pushed < all && (slot = free_slot(f)) >= 0) {
        uint32_t unit = planned(f, f->pushed);
        uint64_t offset = (uint64_t)slot * f->slot_bytes;
        float value = fake_param(unit);
        for (uint64_t i = 0; i < f->elements[unit]; i++) {
            memcpy(f->params + offset + i * sizeof value, &value, sizeof value);
        }
        f->slots[slot] = (struct fake_slot){true, unit};
        fake_gathered(f, f->pushed++, unit, offset);
    }
}

static void push_grants(struct fake *f) {
    unsigned all = f->fence.step == 0 ? f->units : f->reduces * f->micro_batches;
    while (f->granted < all && f->granted < f->reduced + f->o.grad_slots) {
        Zerod__V1__TrainerReply r = ZEROD__V1__TRAINER_REPLY__INIT;
        Zerod__V1__Granted m = ZEROD__V1__GRANTED__INIT;
        m.fence = &f->fence;
        m.sequence = f->granted;
        m.offset = f->granted % f->o.grad_slots * f->slot_bytes;
        r.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_GRANTED;
        r.granted = &m;
        fake_send(f, &r);
        f->granted++;
    }
}

void fake_push(struct fake *f) {
    if (f->fence.step > 0) {
        push_gathers(f);
    }
    if (!f->in_eval) {
        push_grants(f);
    }
}

static void open_try(struct fake *f) {
    f->open = true;
    f->in_eval = false;
    f->pushed = f->asked = f->granted = f->reduced = 0;
    memset(f->slots, 0, sizeof f->slots);
    fake_push(f);
}

/* ---- requests of a try ---- */

static void done(struct fake *f, uint64_t id) {
    Zerod__V1__TrainerReply r = ZEROD__V1__TRAINER_REPLY__INIT;
    Zerod__V1__Done m = ZEROD__V1__DONE__INIT;
    r.id = id;
    r.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_DONE;
    r.done = &m;
    fake_send(f, &r);
}

static void on_begin(struct fake *f, uint64_t id) {
    Zerod__V1__TrainerReply r = ZEROD__V1__TRAINER_REPLY__INIT;
    Zerod__V1__Entered m = ZEROD__V1__ENTERED__INIT;
    f->fence.attempt++;
    m.fence = &f->fence;
    m.loading = f->fence.step == 0;
    m.loss_scale = FAKE_SCALE;
    m.rank_cursor = (ProtobufCBinaryData){f->cursor_bytes[0], f->cursors[0]};
    m.shared_cursor = (ProtobufCBinaryData){f->cursor_bytes[1], f->cursors[1]};
    m.void_reason = f->void_reason;
    r.id = id;
    r.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_ENTERED;
    r.entered = &m;
    fake_send(f, &r);
    open_try(f);
}

static void on_gather(struct fake *f, uint64_t id, uint32_t unit) {
    if (unit != planned(f, f->asked)) {
        fake_refuse(f, id, 9, "rank 0 left its plan", true);
        return;
    }
    f->asked++;
}

static void on_release(struct fake *f, uint32_t unit) {
    for (unsigned i = 0; i < f->o.gather_slots; i++) {
        if (f->slots[i].used && f->slots[i].unit == unit) {
            f->slots[i].used = false;
            fake_push(f);
            return;
        }
    }
    fake_refuse(f, 0, 3, "release of what is not held", false);
}

static void on_reduce(struct fake *f, uint32_t unit, bool load) {
    if (!load && unit != f->reduce[f->reduced % f->reduces]) {
        fake_refuse(f, 0, 9, "rank 0 reduced out of its plan", true);
        return;
    }
    const float *slot = f->grads + f->reduced % f->o.grad_slots * f->slot_bytes / sizeof(float);
    float sum = 0;
    for (uint64_t i = 0; i < f->elements[unit]; i++) {
        sum += slot[i];
    }
    f->last_sum[unit] = sum;
    f->reduced++;
    fake_push(f);
}

static void keep_cursor(struct fake *f, int which, ProtobufCBinaryData from) {
    f->cursor_bytes[which] = from.len < sizeof f->cursors[0] ? from.len : sizeof f->cursors[0];
    if (f->cursor_bytes[which]) {
        memcpy(f->cursors[which], from.data, f->cursor_bytes[which]);
    }
}

static void on_step(struct fake *f, uint64_t id, const Zerod__V1__Step *s) {
    if (f->asked < f->pushed || f->reduced < f->granted) {
        fake_refuse(f, id, 9, "step before the end of the plan", true);
        return;
    }
    for (unsigned i = 0; i < f->o.gather_slots; i++) {
        if (f->slots[i].used) {
            fake_refuse(f, id, 9, "a lease leaked", true);
            return;
        }
    }
    keep_cursor(f, 0, s->rank_cursor);
    keep_cursor(f, 1, s->shared_cursor);
    f->void_reason[0] = '\0';
    f->fence.step++;
    f->fence.attempt = 1;
    Zerod__V1__TrainerReply r = ZEROD__V1__TRAINER_REPLY__INIT;
    Zerod__V1__Outcome m = ZEROD__V1__OUTCOME__INIT;
    m.kind = ZEROD__V1__OUTCOME_KIND__OUTCOME_COMMITTED;
    m.grad_norm = 2.5;
    m.loss_scale = FAKE_SCALE * (double)f->fence.step;
    m.n_user = s->n_user;
    m.user = s->user;
    m.next = &f->fence;
    r.id = id;
    r.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_OUTCOME;
    r.outcome = &m;
    fake_send(f, &r);
    open_try(f);
}

static void on_eval(struct fake *f, uint64_t id, bool begin) {
    f->in_eval = begin;
    f->pushed = f->asked = 0;
    memset(f->slots, 0, sizeof f->slots);
    done(f, id);
    fake_push(f);
}

void fake_request(struct fake *f, const Zerod__V1__TrainerRequest *r) {
    bool stale = !r->fence || r->fence->step != f->fence.step ||
                 r->fence->attempt != f->fence.attempt || !f->open;
    switch (r->call_case) {
    case ZEROD__V1__TRAINER_REQUEST__CALL_REGISTER:
        on_register(f, r);
        return;
    case ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN:
        on_begin(f, r->id);
        return;
    case ZEROD__V1__TRAINER_REQUEST__CALL_DETACH:
        done(f, r->id);
        return;
    default:
        break;
    }
    if (stale) {
        fake_refuse(f, r->id, 10, "a message of a try that is over", true);
        return;
    }
    switch (r->call_case) {
    case ZEROD__V1__TRAINER_REQUEST__CALL_PREFETCH:
        return; /* counted; this fake always gathers ahead */
    case ZEROD__V1__TRAINER_REQUEST__CALL_GATHER:
        on_gather(f, r->id, r->gather->unit);
        return;
    case ZEROD__V1__TRAINER_REQUEST__CALL_RELEASE:
        on_release(f, r->release->unit);
        return;
    case ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE:
        on_reduce(f, r->reduce->unit, false);
        return;
    case ZEROD__V1__TRAINER_REQUEST__CALL_LOAD:
        on_reduce(f, r->load->unit, true);
        return;
    case ZEROD__V1__TRAINER_REQUEST__CALL_STEP:
        on_step(f, r->id, r->step);
        return;
    case ZEROD__V1__TRAINER_REQUEST__CALL_ABORT:
        (void)snprintf(f->void_reason, sizeof f->void_reason, "%s", r->abort->reason);
        fake_refuse(f, 0, 10, r->abort->reason, true);
        return;
    case ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN_EVAL:
    case ZEROD__V1__TRAINER_REQUEST__CALL_END_EVAL:
        on_eval(f, r->id, r->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN_EVAL);
        return;
    default:
        assert(false && "a request that the fake does not know");
    }
}
