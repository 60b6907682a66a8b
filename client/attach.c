/* zerod.h: how an attachment begins and ends. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"
#include "proto/unix_address.h"

int64_t seconds_to_ns(double seconds) {
    return seconds > TIMEOUT_MAX_S ? INT64_MAX : (int64_t)(seconds * 1e9) + 1;
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
    rc = rc ? rc : registered_check(model, z->registered, e);
    if (rc) {
        return rc;
    }
    registered_keep(z, model);
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
