#include "process/life.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"

enum { SIGNALS = 2, PATH_BYTES = 4096 };

struct life {
    uv_signal_t signals[SIGNALS];
    uv_poll_t holder;
    uv_timer_t last_resort;
    int holder_fd;
    int open; /* handles that are not closed yet */
    int status;
    bool told;
    void (*on_end)(void *user, enum life_cause cause);
    void *user;
};

static void tell(struct life *l, enum life_cause cause) {
    if (!l->told) {
        l->told = true;
        l->on_end(l->user, cause);
    }
}

static void on_signal(uv_signal_t *s, int number) {
    (void)number;
    tell(s->data, LIFE_SIGNAL);
}

static void on_holder(uv_poll_t *p, int status, int events) {
    struct life *l = p->data;
    char byte;
    (void)status;
    (void)events;
    ssize_t n = read(l->holder_fd, &byte, 1);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        uv_poll_stop(p);
        tell(l, LIFE_HOLDER_DIED);
    }
}

bool life_holder_died(const struct life *l) {
    struct pollfd end = {.fd = l->holder_fd, .events = POLLIN}; /* nobody writes to it */
    return l->holder_fd != LIFE_NO_HOLDER && poll(&end, 1, 0) > 0;
}

static void add_signal(uv_loop_t *loop, struct life *l, int which, int number) {
    uv_signal_init(loop, &l->signals[which]);
    l->signals[which].data = l;
    uv_signal_start(&l->signals[which], on_signal, number);
    l->open++;
}

static int watch_holder(uv_loop_t *loop, struct life *l, struct err *e) {
    int flags = fcntl(l->holder_fd, F_GETFL);
    if (flags < 0 || fcntl(l->holder_fd, F_SETFL, flags | O_NONBLOCK) ||
        fcntl(l->holder_fd, F_SETFD, FD_CLOEXEC) || uv_poll_init(loop, &l->holder, l->holder_fd)) {
        return err_set(e, ST_INVALID_ARGUMENT, "holder-fd %d cannot be watched: %s", l->holder_fd,
                       strerror(errno));
    }
    l->holder.data = l;
    uv_poll_start(&l->holder, UV_READABLE | UV_DISCONNECT, on_holder);
    l->open++;
    return 0;
}

int life_start(uv_loop_t *loop, int holder_fd, void (*on_end)(void *user, enum life_cause cause),
               void *user, struct life **out, struct err *e) {
    struct life *l = mem_zeroed(1, sizeof *l);
    l->holder_fd = holder_fd;
    l->on_end = on_end;
    l->user = user;
    (void)signal(SIGPIPE, SIG_IGN);
    int code = holder_fd == LIFE_NO_HOLDER ? 0 : watch_holder(loop, l, e);
    if (code) {
        free(l);
        return code;
    }
    add_signal(loop, l, 0, SIGTERM);
    add_signal(loop, l, 1, SIGINT);
    uv_timer_init(loop, &l->last_resort);
    l->last_resort.data = l;
    l->open++;
    *out = l;
    return 0;
}

static void on_closed(uv_handle_t *h) {
    struct life *l = h->data;
    if (--l->open == 0) {
        if (l->holder_fd != LIFE_NO_HOLDER) {
            close(l->holder_fd);
        }
        free(l);
    }
}

static void on_last_resort(uv_timer_t *t) {
    struct life *l = t->data;
    log_warn("closing took too long; exiting as it is");
    _exit(l->status);
}

void life_leave(struct life *l, int status) {
    l->status = status;
    l->told = true;
    for (int i = 0; i < SIGNALS; i++) {
        uv_close((uv_handle_t *)&l->signals[i], on_closed);
    }
    if (l->holder_fd != LIFE_NO_HOLDER) {
        uv_close((uv_handle_t *)&l->holder, on_closed);
    }
    /* The timer stays, without keeping the loop alive by itself. */
    uv_timer_start(&l->last_resort, on_last_resort, LIFE_GRACE_NS / 1000000, 0);
    uv_unref((uv_handle_t *)&l->last_resort);
}

void life_remove_folder(const char *socket_path) {
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s", socket_path);
    (void)rmdir(dirname(path)); /* not empty: another process of the job is the last */
}
