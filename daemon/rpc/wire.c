#include "rpc/wire.h"

#include <assert.h>

#include "base/clock.h"
#include "proto/grpc_server.h"

enum { HANDLES = 3, NS_PER_MS = 1000000 };
#define LONGEST_TIMER_NS INT64_C(3600000000000)

static void on_closed(uv_handle_t *handle) {
    struct wire *w = handle->data;
    if (--w->handles == 0) {
        w->ops->closed(w->owner, &w->reason);
    }
}

void wire_shut(struct wire *w, enum status code, const char *text) {
    if (w->shut) {
        return;
    }
    w->shut = true;
    if (!w->shut_asked) {
        err_set(&w->reason, code, "%s", text);
    }
    w->ops->lost(w->end, &w->reason);
    uv_close((uv_handle_t *)&w->pipe, on_closed);
    uv_close((uv_handle_t *)&w->idle, on_closed);
    uv_close((uv_handle_t *)&w->timer, on_closed);
}

/* ---- deadlines ---- */

static void on_timer(uv_timer_t *timer);

static void arm(struct wire *w, int64_t now) {
    int64_t at = w->ops->next_deadline(w->end);
    if (at >= w->armed || w->shut) {
        return;
    }
    int64_t wait = at <= now ? 0 : at - now;
    if (wait > LONGEST_TIMER_NS) {
        wait = LONGEST_TIMER_NS;
    }
    w->armed = at;
    uv_update_time(w->timer.loop); /* libuv counts from the turn's start, which may be long ago */
    (void)uv_timer_start(&w->timer, on_timer, (uint64_t)((wait + NS_PER_MS - 1) / NS_PER_MS), 0);
}

static void on_timer(uv_timer_t *timer) {
    struct wire *w = timer->data;
    w->armed = GRPC_NEVER;
    w->ops->tick(w->end, clock_ns());
    wire_flush(w);
}

/* ---- output ---- */

static void on_written(uv_write_t *write, int status) {
    struct wire *w = write->data;
    w->writing = false;
    if (w->shut) {
        return;
    }
    if (status < 0) {
        wire_shut(w, ST_UNAVAILABLE, uv_strerror(status));
        return;
    }
    w->ops->sent(w->end, w->in_flight);
    wire_flush(w);
}

/* Leaves |n| bytes to libuv; they stay in place, as output is not asked for meanwhile. */
static int write_later(struct wire *w, const uint8_t *bytes, size_t n) {
    uv_buf_t b = uv_buf_init((char *)bytes, (unsigned)n);
    w->write.data = w;
    w->in_flight = n;
    int rv = uv_write(&w->write, (uv_stream_t *)&w->pipe, &b, 1, on_written);
    w->writing = rv == 0;
    return rv;
}

static int write_all(struct wire *w) {
    const uint8_t *bytes;
    size_t n;
    while (!w->writing && (n = w->ops->output(w->end, &bytes)) > 0) {
        uv_buf_t b = uv_buf_init((char *)bytes, (unsigned)n);
        int wrote = uv_try_write((uv_stream_t *)&w->pipe, &b, 1);
        if (wrote < 0 && wrote != UV_EAGAIN) {
            return wrote;
        }
        size_t done = wrote > 0 ? (size_t)wrote : 0;
        w->ops->sent(w->end, done);
        if (done < n) {
            return write_later(w, bytes + done, n - done);
        }
    }
    return 0;
}

void wire_flush(struct wire *w) {
    if (w->shut) {
        return;
    }
    int rv = write_all(w);
    if (rv < 0) {
        wire_shut(w, ST_UNAVAILABLE, uv_strerror(rv));
    } else if (!w->writing && w->ops->over(w->end)) {
        wire_shut(w, ST_UNAVAILABLE, "the peer said goodbye");
    } else {
        arm(w, clock_ns());
    }
}

static void on_idle(uv_idle_t *idle) {
    struct wire *w = idle->data;
    uv_idle_stop(idle);
    if (w->shut_asked) {
        (void)write_all(w); /* what still fits, e.g. a last status */
        wire_shut(w, ST_CANCELLED, "");
    } else {
        wire_flush(w);
    }
}

void wire_note(struct wire *w) {
    if (!w->shut) {
        uv_idle_start(&w->idle, on_idle);
    }
}

void wire_ask_shut(struct wire *w, enum status code, const char *text) {
    if (!w->shut && !w->shut_asked) {
        w->shut_asked = true;
        err_set(&w->reason, code, "%s", text);
        wire_note(w);
    }
}

/* ---- input ---- */

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *b) {
    (void)hint;
    struct wire *w = handle->data;
    *b = uv_buf_init((char *)w->in, WIRE_READ_CHUNK);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b) {
    struct wire *w = stream->data;
    struct err e;
    if (n == 0) {
        return;
    }
    if (n < 0) {
        wire_shut(w, ST_UNAVAILABLE, n == UV_EOF ? "the peer hung up" : uv_strerror((int)n));
        return;
    }
    int rv = w->ops->receive(w->end, (const uint8_t *)b->base, (size_t)n, clock_ns(), &e);
    if (rv) {
        (void)write_all(w); /* the GOAWAY that says why */
        wire_shut(w, (enum status)e.code, e.text);
    } else {
        wire_flush(w);
    }
}

void wire_init(struct wire *w, uv_loop_t *loop) {
    int rv = uv_pipe_init(loop, &w->pipe, 0);
    rv |= uv_idle_init(loop, &w->idle);
    rv |= uv_timer_init(loop, &w->timer);
    assert(rv == 0); /* these only fill structures */
    w->pipe.data = w->idle.data = w->timer.data = w;
    w->handles = HANDLES;
    w->armed = GRPC_NEVER;
}

int wire_start(struct wire *w) {
    int rv = uv_read_start((uv_stream_t *)&w->pipe, on_alloc, on_read);
    if (rv == 0) {
        wire_flush(w);
    }
    return rv;
}
