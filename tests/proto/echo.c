#include "tests/proto/echo.h"

#include "proto/unpack.h"

static void on_open(struct grpc_call *call) {
    struct echo *e = grpc_call_context(call);
    e->opened++;
    e->held = call;
}

static void on_done(struct grpc_call *call) {
    struct echo *e = grpc_call_context(call);
    e->done++;
    e->last_status = grpc_call_status(call);
    if (e->held == call) {
        e->held = NULL;
    }
}

static void on_unary(struct grpc_call *call, const ProtobufCMessage *request) {
    grpc_call_reply(call, request);
}

static void on_fail(struct grpc_call *call, const ProtobufCMessage *request) {
    grpc_call_finish(call, ST_ABORTED, ((const Zerod__V1__Ticket *)request)->socket_path);
}

static void on_hold(struct grpc_call *call, const ProtobufCMessage *request) {
    (void)request;
    ((struct echo *)grpc_call_context(call))->messages++;
}

static void on_bidi(struct grpc_call *call, const uint8_t *bytes, size_t len) {
    struct echo *e = grpc_call_context(call);
    ProtobufCMessage *m = unpack_message(&zerod__v1__ticket__descriptor, bytes, len);
    e->messages++;
    if (!m || grpc_call_send(call, m)) {
        grpc_call_finish(call, ST_INVALID_ARGUMENT, "no ticket");
    }
    if (m) {
        protobuf_c_message_free_unpacked(m, NULL);
    }
}

static void produce(struct grpc_call *call) {
    static uint8_t bytes[FLOOD_BYTES];
    struct echo *e = grpc_call_context(call);
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    t.token = (ProtobufCBinaryData){.len = sizeof bytes, .data = bytes};
    while (e->flood_left > 0 && !grpc_call_full(call)) {
        if (grpc_call_send(call, &t.base)) {
            return;
        }
        e->flood_left--;
    }
    if (grpc_call_queued(call) > e->most_queued) {
        e->most_queued = grpc_call_queued(call);
    }
    if (e->flood_left == 0) {
        grpc_call_finish(call, ST_OK, NULL);
    }
}

static void on_flood(struct grpc_call *call, const ProtobufCMessage *request) {
    struct echo *e = grpc_call_context(call);
    e->flood_left = ((const Zerod__V1__Ticket *)request)->token.len;
    produce(call);
}

static void on_writable(struct grpc_call *call) {
    ((struct echo *)grpc_call_context(call))->writable++;
    produce(call);
}

static void on_sink(struct grpc_call *call, const uint8_t *bytes, size_t len) {
    (void)bytes;
    (void)len;
    ((struct echo *)grpc_call_context(call))->messages++;
}

static const struct grpc_method methods[] = {
    {.path = ECHO_UNARY,
     .role = GRPC_OBSERVE,
     .request = &zerod__v1__ticket__descriptor,
     .on_open = on_open,
     .on_request = on_unary,
     .on_done = on_done},
    {.path = ECHO_FAIL,
     .role = GRPC_OBSERVE,
     .request = &zerod__v1__ticket__descriptor,
     .on_request = on_fail,
     .on_done = on_done},
    {.path = ECHO_HOLD,
     .role = GRPC_ADMIN,
     .request = &zerod__v1__ticket__descriptor,
     .on_open = on_open,
     .on_request = on_hold,
     .on_done = on_done},
    {.path = ECHO_BIDI,
     .role = GRPC_OBSERVE,
     .kind = GRPC_BIDI,
     .on_open = on_open,
     .on_message = on_bidi,
     .on_done = on_done},
    {.path = ECHO_FLOOD,
     .role = GRPC_OBSERVE,
     .kind = GRPC_SERVER_STREAM,
     .request = &zerod__v1__ticket__descriptor,
     .on_open = on_open,
     .on_request = on_flood,
     .on_writable = on_writable,
     .on_done = on_done},
    {.path = ECHO_SINK,
     .role = GRPC_TRAIN,
     .kind = GRPC_CLIENT_STREAM,
     .on_open = on_open,
     .on_message = on_sink,
     .on_done = on_done},
};

struct grpc_service echo_service(struct echo *e) {
    return (struct grpc_service){
        .methods = methods, .method_count = sizeof methods / sizeof methods[0], .context = e};
}
