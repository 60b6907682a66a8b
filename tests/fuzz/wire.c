#include "wire.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "must.h"
#include "rpc/dial.h"
#include "rpc/handover.h"
#include "rpc/health.h"

/* ---- the server's end ---- */

void wire_open(struct grpc_call *call, const struct grpc_service *service, wire_hear *hear,
               void *user) {
    *call = (struct grpc_call){.method = &service->methods[0],
                               .context = service->context,
                               .peer = {.known = true, .pid = getpid()},
                               .is_open = true,
                               .hear = hear,
                               .user = user};
}

void wire_say(struct grpc_call *call, const uint8_t *bytes, size_t n) {
    if (call->is_open) {
        uint8_t *copy = malloc(n + 1); /* of its own, so that a read behind its end is seen */
        must(copy != NULL, "memory");
        memcpy(copy, bytes, n);
        uint8_t *exact = realloc(copy, n ? n : 1);
        call->method->on_message(call, exact, n);
        free(exact);
    }
}

void wire_half_close(struct grpc_call *call) {
    if (call->is_open && call->method->on_half_close) {
        call->method->on_half_close(call);
    }
}

void wire_gone(struct grpc_call *call) {
    if (call->method && !call->done) {
        call->is_open = false;
        call->done = true;
        call->method->on_done(call);
    }
}

void wire_settle(struct grpc_call *call) {
    if (call->method && !call->is_open) {
        wire_gone(call);
    }
}

/* To the target, as bytes that end where they end. */
static void tell(wire_hear *hear, void *user, const ProtobufCMessage *message) {
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(n + 1);
    must(bytes && protobuf_c_message_pack(message, bytes) == n, "a message that can be packed");
    hear(user, bytes, n);
    free(bytes);
}

int grpc_call_send(struct grpc_call *call, const ProtobufCMessage *message) {
    must(!call->done, "a call is used after its end");
    if (!call->is_open) {
        return -ST_CANCELLED;
    }
    tell(call->hear, call->user, message);
    return 0;
}

void grpc_call_finish(struct grpc_call *call, int code, const char *text) {
    must(!call->done, "a call is used after its end");
    must(code >= ST_OK && code <= ST_UNAUTHENTICATED, "a call ends with a status that exists");
    must(code == ST_OK || (text && text[0]), "a call that fails says why");
    if (call->is_open) {
        call->is_open = false;
        call->code = code;
    }
}

void grpc_call_fail(struct grpc_call *call, const struct err *e) {
    grpc_call_finish(call, e->code, e->text);
}

void *grpc_call_context(const struct grpc_call *call) {
    return call->context;
}

const struct grpc_peer *grpc_call_peer(const struct grpc_call *call) {
    return &call->peer;
}

void grpc_call_set_data(struct grpc_call *call, void *data) {
    call->data = data;
}

void *grpc_call_data(const struct grpc_call *call) {
    return call->data;
}

/* ---- the client's end ---- */

struct grpc_stream wire_stream;

int rpc_dial(uv_loop_t *loop, const char *path, rpc_dial_closed on_closed, void *user,
             struct rpc_dial **dial, struct err *e) {
    (void)loop, (void)path, (void)on_closed, (void)user, (void)e;
    *dial = NULL;
    return 0;
}

struct grpc_client *rpc_dial_client(struct rpc_dial *d) {
    return (struct grpc_client *)(void *)d;
}

void rpc_dial_close(struct rpc_dial *d) {
    (void)d;
}

struct grpc_stream *grpc_client_start(struct grpc_client *c, const char *path,
                                      const struct grpc_stream_handlers *handlers, void *data,
                                      int64_t deadline, int64_t now) {
    (void)c, (void)path, (void)deadline, (void)now;
    wire_stream.handlers = handlers;
    wire_stream.data = data;
    wire_stream.is_open = true;
    return &wire_stream;
}

int grpc_client_send(struct grpc_stream *s, const ProtobufCMessage *message) {
    if (!s->is_open) {
        return -ST_CANCELLED;
    }
    tell(s->hear, s->user, message);
    return 0;
}

void *grpc_stream_data(const struct grpc_stream *s) {
    return s->data;
}

void wire_answer(const uint8_t *bytes, size_t n) {
    if (wire_stream.is_open) {
        uint8_t *exact = malloc(n ? n : 1);
        must(exact != NULL, "memory");
        memcpy(exact, bytes, n);
        wire_stream.handlers->on_message(&wire_stream, exact, n);
        free(exact);
    }
}

void wire_stream_end(int code, const char *text) {
    if (wire_stream.is_open) {
        wire_stream.is_open = false;
        wire_stream.handlers->on_done(&wire_stream, code, text);
    }
}

/* ---- the hand-over ---- */

static struct {
    handover_taken on_taken;
    void *user;
    size_t wanted;
} taking[64];
static size_t taking_count, given_count;
static int given[WIRE_FDS];

const char *handover_path(const struct handover *h) {
    (void)h;
    return "fd";
}

int handover_ticket(struct handover *h, const int *fds, size_t n, uint8_t token[HANDOVER_TOKEN],
                    struct err *e) {
    (void)h, (void)e;
    for (size_t i = 0; i < n; i++) {
        must(fds[i] >= 0, "a ticket is of descriptors");
    }
    memset(token, 1, HANDOVER_TOKEN);
    return 0;
}

void handover_take(uv_loop_t *loop, const char *path, const uint8_t token[HANDOVER_TOKEN], size_t n,
                   int64_t timeout_ns, handover_taken on_taken, void *user) {
    (void)loop, (void)path, (void)token, (void)timeout_ns;
    if (taking_count == sizeof taking / sizeof *taking) {
        struct err e = {ST_UNAVAILABLE, "the target keeps no more of them"};
        on_taken(user, -ST_UNAVAILABLE, 0, NULL, &e);
        return;
    }
    taking[taking_count].on_taken = on_taken;
    taking[taking_count].user = user;
    taking[taking_count++].wanted = n;
}

void wire_will_give(const int *fds, size_t n) {
    memcpy(given, fds, n * sizeof *fds);
    given_count = n;
}

void wire_hand_over(void) {
    struct err e = {ST_NOT_FOUND, "no such ticket"};
    for (size_t i = 0; i < taking_count; i++) {
        if (given_count && taking[i].wanted <= given_count) {
            int fds[WIRE_FDS];
            for (size_t k = 0; k < taking[i].wanted; k++) {
                fds[k] = dup(given[k]);
            }
            taking[i].on_taken(taking[i].user, 0, taking[i].wanted, fds, NULL);
        } else {
            taking[i].on_taken(taking[i].user, -ST_NOT_FOUND, 0, NULL, &e);
        }
    }
    taking_count = 0;
}

bool wire_hands_over(void) {
    return taking_count > 0;
}

static _Atomic int64_t looks; /* at the clock */

void wire_reset(void) {
    atomic_store(&looks, 0);
    taking_count = given_count = 0;
    memset(&wire_stream, 0, sizeof wire_stream);
}

/* ---- what else is not the system's here ---- */

/* Each look at the clock is a microsecond after the one before. */
int fuzz_clock_gettime(clockid_t which, struct timespec *t) {
    const int64_t now = atomic_fetch_add(&looks, 1) + 1;
    (void)which;
    *t = (struct timespec){now / 1000000, now % 1000000 * 1000};
    return 0;
}

void rpc_health_set(struct rpc_health *h, const char *service, bool serving) {
    (void)h, (void)service, (void)serving;
}

void log_info(const char *fmt, ...) {
    (void)fmt;
}

void log_warn(const char *fmt, ...) {
    (void)fmt;
}

void log_error(const char *fmt, ...) {
    (void)fmt;
}
