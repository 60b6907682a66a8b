/* The client side of a connection: what the server says, deadlines, loss. See grpc_client.h. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/client_core.h"

/* ---- nghttp2's callbacks ---- */

static struct grpc_stream *stream_of(nghttp2_session *session, int32_t id) {
    return (struct grpc_stream *)h2_stream_of(session, id);
}

static bool same(const uint8_t *bytes, size_t n, const char *text) {
    return n == strlen(text) && memcmp(bytes, text, n) == 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user) {
    (void)flags;
    (void)user;
    struct grpc_stream *g = stream_of(session, f->hd.stream_id);
    if (!g || g->leaving) {
        return 0;
    }
    const char *text = (const char *)value;
    if (!h2_stream_header(&g->s, name_len, value_len)) {
        stream_leave(g, ST_RESOURCE_EXHAUSTED, "the answer's headers are larger than 8192 bytes");
    } else if (same(name, name_len, ":status")) {
        g->http_status = value_len == 3 ? atoi((char[]){text[0], text[1], text[2], 0}) : 0;
    } else if (same(name, name_len, "grpc-status")) {
        g->has_status = true;
        g->code = grpc_status_parse(text, value_len);
    } else if (same(name, name_len, "grpc-message")) {
        grpc_text_decode(text, value_len, sizeof g->text, g->text);
    }
    return 0;
}

static int on_message(void *arg, const uint8_t *bytes, size_t len) {
    struct grpc_stream *g = arg;
    if (g->handlers->on_message) {
        client_of(g)->events++;
        g->handlers->on_message(g, bytes, len);
    }
    return g->leaving ? -ST_CANCELLED : 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t n, void *user) {
    (void)flags;
    (void)user;
    struct grpc_stream *g = stream_of(session, id);
    if (!g || g->leaving || g->http_status != 200) {
        return 0;
    }
    int rv = h2_stream_deframe(&g->s, bytes, n, on_message, g);
    if (rv == -ST_RESOURCE_EXHAUSTED) {
        stream_leave(g, ST_RESOURCE_EXHAUSTED, "an answer is larger than 4194304 bytes");
    } else if (rv < 0) {
        stream_leave(g, ST_INTERNAL, "malformed or compressed message in the answer");
    }
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *f, void *user) {
    struct grpc_client *c = user;
    if (f->hd.type == NGHTTP2_GOAWAY) {
        c->usable = false;
        c->lost_code = ST_UNAVAILABLE;
        (void)snprintf(c->lost_text, sizeof c->lost_text, "the server is going away");
        return 0;
    }
    bool end = f->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (!end || (f->hd.type != NGHTTP2_HEADERS && f->hd.type != NGHTTP2_DATA)) {
        return 0;
    }
    struct grpc_stream *g = stream_of(session, f->hd.stream_id);
    if (g && !g->leaving) {
        bool sending = !g->s.ended || buf_unread(&g->s.out) > 0;
        int32_t id = g->s.id;
        stream_end_by_server(g);
        if (sending) {
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
        }
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
    struct grpc_client *c = user;
    struct grpc_stream *g = stream_of(session, id);
    if (!g) {
        return 0;
    }
    g->s.id = 0; /* nothing left to reset */
    nghttp2_session_set_stream_user_data(session, id, NULL);
    if (g->leaving) {
        return 0; /* marked: on_done comes with our reason */
    }
    if (code == NGHTTP2_REFUSED_STREAM && !c->usable) {
        stream_end(g, ST_UNAVAILABLE, c->lost_text);
    } else {
        char text[64];
        (void)snprintf(text, sizeof text, "the stream was reset: %s", nghttp2_http2_strerror(code));
        stream_end(g, grpc_status_of_reset(code), text);
    }
    return 0;
}

/* A request that could not go out, e.g. after GOAWAY. */
static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *f, int error,
                             void *user) {
    (void)user;
    if (f->hd.type != NGHTTP2_HEADERS || f->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    struct grpc_stream *g = stream_of(session, f->hd.stream_id);
    if (g) {
        g->s.id = 0;
        stream_leave(g, ST_UNAVAILABLE, nghttp2_strerror(error));
    }
    return 0;
}

static nghttp2_session_callbacks *callbacks(void) {
    nghttp2_session_callbacks *cb = NULL;
    int rv = nghttp2_session_callbacks_new(&cb);
    assert(rv == 0); /* only for want of memory */
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_frame_not_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    return cb;
}

/* ---- the connection ---- */

struct grpc_client *grpc_client_new(void (*on_output)(void *user), void *user) {
    struct grpc_client *c = mem_zeroed(1, sizeof *c);
    c->usable = true;
    c->h2.settle = stream_settle;
    c->h2.on_output = on_output;
    c->h2.user = user;
    h2_init(&c->h2, false, false, callbacks());
    return c;
}

int grpc_client_receive(struct grpc_client *c, const uint8_t *bytes, size_t n, int64_t now,
                        struct err *e) {
    return h2_receive(&c->h2, bytes, n, now, e);
}

size_t grpc_client_output(struct grpc_client *c, const uint8_t **bytes) {
    return h2_output(&c->h2, bytes);
}

void grpc_client_sent(struct grpc_client *c, size_t n) {
    h2_sent(&c->h2, n);
}

bool grpc_client_over(const struct grpc_client *c) {
    return h2_over(&c->h2);
}

int64_t grpc_client_next_deadline(const struct grpc_client *c) {
    return c->h2.next_deadline;
}

void grpc_client_tick(struct grpc_client *c, int64_t now) {
    c->h2.now = now;
    if (now >= c->h2.next_deadline) {
        c->h2.next_deadline = GRPC_NEVER;
        for (struct h2_stream *s = c->h2.streams; s; s = s->next) {
            struct grpc_stream *g = (struct grpc_stream *)s;
            if (g->deadline <= now) {
                stream_leave(g, ST_DEADLINE_EXCEEDED, "deadline exceeded");
            } else {
                h2_deadline(&c->h2, g->deadline);
            }
        }
    }
    c->h2.inside = true;
    (void)h2_settle(&c->h2);
    c->h2.inside = false;
}

bool grpc_client_usable(const struct grpc_client *c) {
    return c->usable && !c->h2.broken;
}

uint64_t grpc_client_events(const struct grpc_client *c) {
    return c->events;
}

void grpc_client_close(struct grpc_client *c, int code, const char *text) {
    c->usable = false;
    c->lost_code = code;
    (void)snprintf(c->lost_text, sizeof c->lost_text, "%s", text);
    h2_break(&c->h2, (enum status)code, text);
    for (struct h2_stream *s = c->h2.streams; s; s = s->next) {
        stream_leave((struct grpc_stream *)s, code, text);
    }
    c->h2.inside = true;
    (void)h2_settle(&c->h2);
    c->h2.inside = false;
}

void grpc_client_free(struct grpc_client *c) {
    grpc_client_close(c, ST_CANCELLED, "the connection was closed here");
    while (c->h2.streams) { /* started by the last on_done */
        struct grpc_stream *g = (struct grpc_stream *)c->h2.streams;
        stream_end(g, ST_CANCELLED, "the connection was closed here");
    }
    h2_free(&c->h2);
    free(c);
}

void grpc_client_forget(struct grpc_client *c) {
    while (c->h2.streams) {
        struct grpc_stream *g = (struct grpc_stream *)c->h2.streams;
        free(g->path);
        h2_stream_gone(&g->s);
        free(g);
    }
    h2_free(&c->h2);
    free(c);
}
