#include "rpc/wire.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/grpc_server.h"

enum { HANDLES = 3, NS_PER_MS = 1000000 };
#define LONGEST_TIMER_NS INT64_C(3600000000000)

static void on_closed(uv_handle_t *handle) {
    struct wire *w = handle->data;
    if (--w->handles == 0) {
        close(w->fd);
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
    uv_close((uv_handle_t *)&w->poll, on_closed);
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

static void on_ready(uv_poll_t *poll, int status, int events);

static void watch(struct wire *w, bool blocked) {
    if (blocked != w->blocked) {
        w->blocked = blocked;
        (void)uv_poll_start(&w->poll, UV_READABLE | (blocked ? UV_WRITABLE : 0), on_ready);
    }
}

/* Writes until there is nothing left or no room. 0 or an errno. */
static int write_all(struct wire *w) {
    const uint8_t *bytes;
    size_t n;
    while ((n = w->ops->output(w->end, &bytes)) > 0) {
        ssize_t wrote = send(w->fd, bytes, n, MSG_NOSIGNAL);
        if (wrote >= 0) {
            w->ops->sent(w->end, (size_t)wrote);
        } else if (errno == EAGAIN) {
            watch(w, true);
            return 0;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    watch(w, false);
    return 0;
}

void wire_flush(struct wire *w) {
    if (w->shut) {
        return;
    }
    int failed = write_all(w);
    if (failed) {
        wire_shut(w, ST_UNAVAILABLE, strerror(failed));
    } else if (!w->blocked && w->ops->over(w->end)) {
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

/* One chunk a turn, so that no connection keeps the others waiting. */
static void read_some(struct wire *w) {
    struct err e;
    ssize_t n = recv(w->fd, w->in, WIRE_READ_CHUNK, 0);
    if (n > 0) {
        if (w->ops->receive(w->end, w->in, (size_t)n, clock_ns(), &e)) {
            (void)write_all(w); /* the GOAWAY that says why */
            wire_shut(w, (enum status)e.code, e.text);
        }
    } else if (n == 0) {
        wire_shut(w, ST_UNAVAILABLE, "the peer hung up");
    } else if (errno != EAGAIN && errno != EINTR) {
        wire_shut(w, ST_UNAVAILABLE, strerror(errno));
    }
}

static void on_ready(uv_poll_t *poll, int status, int events) {
    struct wire *w = poll->data;
    if (status < 0 || (events & UV_READABLE)) { /* an error comes out of recv */
        read_some(w);
    }
    wire_flush(w);
}

int wire_start(struct wire *w, uv_loop_t *loop, int fd) {
    int rv = uv_poll_init(loop, &w->poll, fd);
    if (rv) {
        close(fd);
        return rv;
    }
    rv = uv_idle_init(loop, &w->idle);
    rv |= uv_timer_init(loop, &w->timer);
    assert(rv == 0); /* these only fill structures */
    w->poll.data = w->idle.data = w->timer.data = w;
    w->fd = fd;
    w->handles = HANDLES;
    w->armed = GRPC_NEVER;
    rv = uv_poll_start(&w->poll, UV_READABLE, on_ready);
    assert(rv == 0); /* only changes the loop's tables */
    wire_note(w);
    return 0;
}
