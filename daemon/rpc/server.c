/* Listener and connections of a gRPC server. What handlers may ask for (drain, close) is done in
 * the next turn of the loop, by an idle handle, as connections must not go while one of their
 * handlers runs. */
#include "rpc/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "rpc/access.h"
#include "rpc/listen.h"
#include "rpc/wire.h"

enum {
    CONNECTIONS_MAX = 8192,
    GUESTS_MAX = 64, /* of them, whose role is less than train: they must not keep trainers out */
    SERVER_HANDLES = 3,
    NS_PER_MS = 1000000,
    PAUSE_MS = 100, /* of accepting, when descriptors run out */
};

struct link {
    struct wire wire;
    struct rpc_server *server;
    struct grpc_conn *conn;
    bool guest;
    struct link *prev, *next;
};

struct rpc_server {
    uv_loop_t *loop;
    uv_poll_t listener;
    uv_idle_t idle;   /* runs when something was asked */
    uv_timer_t timer; /* grace of a drain; pause of the listener */
    int fd;           /* of the listener */
    struct listen_path where;
    struct access access;
    const struct grpc_service *services;
    size_t service_count;
    struct link *links;
    size_t connections, guests;
    int handles; /* not closed yet */
    int64_t grace_ns;
    void (*on_closed)(void *user);
    void *user;
    bool asked, cut_asked, listening, finishing;
    uint8_t in[WIRE_READ_CHUNK];
};

/* ---- a connection ---- */

static int receive(void *end, const uint8_t *bytes, size_t n, int64_t now, struct err *e) {
    return grpc_server_receive(end, bytes, n, now, e);
}
static size_t output(void *end, const uint8_t **bytes) {
    return grpc_server_output(end, bytes);
}
static void sent(void *end, size_t n) {
    grpc_server_sent(end, n);
}
static bool over(const void *end) {
    return grpc_server_over(end);
}
static int64_t next_deadline(const void *end) {
    return grpc_server_next_deadline(end);
}
static void tick(void *end, int64_t now) {
    grpc_server_tick(end, now);
}
static void lost(void *end, const struct err *reason) {
    (void)reason;
    grpc_server_free(end);
}

static void finish_if_empty(struct rpc_server *s);

static void closed(void *owner, const struct err *reason) {
    (void)reason;
    struct link *l = owner;
    struct rpc_server *s = l->server;
    *(l->prev ? &l->prev->next : &s->links) = l->next;
    if (l->next) {
        l->next->prev = l->prev;
    }
    s->connections--;
    s->guests -= l->guest;
    free(l);
    finish_if_empty(s);
}

static const struct wire_ops ops = {
    .receive = receive,
    .output = output,
    .sent = sent,
    .over = over,
    .next_deadline = next_deadline,
    .tick = tick,
    .lost = lost,
    .closed = closed,
};

static void on_output(void *user) {
    wire_note(user);
}

static struct grpc_server_options link_options(struct link *l, int fd) {
    struct grpc_server_options o = {
        .services = l->server->services,
        .service_count = l->server->service_count,
        .unix_socket = true,
        .peer = access_peer(fd),
        .on_output = on_output,
        .user = &l->wire,
    };
    o.role = access_role(&l->server->access, &o.peer, fd);
    access_rule(&l->server->access, sizeof o.rule, o.rule);
    return o;
}

static void link_new(struct rpc_server *s, int fd) {
    struct link *l = mem_zeroed(1, sizeof *l);
    l->server = s;
    struct grpc_server_options o = link_options(l, fd);
    l->guest = o.role < GRPC_TRAIN;
    if (l->guest && s->guests >= GUESTS_MAX) {
        close(fd);
        free(l);
        return;
    }
    l->conn = grpc_server_new(&o, clock_ns());
    l->wire.ops = &ops;
    l->wire.end = l->conn;
    l->wire.owner = l;
    l->wire.in = s->in;
    int rv = wire_start(&l->wire, s->loop, fd);
    if (rv) {
        log_warn("watching a connection of %s: %s", s->where.path, uv_strerror(rv));
        grpc_server_free(l->conn);
        free(l);
        return;
    }
    l->next = s->links;
    if (s->links) {
        s->links->prev = l;
    }
    s->links = l;
    s->connections++;
    s->guests += l->guest;
}

static void on_listener(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer) {
    struct rpc_server *s = timer->data;
    if (s->listening) {
        (void)uv_poll_start(&s->listener, UV_READABLE, on_listener);
    }
}

/* Out of descriptors or the like: the loop would spin on a listener that cannot accept. */
static void pause_listening(struct rpc_server *s, const char *why) {
    log_warn("accepting on %s: %s", s->where.path, why);
    uv_poll_stop(&s->listener);
    if (!s->asked) {
        (void)uv_timer_start(&s->timer, on_pause_over, PAUSE_MS, 0);
    }
}

static void on_listener(uv_poll_t *poll, int status, int events) {
    struct rpc_server *s = poll->data;
    (void)events;
    if (status < 0) {
        pause_listening(s, uv_strerror(status));
        return;
    }
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && s->connections >= CONNECTIONS_MAX) {
        log_warn("%s: more than %d connections, one is refused", s->where.path, CONNECTIONS_MAX);
        close(fd);
    } else if (fd >= 0) {
        link_new(s, fd);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        pause_listening(s, strerror(errno));
    }
}

/* ---- drain and close ---- */

static void on_server_handle_closed(uv_handle_t *handle) {
    struct rpc_server *s = handle->data;
    if (--s->handles > 0) {
        return;
    }
    void (*tell)(void *) = s->on_closed;
    void *user = s->user;
    free(s);
    if (tell) {
        tell(user);
    }
}

static void on_listener_closed(uv_handle_t *handle) {
    struct rpc_server *s = handle->data;
    close(s->fd);
    on_server_handle_closed(handle);
}

static void stop_listening(struct rpc_server *s) {
    if (s->listening) {
        s->listening = false;
        listen_unlink(&s->where);
        uv_close((uv_handle_t *)&s->listener, on_listener_closed);
    }
}

static void finish_if_empty(struct rpc_server *s) {
    if (s->asked && !s->listening && !s->links && !s->finishing) {
        s->finishing = true;
        uv_close((uv_handle_t *)&s->idle, on_server_handle_closed);
        uv_close((uv_handle_t *)&s->timer, on_server_handle_closed);
    }
}

static void cut_all(struct rpc_server *s) {
    struct link *next;
    for (struct link *l = s->links; l; l = next) {
        next = l->next;
        wire_shut(&l->wire, ST_UNAVAILABLE, "the server ends");
    }
}

static void on_grace(uv_timer_t *timer) {
    cut_all(timer->data);
}

static void on_asked(uv_idle_t *idle) {
    struct rpc_server *s = idle->data;
    uv_idle_stop(idle);
    stop_listening(s);
    struct link *next;
    for (struct link *l = s->links; l; l = next) {
        next = l->next;
        if (!l->wire.shut) {
            grpc_server_drain(l->conn);
            wire_flush(&l->wire);
        }
    }
    if (s->cut_asked) {
        cut_all(s);
    } else {
        uint64_t ms = (uint64_t)((s->grace_ns + NS_PER_MS - 1) / NS_PER_MS);
        (void)uv_timer_start(&s->timer, on_grace, ms, 0);
    }
    finish_if_empty(s);
}

void rpc_server_drain(struct rpc_server *s, int64_t grace_ns, void (*on_closed)(void *user),
                      void *user) {
    s->on_closed = on_closed;
    s->user = user;
    s->grace_ns = grace_ns > 0 ? grace_ns : 0;
    s->cut_asked = s->cut_asked || grace_ns <= 0;
    s->asked = true;
    if (!s->finishing) {
        uv_idle_start(&s->idle, on_asked);
    }
}

void rpc_server_close(struct rpc_server *s, void (*on_closed)(void *user), void *user) {
    rpc_server_drain(s, 0, on_closed, user);
}

/* ---- the listener ---- */

int rpc_server_listen(uv_loop_t *loop, const char *path, const struct grpc_service *services,
                      size_t service_count, struct rpc_server **server, struct err *e) {
    struct rpc_server *s = mem_zeroed(1, sizeof *s);
    int rv = listen_unix(path, SOCK_STREAM, &s->where, &s->fd, e);
    if (rv) {
        free(s);
        return rv;
    }
    rv = uv_poll_init(loop, &s->listener, s->fd);
    if (rv) {
        rv = err_set(e, ST_UNAVAILABLE, "socket %s: %s", path, uv_strerror(rv));
        listen_unlink(&s->where);
        close(s->fd);
        free(s);
        return rv;
    }
    s->loop = loop;
    s->services = services;
    s->service_count = service_count;
    rv = uv_idle_init(loop, &s->idle);
    rv |= uv_timer_init(loop, &s->timer);
    rv |= uv_poll_start(&s->listener, UV_READABLE, on_listener);
    assert(rv == 0); /* these only fill structures */
    s->listener.data = s->idle.data = s->timer.data = s;
    s->handles = SERVER_HANDLES;
    s->listening = true;
    *server = s;
    return 0;
}

int rpc_server_observers(struct rpc_server *s, gid_t group, struct err *e) {
    int rv = listen_open_to(&s->where, group, e);
    if (rv == 0) {
        s->access = (struct access){.observed = true, .observers = group};
    }
    return rv;
}

const char *rpc_server_path(const struct rpc_server *s) {
    return s->where.path;
}

size_t rpc_server_connections(const struct rpc_server *s) {
    return s->connections;
}
