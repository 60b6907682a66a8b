/* The client side of a connection. See grpc_client.h. A stream ends in one place, stream_end, which
 * calls on_done and frees it; whoever must not do that at once sets |leaving| and marks. */
#include "proto/grpc_client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/grpc_server.h"
#include "proto/h2.h"

struct grpc_client {
    struct h2 h2; /* first: nghttp2's user data points here */
    uint64_t events;
    bool usable;
    int lost_code; /* of new streams once not usable */
    char lost_text[GRPC_TEXT_MAX + 1];
};

struct grpc_stream {
    struct h2_stream s; /* first */
    const struct grpc_stream_handlers *handlers;
    void *data;
    char *path; /* until submitted; owned */
    int64_t deadline;
    int http_status;
    int code; /* from grpc-status, or ours when |leaving| */
    char text[GRPC_TEXT_MAX + 1];
    bool has_status;
    bool leaving; /* ended here: on_done at the next settling */
};

static struct grpc_client *client_of(const struct grpc_stream *g) {
    return (struct grpc_client *)g->s.h2;
}

/* ---- the end of a stream ---- */

static void stream_end(struct grpc_stream *g, int code, const char *text) {
    struct grpc_client *c = client_of(g);
    if (g->s.id > 0) {
        nghttp2_session_set_stream_user_data(c->h2.session, g->s.id, NULL);
    }
    c->events++;
    g->leaving = true;
    g->s.ended = true; /* sending is over for on_done, too */
    g->handlers->on_done(g, code, text);
    free(g->path);
    h2_stream_gone(&g->s);
    free(g);
}

static void leave(struct grpc_stream *g, int code, const char *text) {
    if (!g->leaving) {
        g->leaving = true;
        g->s.ended = true;
        g->code = code;
        (void)snprintf(g->text, sizeof g->text, "%s", text);
        h2_stream_mark(&g->s);
    }
}

/* The status of a stream that the server has ended. */
static void end_by_server(struct grpc_stream *g) {
    char text[64];
    if (g->has_status) {
        int code = g->code;
        bool torn = code == ST_OK && !deframer_idle(&g->s.in);
        stream_end(g, torn ? ST_INTERNAL : code,
                   torn ? "the answer ends inside a message" : g->text);
    } else if (g->http_status != 200) {
        (void)snprintf(text, sizeof text, "the server answered with HTTP status %d",
                       g->http_status);
        stream_end(g, grpc_status_of_http(g->http_status), text);
    } else {
        stream_end(g, ST_UNKNOWN, "the server ended the call without a status");
    }
}

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
        leave(g, ST_RESOURCE_EXHAUSTED, "the answer's headers are larger than 8192 bytes");
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
        leave(g, ST_RESOURCE_EXHAUSTED, "an answer is larger than 4194304 bytes");
    } else if (rv < 0) {
        leave(g, ST_INTERNAL, "malformed or compressed message in the answer");
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
        end_by_server(g);
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
        leave(g, ST_UNAVAILABLE, nghttp2_strerror(error));
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

/* ---- frames out ---- */

static void submit(struct grpc_stream *g) {
    struct grpc_client *c = client_of(g);
    char timeout[GRPC_TIMEOUT_TEXT];
    size_t timeout_len = 0;
    if (g->deadline != GRPC_NEVER) {
        timeout_len = grpc_timeout_format(g->deadline - c->h2.now, timeout);
    }
    const nghttp2_nv nv[] = {
        H2_NV_TEXT(":method", "POST"),
        H2_NV_TEXT(":scheme", "http"),
        H2_NV(":path", g->path, strlen(g->path)),
        H2_NV_TEXT(":authority", "localhost"),
        H2_NV_TEXT("te", "trailers"),
        H2_NV_TEXT("content-type", "application/grpc"),
        H2_NV("grpc-timeout", timeout, timeout_len),
    };
    nghttp2_data_provider provider = h2_stream_provider();
    int32_t id = nghttp2_submit_request(c->h2.session, NULL, nv, timeout_len ? 7 : 6, &provider, g);
    free(g->path);
    g->path = NULL;
    if (id > 0) {
        g->s.id = id;
    } else {
        leave(g, ST_UNAVAILABLE, nghttp2_strerror(id));
    }
}

static void settle(struct h2_stream *s) {
    struct grpc_stream *g = (struct grpc_stream *)s;
    struct grpc_client *c = client_of(g);
    if (g->leaving) {
        if (s->id > 0) {
            nghttp2_submit_rst_stream(c->h2.session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
        }
        stream_end(g, g->code, g->text);
    } else if (!c->usable && g->path) {
        stream_end(g, c->lost_code, c->lost_text);
    } else if (g->path) {
        submit(g);
    } else {
        if (h2_stream_writable(s) && !s->ended && g->handlers->on_writable) {
            c->events++;
            g->handlers->on_writable(g);
        }
        h2_stream_resume(s);
    }
}

/* ---- the connection ---- */

struct grpc_client *grpc_client_new(void (*on_output)(void *user), void *user) {
    struct grpc_client *c = mem_zeroed(1, sizeof *c);
    c->usable = true;
    c->h2.settle = settle;
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
                leave(g, ST_DEADLINE_EXCEEDED, "deadline exceeded");
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
        leave((struct grpc_stream *)s, code, text);
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

/* ---- streams ---- */

struct grpc_stream *grpc_client_start(struct grpc_client *c, const char *path,
                                      const struct grpc_stream_handlers *handlers, void *data,
                                      int64_t deadline, int64_t now) {
    struct grpc_stream *g = mem_zeroed(1, sizeof *g);
    g->path = mem_text(path);
    g->handlers = handlers;
    g->data = data;
    g->deadline = deadline;
    c->h2.now = now;
    h2_stream_init(&c->h2, &g->s);
    h2_deadline(&c->h2, deadline);
    h2_stream_mark(&g->s);
    return g;
}

int grpc_client_send(struct grpc_stream *g, const ProtobufCMessage *message) {
    return g->s.ended ? -ST_CANCELLED : h2_stream_send(&g->s, message);
}

void grpc_client_half_close(struct grpc_stream *g) {
    if (!g->s.ended) {
        g->s.ended = true;
        h2_stream_mark(&g->s);
    }
}

void grpc_client_cancel(struct grpc_stream *g) {
    leave(g, ST_CANCELLED, "cancelled here");
}

size_t grpc_stream_queued(const struct grpc_stream *g) {
    return buf_unread(&g->s.out);
}

bool grpc_stream_full(const struct grpc_stream *g) {
    return grpc_stream_queued(g) >= GRPC_HIGH_MARK;
}

void *grpc_stream_data(const struct grpc_stream *g) {
    return g->data;
}

void grpc_stream_set_data(struct grpc_stream *g, void *data) {
    g->data = data;
}

struct grpc_client *grpc_stream_client(const struct grpc_stream *g) {
    return client_of(g);
}
