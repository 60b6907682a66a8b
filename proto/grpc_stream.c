/* The streams of a client connection: how what callers do becomes frames, and how a stream ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/client_core.h"

/* ---- the end of a stream ---- */

void stream_end(struct grpc_stream *g, int code, const char *text) {
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

void stream_leave(struct grpc_stream *g, int code, const char *text) {
    if (!g->leaving) {
        g->leaving = true;
        g->s.ended = true;
        g->code = code;
        (void)snprintf(g->text, sizeof g->text, "%s", text);
        h2_stream_mark(&g->s);
    }
}

/* The status of a stream that the server has ended. */
void stream_end_by_server(struct grpc_stream *g) {
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
        stream_leave(g, ST_UNAVAILABLE, nghttp2_strerror(id));
    }
}

void stream_settle(struct h2_stream *s) {
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

/* ---- for callers ---- */

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
    stream_leave(g, ST_CANCELLED, "cancelled here");
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
