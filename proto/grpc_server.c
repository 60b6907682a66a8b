/* The server side of a connection: requests, deadlines, the end. See grpc_server.h; what the
 * headers of a request say is in grpc_headers.c. */
#include "proto/grpc_server.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/server_core.h"
#include "proto/unpack.h"

enum {
    EMPTY_IN_ROW = 1000,
    FRAMES_WAITING = 32768, /* to go out: some 5 MB, and what two full sockets can bring about */
};

/* ---- requests ---- */

static bool one_request(const struct grpc_call *call) {
    return call->method->kind == GRPC_UNARY || call->method->kind == GRPC_SERVER_STREAM;
}

static int keep_request(struct grpc_call *call, const uint8_t *bytes, size_t len) {
    if (call->has_request) {
        return -ST_ALREADY_EXISTS;
    }
    call->has_request = true;
    buf_append(&call->request, bytes, len);
    call->s.h2->held += len;
    return 0;
}

/* Runs inside the deframer, so it must not free what the call has received. */
static int on_message(void *arg, const uint8_t *bytes, size_t len) {
    struct grpc_call *call = arg;
    if (one_request(call)) {
        return keep_request(call, bytes, len);
    }
    call->method->on_message(call, bytes, len);
    return call->s.ended ? -ST_CANCELLED : 0;
}

static void refuse_data(struct grpc_call *call, int rv) {
    char text[96];
    if (rv == -ST_ALREADY_EXISTS) {
        call_end(call, ST_INTERNAL, "more than one request message");
    } else if (rv == -ST_UNIMPLEMENTED) {
        call_end(call, ST_UNIMPLEMENTED, "compressed messages are not understood");
    } else if (rv == -ST_RESOURCE_EXHAUSTED) {
        (void)snprintf(text, sizeof text, "a message is larger than %d bytes, or too many wait",
                       GRPC_MESSAGE_MAX);
        call_end(call, ST_RESOURCE_EXHAUSTED, text);
    } else {
        call_end(call, ST_INTERNAL, "malformed message prefix");
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t n, void *user) {
    (void)flags;
    (void)user;
    struct grpc_call *call = (struct grpc_call *)h2_stream_of(session, id);
    if (!call || call->s.ended) {
        return 0;
    }
    int rv = h2_stream_deframe(&call->s, bytes, n, on_message, call);
    if (call->s.ended) { /* by its handler: the rest is not wanted */
        h2_stream_drop_input(&call->s);
    } else if (rv < 0) {
        refuse_data(call, rv);
    }
    return 0;
}

static void dispatch_request(struct grpc_call *call) {
    size_t len = buf_unread(&call->request);
    ProtobufCMessage *m = unpack_message(call->method->request, buf_bytes(&call->request), len);
    call->s.h2->held -= len;
    buf_free(&call->request);
    if (!m) {
        char text[160];
        (void)snprintf(text, sizeof text, "the request is no %s", call->method->request->name);
        call_end(call, ST_INVALID_ARGUMENT, text);
        return;
    }
    call->method->on_request(call, m);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void on_half_close(struct grpc_call *call) {
    if (!deframer_idle(&call->s.in)) {
        call_end(call, ST_INTERNAL, "the request ends inside a message");
    } else if (!one_request(call)) {
        if (call->method->on_half_close) {
            call->method->on_half_close(call);
        } else {
            grpc_call_finish(call, ST_OK, NULL);
        }
    } else if (!call->has_request) {
        call_end(call, ST_INTERNAL, "no request message");
    } else {
        dispatch_request(call);
    }
}

/* ---- frames ---- */

/* DATA frames that bring nothing and end nothing cost us work and the peer next to none. Of all
 * floods this one is not nghttp2's own business. */
static void count_empty(struct grpc_conn *c, const nghttp2_frame *f) {
    bool empty =
        f->hd.type == NGHTTP2_DATA && f->hd.length == 0 && !(f->hd.flags & NGHTTP2_FLAG_END_STREAM);
    c->empty_in_row = empty ? c->empty_in_row + 1 : 0;
    if (c->empty_in_row == EMPTY_IN_ROW) {
        nghttp2_session_terminate_session(c->h2.session, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *f, void *user) {
    struct grpc_conn *c = user;
    if (f->hd.type == NGHTTP2_SETTINGS || f->hd.type == NGHTTP2_HEADERS) {
        c->owed_by = GRPC_NEVER;
    }
    if (f->hd.type != NGHTTP2_HEADERS && f->hd.type != NGHTTP2_DATA) {
        return 0;
    }
    count_empty(c, f);
    struct grpc_call *call = (struct grpc_call *)h2_stream_of(session, f->hd.stream_id);
    if (!call) {
        return 0;
    }
    bool end = f->hd.flags & NGHTTP2_FLAG_END_STREAM;
    call->half_closed = call->half_closed || end;
    if (f->hd.type == NGHTTP2_HEADERS && f->headers.cat == NGHTTP2_HCAT_REQUEST) {
        headers_complete(call);
    } else if (call->too_many_headers && !call->s.ended) {
        call_end(call, ST_RESOURCE_EXHAUSTED, "trailers are larger than 8192 bytes");
    }
    if (end && !call->s.ended) {
        on_half_close(call);
    }
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *f, void *user) {
    (void)user;
    if (f->hd.type != NGHTTP2_HEADERS || !(f->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        return 0;
    }
    struct grpc_call *call = (struct grpc_call *)h2_stream_of(session, f->hd.stream_id);
    if (call && !call->half_closed) { /* answered early: let the peer drop the rest */
        call->reset_due = true;
        h2_stream_mark(&call->s);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
    struct grpc_conn *c = user;
    struct grpc_call *call = (struct grpc_call *)h2_stream_of(session, id);
    (void)code;
    c->owed_by = GRPC_NEVER; /* it may have been this stream's headers that broke off */
    if (call) {
        nghttp2_session_set_stream_user_data(session, id, NULL);
        call_free(call);
    }
    return 0;
}

static nghttp2_session_callbacks *callbacks(void) {
    nghttp2_session_callbacks *cb = NULL;
    int rv = nghttp2_session_callbacks_new(&cb);
    assert(rv == 0); /* only for want of memory */
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, headers_begin);
    nghttp2_session_callbacks_set_on_header_callback(cb, headers_field);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    return cb;
}

/* ---- the connection ---- */

/* The tables are ours: a method without a role, or what its kind needs, is our mistake. */
static void check_methods(const struct grpc_server_options *o) {
    for (size_t i = 0; i < o->service_count; i++) {
        for (size_t k = 0; k < o->services[i].method_count; k++) {
            const struct grpc_method *m = &o->services[i].methods[k];
            bool one = m->kind == GRPC_UNARY || m->kind == GRPC_SERVER_STREAM;
            assert(m->path && m->role != GRPC_NO_ROLE);
            assert(one ? m->request && m->on_request : m->on_message != NULL);
        }
    }
}

struct grpc_conn *grpc_server_new(const struct grpc_server_options *options, int64_t now) {
    struct grpc_conn *c = mem_zeroed(1, sizeof *c);
    check_methods(options);
    c->options = *options;
    c->h2.settle = call_settle;
    c->h2.trailers = call_trailers;
    c->h2.on_output = options->on_output;
    c->h2.user = options->user;
    h2_init(&c->h2, true, options->unix_socket, callbacks());
    c->h2.now = now;
    c->owed_by = now + OWED_CAP_NS;
    c->idle_by = GRPC_NEVER;
    h2_deadline(&c->h2, c->owed_by);
    return c;
}

int grpc_server_receive(struct grpc_conn *c, const uint8_t *bytes, size_t n, int64_t now,
                        struct err *e) {
    bool deaf = buf_unread(&c->h2.out) > 0; /* the transport did not take all */
    int rv = h2_receive(&c->h2, bytes, n, now, e);
    /* Each call too many is answered with a reset, as long as the peer has not acknowledged our
     * SETTINGS, and nghttp2 keeps them without a limit. */
    if (rv == 0 && deaf &&
        nghttp2_session_get_outbound_queue_size(c->h2.session) > FRAMES_WAITING) {
        h2_break(&c->h2, ST_RESOURCE_EXHAUSTED, "the peer does not read its answers");
        rv = err_set(e, ST_RESOURCE_EXHAUSTED, "%s", c->h2.error.text);
    }
    return rv;
}

size_t grpc_server_output(struct grpc_conn *c, const uint8_t **bytes) {
    return h2_output(&c->h2, bytes);
}

void grpc_server_sent(struct grpc_conn *c, size_t n) {
    h2_sent(&c->h2, n);
}

bool grpc_server_over(const struct grpc_conn *c) {
    return h2_over(&c->h2);
}

int64_t grpc_server_next_deadline(const struct grpc_conn *c) {
    return c->h2.next_deadline;
}

void grpc_server_drain(struct grpc_conn *c) {
    if (c->draining || c->h2.broken) {
        return;
    }
    c->draining = true;
    int32_t last = nghttp2_session_get_last_proc_stream_id(c->h2.session);
    nghttp2_submit_goaway(c->h2.session, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
    h2_note(&c->h2);
}

size_t grpc_server_calls(const struct grpc_conn *c) {
    return c->calls;
}

void grpc_server_free(struct grpc_conn *c) {
    while (c->h2.streams) {
        call_free((struct grpc_call *)c->h2.streams);
    }
    h2_free(&c->h2);
    free(c);
}

/* ---- deadlines ---- */

/* Nothing of it helps the peer any more: also what waits to be written is dropped. */
static void give_up(struct grpc_conn *c, const char *text) {
    h2_break(&c->h2, ST_DEADLINE_EXCEEDED, text);
    buf_free(&c->h2.out);
}

/* Handlers finish calls without knowing the time: it counts from the first look at |now|. */
static bool is_past(int64_t *by, int64_t now) {
    if (*by == GRPC_NEVER) {
        *by = now + GRPC_IDLE_CAP_NS;
    }
    return *by <= now;
}

static void expire_call(struct grpc_call *call, int64_t now) {
    if (!call->s.ended && call->deadline <= now) {
        call_end(call, ST_DEADLINE_EXCEEDED, "deadline exceeded");
    }
    if (!call->s.ended) {
        h2_deadline(call->s.h2, call->deadline);
    } else if (is_past(&call->taken_by, now)) {
        give_up(call_conn(call), "the peer does not take its answers");
    } else {
        h2_deadline(call->s.h2, call->taken_by);
    }
}

static void expire_idle(struct grpc_conn *c, int64_t now) {
    if (is_past(&c->idle_by, now)) {
        if (buf_unread(&c->h2.out) > 0) { /* no goodbye would reach it either */
            give_up(c, "the peer does not read its answers");
        }
        grpc_server_drain(c);
        c->idle_by = now + GRPC_IDLE_CAP_NS;
    }
    h2_deadline(&c->h2, c->idle_by);
}

/* Ends what is due; |c->h2.next_deadline| becomes exact again. */
static void expire(struct grpc_conn *c, int64_t now) {
    c->h2.next_deadline = c->owed_by;
    if (c->owed_by <= now) {
        give_up(c, "no SETTINGS, or no end of a call's headers, in 10 s");
    }
    for (struct h2_stream *s = c->h2.streams; s; s = s->next) {
        expire_call((struct grpc_call *)s, now);
    }
    if (c->calls == 0) {
        expire_idle(c, now);
    }
    if (c->h2.broken) {
        c->h2.next_deadline = GRPC_NEVER;
    }
}

void grpc_server_tick(struct grpc_conn *c, int64_t now) {
    c->h2.now = now;
    if (now >= c->h2.next_deadline) {
        expire(c, now);
    }
}
