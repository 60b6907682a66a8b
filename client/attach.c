/* zerod.h: how an attachment begins and ends, and what is known about it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"
#include "proto/unix_address.h"

static const char *const strategies[] = {
    "", "ddp", "zero1", "zero2", "zero3", "hybrid_shard", "hybrid_zero2",
};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

int64_t seconds_to_ns(double seconds) {
    return seconds > TIMEOUT_MAX_S ? INT64_MAX : (int64_t)(seconds * 1e9) + 1;
}

/* ---- what the daemon answered to register ---- */

static int check_place(const struct zerod_unit *u, const Zerod__V1__UnitPlace *p, struct err *e) {
    if (p->n_tensor_offsets != u->tensor_count || p->elements > MODEL_MAX_ELEMENTS) {
        return err_set(e, ST_INTERNAL,
                       "the daemon placed %zu tensors in %" PRIu64 " elements for "
                       "unit '%s' of %zu tensors",
                       p->n_tensor_offsets, p->elements, u->name, u->tensor_count);
    }
    for (size_t t = 0; t < u->tensor_count; t++) {
        uint64_t n = tensor_elements(&u->tensors[t]);
        if (p->tensor_offsets[t] > p->elements || n > p->elements - p->tensor_offsets[t]) {
            return err_set(e, ST_INTERNAL,
                           "the daemon placed tensor '%s' of %" PRIu64 " elements "
                           "at %" PRIu64 ", outside its unit of %" PRIu64,
                           u->tensors[t].name, n, p->tensor_offsets[t], p->elements);
        }
    }
    return 0;
}

static int check_registered(const struct zerod_model *m, const Zerod__V1__Registered *r,
                            struct err *e) {
    if (r->world_size == 0 || r->rank >= r->world_size) {
        return err_set(e, ST_INTERNAL, "the daemon is rank %" PRIu32 " of %" PRIu32, r->rank,
                       r->world_size);
    }
    if (r->strategy < ZEROD__V1__STRATEGY__STRATEGY_DDP || (int)r->strategy >= STRATEGIES ||
        (r->param_dtype != ZEROD__V1__DTYPE__DTYPE_FP32 &&
         r->param_dtype != ZEROD__V1__DTYPE__DTYPE_BF16) ||
        (m->param_dtype && (int)m->param_dtype != (int)r->param_dtype)) {
        return err_set(e, ST_INTERNAL, "the daemon answered with strategy %d and dtype %d",
                       (int)r->strategy, (int)r->param_dtype);
    }
    if (r->n_places != m->unit_count) {
        return err_set(e, ST_INTERNAL, "the daemon placed %zu units of %zu", r->n_places,
                       m->unit_count);
    }
    for (size_t i = 0; i < m->unit_count; i++) {
        int rc = check_place(&m->units[i], r->places[i], e);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static void keep_plans(struct lending *l, const struct zerod_model *m) {
    for (size_t i = 0; i < m->plan_count; i++) {
        l->has_eval |= strcmp(m->plans[i].name, "eval") == 0;
        if (strcmp(m->plans[i].name, "train") != 0) {
            continue;
        }
        l->reduces = 0;
        for (size_t o = 0; o < m->plans[i].op_count; o++) {
            l->reduces += m->plans[i].ops[o].kind == ZEROD_REDUCE;
        }
    }
}

static int keep_registered(struct zerod *z, const struct zerod_model *m, struct err *e) {
    const Zerod__V1__Registered *r = z->registered;
    struct lending *l = &z->lending;
    z->rank = r->rank;
    z->world_size = r->world_size;
    z->attachment = r->attachment;
    z->strategy = (int)r->strategy;
    z->param_dtype = (enum zerod_dtype)r->param_dtype;
    z->micro_batches = m->micro_batches ? m->micro_batches : MICRO_BATCHES_DEFAULT;
    lending_init(l, m->unit_count);
    keep_plans(l, m);
    l->param_element = z->param_dtype == ZEROD_BF16 ? sizeof(uint16_t) : sizeof(float);
    l->param_bytes = r->param_bytes;
    l->grad_bytes = r->grad_bytes;
    l->grad_slots = r->grad_slots ? r->grad_slots : 1;
    for (size_t i = 0; i < m->unit_count; i++) {
        const Zerod__V1__UnitPlace *p = r->places[i];
        struct lent_unit *u = &l->units[i];
        (void)snprintf(u->name, sizeof u->name, "%s", m->units[i].name);
        u->elements = p->elements;
        u->tensor_count = p->n_tensor_offsets;
        u->tensor_offsets = mem_zeroed(u->tensor_count, sizeof *u->tensor_offsets);
        for (size_t t = 0; t < u->tensor_count; t++) {
            u->tensor_offsets[t] = p->tensor_offsets[t];
        }
        l->largest = u->elements > l->largest ? u->elements : l->largest;
    }
    if (l->largest * l->param_element > l->param_bytes ||
        l->largest * sizeof(float) > l->grad_bytes) {
        return err_set(e, ST_INTERNAL,
                       "the largest unit has %" PRIu64 " elements, the daemon "
                       "lends %" PRIu64 " and %" PRIu64 " bytes",
                       l->largest, l->param_bytes, l->grad_bytes);
    }
    return 0;
}

/* ---- attach ---- */

static int dial(struct zerod *z, const char *address, struct err *e) {
    struct sockaddr_un sun;
    const char *path = address ? address : getenv("ZEROD_ADDRESS");
    if (!path || !path[0]) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "no address of a daemon: neither an argument nor "
                       "ZEROD_ADDRESS");
    }
    int rc = unix_address(path, &sun, e);
    if (rc) {
        return rc;
    }
    (void)snprintf(z->address, sizeof z->address, "%s", path);
    rc = grpc_channel_connect(path, 0, &z->channel, e);
    if (rc) {
        return rc;
    }
    stream_open(z);
    return 0;
}

static int await_registered(struct zerod *z, int64_t deadline, struct err *e) {
    while (!z->registered) {
        if (z->refusal.code) {
            *e = z->refusal;
        } else if (z->state == STATE_DEAD) {
            *e = z->why;
        } else if (stream_wait(z, deadline)) {
            (void)err_set(e, ST_DEADLINE_EXCEEDED,
                          "the daemon at %s did not register us within "
                          "%g s (are all ranks there?)",
                          z->address, (double)z->timeout_ns / 1e9);
        } else {
            continue;
        }
        return -e->code;
    }
    return 0;
}

static int register_model(struct zerod *z, struct packed_model *p, int64_t deadline,
                          struct err *e) {
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__Register reg = ZEROD__V1__REGISTER__INIT;
    reg.model = &p->model;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_REGISTER;
    request.register_ = &reg;
    int rc = stream_ask(z, ASKED_REGISTER, 0, &request);
    if (rc) {
        return err_set(e, (enum status) - rc, "%s", z->last.text);
    }
    return await_registered(z, deadline, e);
}

static int attach_model(struct zerod *z, const char *address, const struct zerod_model *model,
                        struct packed_model *packed, struct err *e) {
    int64_t deadline = stream_deadline(z);
    int rc = packed_model_make(model, packed, e);
    rc = rc ? rc : dial(z, address, e);
    rc = rc ? rc : register_model(z, packed, deadline, e);
    rc = rc ? rc : check_registered(model, z->registered, e);
    rc = rc ? rc : keep_registered(z, model, e);
    if (rc) {
        return rc;
    }
    int64_t left = deadline == INT64_MAX ? INT64_MAX : deadline - clock_ns();
    return memory_map(z->registered, left > 0 ? left : 1, &z->params, &z->grads, e);
}

static void drop_registered(struct zerod *z) {
    if (z->registered) {
        protobuf_c_message_free_unpacked(&z->registered->base, NULL);
        z->registered = NULL;
    }
}

static void destroy(struct zerod *z) {
    drop_registered(z);
    lending_free(&z->lending);
    buf_free(&z->current.rank);
    buf_free(&z->current.shared);
    buf_free(&z->given.rank);
    buf_free(&z->given.shared);
    free(z);
}

/* After this no handler can touch |z|. */
static void hang_up(struct zerod *z) {
    state_dead(z, ST_CANCELLED, "detached");
    grpc_channel_close(z->channel);
    z->channel = NULL;
}

int attach_within(const char *address, const struct zerod_model *model, double seconds,
                  struct zerod **out, struct zerod_error *error) {
    struct packed_model packed = {0};
    struct err e = {0};
    struct zerod *z = mem_zeroed(1, sizeof *z);
    z->pid = getpid();
    z->timeout_ns = seconds_to_ns(seconds);
    (void)err_set(&z->why, ST_FAILED_PRECONDITION, "no try is entered: zerod_begin comes first");
    int rc = out ? attach_model(z, address, model, &packed, &e)
                 : err_set(&e, ST_INVALID_ARGUMENT, "zerod_attach: |z| is NULL");
    packed_model_free(&packed);
    if (rc) {
        hang_up(z);
        destroy(z);
        if (error) {
            error->code = e.code;
            (void)snprintf(error->text, sizeof error->text, "%s", e.text);
        }
        return rc;
    }
    drop_registered(z);
    *out = z;
    return 0;
}

int zerod_attach(const char *address, const struct zerod_model *model, struct zerod **z,
                 struct zerod_error *e) {
    return attach_within(address, model, TIMEOUT_DEFAULT_S, z, e);
}

/* ---- detach ---- */

static void say_goodbye(struct zerod *z, bool finished) {
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__Detach detach = ZEROD__V1__DETACH__INIT;
    detach.finished = finished;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_DETACH;
    request.detach = &detach;
    if (z->state == STATE_DEAD || stream_ask(z, ASKED_DETACH, 0, &request)) {
        return;
    }
    int64_t deadline = clock_ns() + (z->timeout_ns < DETACH_NS ? z->timeout_ns : DETACH_NS);
    while (z->asked.kind == ASKED_DETACH && !z->answered && z->state != STATE_DEAD) {
        if (stream_wait(z, deadline)) {
            return;
        }
    }
}

void zerod_detach(struct zerod *z, bool finished) {
    if (!z) {
        return;
    }
    if (z->pid != getpid()) {
        /* The mappings did not come along, and their addresses may be someone else's by now. */
        grpc_channel_forget(z->channel);
        destroy(z);
        return;
    }
    say_goodbye(z, finished);
    hang_up(z);
    memory_unmap(&z->params);
    memory_unmap(&z->grads);
    destroy(z);
}

/* ---- what is known ---- */

unsigned zerod_rank(const struct zerod *z) {
    return z->rank;
}

unsigned zerod_world_size(const struct zerod *z) {
    return z->world_size;
}

const char *zerod_strategy(const struct zerod *z) {
    return strategies[z->strategy];
}

enum zerod_dtype zerod_param_dtype(const struct zerod *z) {
    return z->param_dtype;
}

uint64_t zerod_attachment(const struct zerod *z) {
    return z->attachment;
}

uint64_t zerod_unit_elements(const struct zerod *z, uint32_t unit) {
    return unit < z->lending.unit_count ? z->lending.units[unit].elements : 0;
}

uint64_t zerod_tensor_offset(const struct zerod *z, uint32_t unit, uint32_t tensor) {
    if (unit >= z->lending.unit_count || tensor >= z->lending.units[unit].tensor_count) {
        return 0;
    }
    return z->lending.units[unit].tensor_offsets[tensor];
}

const struct zerod_error *zerod_last_error(const struct zerod *z) {
    return &z->last;
}

int zerod_set_timeout(struct zerod *z, double seconds) {
    if (!(seconds > 0)) {
        return client_fail(z, ST_INVALID_ARGUMENT, "a timeout of %g s: it must be more than 0",
                           seconds);
    }
    z->timeout_ns = seconds_to_ns(seconds);
    return 0;
}

const char *zerod_status_name(int code) {
    return status_name(code < 0 ? -code : code);
}
