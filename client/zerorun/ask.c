#include "ask.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "proto/unpack.h"
#include "rpc/dial.h"
#include "zerod.pb-c.h"

struct ask {
    struct ask_options o;
    struct rpc_dial *dial;
    struct grpc_stream *stream; /* NULL: done */
    int code;                   /* how the stream ended */
    char text[ERR_TEXT];
};

static void on_message(struct grpc_stream *s, const uint8_t *bytes, size_t len) {
    struct ask *a = grpc_stream_data(s);
    ProtobufCMessage *m = unpack_message(a->o.reply, bytes, len);
    if (!m) {
        grpc_client_cancel(s);
        return;
    }
    a->o.on_reply(a->o.user, m);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void on_done(struct grpc_stream *s, int code, const char *text) {
    struct ask *a = grpc_stream_data(s);
    struct err e;
    err_set(&e, ST_OK, "%s", text);
    a->stream = NULL;
    a->code = code;
    memcpy(a->text, e.text, sizeof a->text);
    rpc_dial_close(a->dial);
}

static const struct grpc_stream_handlers handlers = {.on_message = on_message, .on_done = on_done};

static void on_probe_done(struct grpc_stream *s, int code, const char *text) {
    struct ask *a = grpc_stream_data(s);
    (void)text;
    if (code == ST_OK && a->stream) {
        a->o.on_taken(a->o.user);
    }
}

static const struct grpc_stream_handlers probe_handlers = {.on_done = on_probe_done};

static void probe(struct ask *a, int64_t now) {
    static const Zerod__V1__StatusRequest request = ZEROD__V1__STATUS_REQUEST__INIT;
    struct grpc_stream *s = grpc_client_start(rpc_dial_client(a->dial), "/zerod.v1.Admin/Status",
                                              &probe_handlers, a, INT64_MAX, now);
    (void)grpc_client_send(s, &request.base);
    grpc_client_half_close(s);
}

static void on_closed(struct rpc_dial *d, const struct err *reason, void *user) {
    (void)d;
    (void)reason;
    struct ask *a = user;
    assert(!a->stream && "a stream ends before its connection does");
    if (a->o.on_done) {
        a->o.on_done(a->o.user, a->code, a->text);
    }
    free(a);
}

int ask_start(uv_loop_t *loop, const struct ask_options *o, struct ask **out, struct err *e) {
    struct ask *a = mem_zeroed(1, sizeof *a);
    a->o = *o;
    int rc = rpc_dial(loop, o->path, on_closed, a, &a->dial, e);
    if (rc) {
        free(a);
        return rc;
    }
    int64_t now = clock_ns();
    a->stream = grpc_client_start(rpc_dial_client(a->dial), o->method, &handlers, a,
                                  o->timeout_ns ? now + o->timeout_ns : INT64_MAX, now);
    (void)grpc_client_send(a->stream, o->request);
    grpc_client_half_close(a->stream);
    if (o->on_taken) {
        probe(a, now);
    }
    if (out) {
        *out = a;
    }
    return 0;
}

void ask_cancel(struct ask *a) {
    if (a->stream) {
        grpc_client_cancel(a->stream);
    }
}
