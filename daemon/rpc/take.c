/* handover_take: the receiving side of the descriptor socket on a loop. */
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "rpc/handover.h"

enum { NS_PER_MS = 1000000 };

struct take {
    uv_poll_t poll;
    uv_timer_t timer; /* the deadline, or 0 to report a failure from the loop */
    int fd;           /* -1: never connected */
    int handles;
    size_t n;
    int fds[HANDOVER_DESCRIPTORS];
    int code;
    struct err err;
    handover_taken on_taken;
    void *user;
};

static void on_closed(uv_handle_t *handle) {
    struct take *t = handle->data;
    if (--t->handles > 0) {
        return;
    }
    if (t->fd >= 0) {
        close(t->fd);
    }
    t->on_taken(t->user, t->code, t->code ? 0 : t->n, t->fds, &t->err);
    free(t);
}

static void finish(struct take *t, int code) {
    t->code = code;
    uv_close((uv_handle_t *)&t->timer, on_closed);
    if (t->fd >= 0) {
        uv_close((uv_handle_t *)&t->poll, on_closed);
    }
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct take *t = poll->data;
    (void)events;
    int rv = status < 0
                 ? err_set(&t->err, ST_UNAVAILABLE, "descriptor socket: %s", uv_strerror(status))
                 : take_descriptors_finish(t->fd, t->n, t->fds, &t->err);
    if (rv != 1) {
        finish(t, rv);
    }
}

static void on_timer(uv_timer_t *timer) {
    struct take *t = timer->data;
    if (t->code == 0) {
        t->code = err_set(&t->err, ST_DEADLINE_EXCEEDED, "no answer from the descriptor socket");
    }
    finish(t, t->code);
}

static int watch(struct take *t, uv_loop_t *loop) {
    int rv = uv_poll_init(loop, &t->poll, t->fd);
    if (rv) {
        close(t->fd);
        t->fd = -1;
    } else {
        t->poll.data = t;
        t->handles++;
        rv = uv_poll_start(&t->poll, UV_READABLE, on_readable);
    }
    return rv ? err_set(&t->err, ST_UNAVAILABLE, "descriptor socket: %s", uv_strerror(rv)) : 0;
}

void handover_take(uv_loop_t *loop, const char *path, const uint8_t token[HANDOVER_TOKEN], size_t n,
                   int64_t timeout_ns, handover_taken on_taken, void *user) {
    assert(n >= 1 && n <= HANDOVER_DESCRIPTORS);
    struct take *t = mem_zeroed(1, sizeof *t);
    t->n = n;
    t->on_taken = on_taken;
    t->user = user;
    t->fd = -1;
    t->code = take_descriptors_start(path, token, &t->fd, &t->err);
    int rv = uv_timer_init(loop, &t->timer);
    assert(rv == 0); /* only fills a structure */
    t->timer.data = t;
    t->handles = 1;
    if (t->code == 0) {
        t->code = watch(t, loop);
    }
    uint64_t ms = t->code || timeout_ns <= 0 ? 0 : (uint64_t)((timeout_ns - 1) / NS_PER_MS + 1);
    (void)uv_timer_start(&t->timer, on_timer, ms, 0);
}
