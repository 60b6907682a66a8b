#include "proto/h2.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/grpc_server.h"

enum {
    STREAM_WINDOW = 1024 * 1024, /* bytes that a peer may send ahead on one stream */
    CONNECTION_WINDOW = 4 * 1024 * 1024,
    OUTPUT_CHUNK = 64 * 1024, /* bytes of frames gathered before they are handed out */
    KEPT_QUEUE = 64 * 1024,   /* bytes of buffer that an empty stream keeps */
    FRAME_HEAD = 9,
    RESETS_BURST = 1000, /* of a peer, then RESETS_RATE a second */
    RESETS_RATE = 33,
    SETTLE_ROUNDS = 64, /* of handlers that make new work, before the transport has a turn */
};

/* ---- streams ---- */

void h2_stream_init(struct h2 *h, struct h2_stream *s) {
    s->h2 = h;
    s->in.max = GRPC_MESSAGE_MAX;
    s->next = h->streams;
    if (h->streams) {
        h->streams->prev = s;
    }
    h->streams = s;
}

static void unmark(struct h2_stream *s) {
    if (!s->marked) {
        return;
    }
    *(s->marked_prev ? &s->marked_prev->marked_next : &s->h2->marked) = s->marked_next;
    *(s->marked_next ? &s->marked_next->marked_prev : &s->h2->marked_last) = s->marked_prev;
    s->marked_prev = s->marked_next = NULL;
    s->marked = false;
}

void h2_stream_drop_input(struct h2_stream *s) {
    s->h2->held -= buf_unread(&s->in.body);
    deframer_free(&s->in);
    s->in.failed = true;
}

void h2_stream_gone(struct h2_stream *s) {
    struct h2 *h = s->h2;
    unmark(s);
    h2_stream_drop_input(s);
    h->queued -= buf_unread(&s->out);
    buf_free(&s->out);
    *(s->prev ? &s->prev->next : &h->streams) = s->next;
    if (s->next) {
        s->next->prev = s->prev;
    }
}

void h2_note(struct h2 *h) {
    if (!h->inside && !h->noted) {
        h->noted = true;
        if (h->on_output) {
            h->on_output(h->user);
        }
    }
}

void h2_deadline(struct h2 *h, int64_t at) {
    if (at < h->next_deadline) {
        h->next_deadline = at;
    }
}

void h2_stream_mark(struct h2_stream *s) {
    struct h2 *h = s->h2;
    if (!s->marked) {
        s->marked = true;
        s->marked_prev = h->marked_last;
        *(h->marked_last ? &h->marked_last->marked_next : &h->marked) = s;
        h->marked_last = s;
    }
    h2_note(h);
}

int h2_stream_send(struct h2_stream *s, const ProtobufCMessage *message) {
    size_t n = protobuf_c_message_get_packed_size(message);
    struct h2 *h = s->h2;
    if (n > GRPC_MESSAGE_MAX || h->queued + n + GRPC_PREFIX > GRPC_BUFFER_MAX) {
        return -ST_RESOURCE_EXHAUSTED;
    }
    uint8_t *to = buf_reserve(&s->out, GRPC_PREFIX + n);
    grpc_prefix_write(to, (uint32_t)n);
    size_t packed = protobuf_c_message_pack(message, to + GRPC_PREFIX);
    assert(packed == n);
    s->out.len += GRPC_PREFIX + packed;
    h->queued += GRPC_PREFIX + packed;
    s->was_full = s->was_full || buf_unread(&s->out) >= GRPC_HIGH_MARK;
    h2_stream_mark(s);
    return 0;
}

bool h2_stream_writable(struct h2_stream *s) {
    bool room = s->was_full && buf_unread(&s->out) <= GRPC_LOW_MARK;
    s->was_full = s->was_full && !room;
    return room;
}

void h2_stream_resume(struct h2_stream *s) {
    if (s->deferred && (buf_unread(&s->out) > 0 || s->ended)) {
        s->deferred = false;
        nghttp2_session_resume_data(s->h2->session, s->id);
    }
}

bool h2_stream_header(struct h2_stream *s, size_t name_len, size_t value_len) {
    s->header_bytes += name_len + value_len + 32;
    return s->header_bytes <= GRPC_HEADERS_MAX;
}

int h2_stream_deframe(struct h2_stream *s, const uint8_t *bytes, size_t n, deframe_fn fn,
                      void *arg) {
    struct h2 *h = s->h2;
    size_t before = buf_unread(&s->in.body);
    int rv = deframer_push(&s->in, bytes, n, fn, arg);
    h->held = h->held - before + buf_unread(&s->in.body);
    return rv == 0 && h->held > GRPC_BUFFER_MAX ? -ST_RESOURCE_EXHAUSTED : rv;
}

struct h2_stream *h2_stream_of(nghttp2_session *session, int32_t id) {
    return nghttp2_session_get_stream_user_data(session, id);
}

/* ---- output ---- */

/* Says how much the next DATA frame carries; send_data puts it there without another copy. */
static ssize_t read_source(nghttp2_session *session, int32_t id, uint8_t *to, size_t cap,
                           uint32_t *flags, nghttp2_data_source *source, void *user) {
    (void)to;
    (void)source;
    (void)user;
    struct h2_stream *s = h2_stream_of(session, id);
    if (!s) { /* given up here, its reset is on the way */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    size_t n = buf_unread(&s->out);
    if (n == 0 && !s->ended) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > cap) {
        n = cap;
    }
    if (n > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    }
    if (s->ended && n == buf_unread(&s->out)) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->h2->trailers) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            s->h2->trailers(s);
        }
    }
    return (ssize_t)n;
}

nghttp2_data_provider h2_stream_provider(void) {
    return (nghttp2_data_provider){.read_callback = read_source};
}

static int send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n,
                     nghttp2_data_source *source, void *user) {
    (void)source;
    struct h2 *h = user;
    struct h2_stream *s = h2_stream_of(session, frame->hd.stream_id);
    if (!s) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    assert(frame->data.padlen == 0 && n <= buf_unread(&s->out));
    uint8_t *to = buf_reserve(&h->out, FRAME_HEAD + n);
    memcpy(to, head, FRAME_HEAD);
    memcpy(to + FRAME_HEAD, buf_bytes(&s->out), n);
    h->out.len += FRAME_HEAD + n;
    buf_consume(&s->out, n);
    h->queued -= n;
    if (buf_unread(&s->out) == 0 && s->out.cap > KEPT_QUEUE) {
        buf_free(&s->out);
    }
    if (s->was_full && buf_unread(&s->out) <= GRPC_LOW_MARK) {
        h2_stream_mark(s);
    }
    return 0;
}

bool h2_settle(struct h2 *h) {
    struct h2_stream *s;
    int rounds = 0;
    while ((s = h->marked) && rounds++ < SETTLE_ROUNDS * GRPC_CALLS_MAX) {
        unmark(s);
        h->settle(s);
    }
    return h->marked != NULL;
}

static void fill_output(struct h2 *h) {
    while (!h->broken && buf_unread(&h->out) < OUTPUT_CHUNK) {
        bool again = h2_settle(h);
        const uint8_t *p;
        size_t before = h->out.len;
        ssize_t n = nghttp2_session_mem_send(h->session, &p);
        if (n < 0) {
            h2_break(h, ST_INTERNAL, nghttp2_strerror((int)n));
        } else if (n > 0) {
            buf_append(&h->out, p, (size_t)n);
        } else if (before == h->out.len && !h->marked) {
            break;
        } else if (again) { /* a handler that goes on for ever: let the transport breathe */
            break;
        }
    }
}

size_t h2_output(struct h2 *h, const uint8_t **bytes) {
    h->noted = false;
    h->inside = true;
    fill_output(h);
    h->inside = false;
    if (h->marked) {
        h2_note(h);
    }
    *bytes = buf_bytes(&h->out);
    return buf_unread(&h->out);
}

void h2_sent(struct h2 *h, size_t n) {
    assert(n <= buf_unread(&h->out));
    buf_consume(&h->out, n);
}

bool h2_over(const struct h2 *h) {
    if (buf_unread(&h->out) > 0) {
        return false;
    }
    return h->broken || (!h->marked && !nghttp2_session_want_read(h->session) &&
                         !nghttp2_session_want_write(h->session));
}

void h2_break(struct h2 *h, enum status code, const char *text) {
    if (!h->broken) {
        h->broken = true;
        err_set(&h->error, code, "%s", text);
    }
}

/* ---- input ---- */

int h2_receive(struct h2 *h, const uint8_t *bytes, size_t n, int64_t now, struct err *e) {
    h->now = now;
    h->inside = true;
    if (!h->broken) {
        ssize_t rv = nghttp2_session_mem_recv(h->session, bytes, n);
        if (rv < 0) {
            h2_break(h, ST_INTERNAL, nghttp2_strerror((int)rv));
        } else {
            (void)h2_settle(h);
        }
    }
    h->inside = false;
    return h->broken ? err_set(e, (enum status)h->error.code, "%s", h->error.text) : 0;
}

/* ---- the session ---- */

static nghttp2_option *options(bool lenient) {
    nghttp2_option *o;
    if (nghttp2_option_new(&o)) {
        return NULL;
    }
    nghttp2_option_set_no_closed_streams(o, 1);
    nghttp2_option_set_stream_reset_rate_limit(o, RESETS_BURST, RESETS_RATE);
    nghttp2_option_set_peer_max_concurrent_streams(o, GRPC_CALLS_MAX);
    if (lenient) {
        nghttp2_option_set_no_http_messaging(o, 1);
    }
    return o;
}

void h2_init(struct h2 *h, bool server, bool lenient, nghttp2_session_callbacks *callbacks) {
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADERS_MAX},
        {server ? NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS : NGHTTP2_SETTINGS_ENABLE_PUSH,
         server ? GRPC_CALLS_MAX : 0},
    };
    nghttp2_option *o = options(lenient);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, send_data);
    int rv = server ? nghttp2_session_server_new2(&h->session, callbacks, h, o)
                    : nghttp2_session_client_new2(&h->session, callbacks, h, o);
    /* Only for want of memory, which base/buf.h decided once: stop. */
    assert(o && rv == 0);
    nghttp2_option_del(o);
    nghttp2_session_callbacks_del(callbacks);
    rv = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings, 3);
    assert(rv == 0);
    rv = nghttp2_session_set_local_window_size(h->session, 0, 0, CONNECTION_WINDOW);
    assert(rv == 0);
    h->next_deadline = GRPC_NEVER;
}

void h2_free(struct h2 *h) {
    assert(!h->inside && !h->streams);
    nghttp2_session_del(h->session);
    buf_free(&h->out);
}
