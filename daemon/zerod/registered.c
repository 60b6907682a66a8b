/* The answer to a registration: the ticket for the memory, and where every tensor is in what is
 * lent: in a gathered unit, in its gradient slot, in its initial values; in bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "zerod/session.h"

#define NOWHERE UINT64_MAX

struct offsets {
    uint64_t *param, *grad, *load; /* one a tensor; owned */
};

/* Is the tensor whose memory this one is loaded by the trainer? Tensors of no element have none. */
static bool is_loaded(const struct layout *l, size_t tensor) {
    const struct tensor_place *p = &l->tensors[tensor];
    struct segment s;
    if (!l->model->tensors[tensor].alias[0]) {
        return l->model->tensors[tensor].init.kind == INIT_LOADED;
    }
    struct stretch first = {p->offset, 1};
    return layout_segments(l, p->range, first, &s, 1) == 1 &&
           l->model->tensors[s.tensor].init.kind == INIT_LOADED;
}

static void find(const struct layout *l, size_t tensor, struct offsets *o) {
    const struct tensor_place *p = &l->tensors[tensor];
    o->param[tensor] = o->grad[tensor] = o->load[tensor] = NOWHERE;
    if (p->range == SIZE_MAX) {
        return;
    }
    const struct range *r = &l->ranges[p->range];
    o->param[tensor] = r->param_offset + p->offset * dtype_bytes(r->dtype);
    if (!r->frozen) {
        o->grad[tensor] = (r->grad_offset + p->offset) * dtype_bytes(l->model->wire_dtype);
    }
    if (is_loaded(l, tensor)) {
        o->load[tensor] = (r->load_offset + p->offset) * sizeof(float);
    }
}

static void fill_place(const struct layout *l, size_t unit, const struct offsets *o,
                       Zerod__V1__UnitPlace *to) {
    const struct unit *u = &l->model->units[unit];
    const struct unit_place *p = &l->units[unit];
    zerod__v1__unit_place__init(to);
    to->param_bytes = p->param_bytes;
    to->grad_bytes = p->grad_elements * dtype_bytes(l->model->wire_dtype);
    to->load_bytes = model_unit_is_loaded(l->model, unit) ? p->load_elements * sizeof(float) : 0;
    to->n_param_offsets = to->n_grad_offsets = to->n_load_offsets = u->tensors;
    to->param_offsets = o->param + u->first;
    to->grad_offsets = o->grad + u->first;
    to->load_offsets = o->load + u->first;
}

static void answer(struct session *s, const uint8_t token[HANDOVER_TOKEN], const uint64_t bytes[2],
                   size_t units, Zerod__V1__UnitPlace **places) {
    struct rank *r = s->rank;
    Zerod__V1__Ticket ticket = ZEROD__V1__TICKET__INIT;
    ticket.token = (ProtobufCBinaryData){HANDOVER_TOKEN, (uint8_t *)token};
    ticket.socket_path = (char *)handover_path(r->handover);
    Zerod__V1__Registered m = ZEROD__V1__REGISTERED__INIT;
    m.rank = (uint32_t)r->options.rank;
    m.world_size = (uint32_t)r->options.world;
    m.attachment = r->attachment;
    m.ticket = &ticket;
    m.param_bytes = bytes[0];
    m.grad_bytes = bytes[1];
    m.strategy = (Zerod__V1__Strategy)r->model.strategy;
    m.shard_size = r->layout.inner;
    m.param_dtype = (Zerod__V1__Dtype)r->model.param_dtype;
    m.wire_dtype = (Zerod__V1__Dtype)r->model.wire_dtype;
    m.grad_slots = (uint32_t)r->options.grad_slots;
    m.n_places = units;
    m.places = places;
    Zerod__V1__TrainerReply reply = ZEROD__V1__TRAINER_REPLY__INIT;
    reply.id = s->register_id;
    reply.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_REGISTERED;
    reply.registered = &m;
    session_say(s, &reply);
}

void registered_say(struct session *s, const uint8_t token[HANDOVER_TOKEN],
                    const uint64_t bytes[2]) {
    const struct layout *l = &s->rank->layout;
    size_t units = l->model->unit_count, tensors = l->model->tensor_count;
    Zerod__V1__UnitPlace *places = mem_zeroed(units, sizeof *places);
    Zerod__V1__UnitPlace **list = mem_zeroed(units, sizeof *list);
    uint64_t *all = mem_zeroed(3 * tensors, sizeof *all);
    struct offsets o = {all, all + tensors, all + 2 * tensors};
    for (size_t t = 0; t < tensors; t++) {
        find(l, t, &o);
    }
    for (size_t u = 0; u < units; u++) {
        fill_place(l, u, &o, &places[u]);
        list[u] = &places[u];
    }
    answer(s, token, bytes, units, list);
    free(places);
    free(list);
    free(all);
}
