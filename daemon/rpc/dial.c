#include "rpc/dial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "proto/unix_address.h"
#include "rpc/wire.h"

struct rpc_dial {
    struct wire wire;
    struct grpc_client *client;
    rpc_dial_closed on_closed;
    void *user;
    uint8_t in[WIRE_READ_CHUNK];
};

static int receive(void *end, const uint8_t *bytes, size_t n, int64_t now, struct err *e) {
    return grpc_client_receive(end, bytes, n, now, e);
}
static size_t output(void *end, const uint8_t **bytes) {
    return grpc_client_output(end, bytes);
}
static void sent(void *end, size_t n) {
    grpc_client_sent(end, n);
}
static bool over(const void *end) {
    return grpc_client_over(end);
}
static int64_t next_deadline(const void *end) {
    return grpc_client_next_deadline(end);
}
static void tick(void *end, int64_t now) {
    grpc_client_tick(end, now);
}
static void lost(void *end, const struct err *reason) {
    grpc_client_close(end, reason->code, reason->text);
}

static void closed(void *owner, const struct err *reason) {
    struct rpc_dial *d = owner;
    grpc_client_free(d->client); /* ends what a last on_done started */
    d->on_closed(d, reason, d->user);
    free(d);
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

static int connect_unix(const char *path, int *fd, struct err *e) {
    struct sockaddr_un a;
    int rv = unix_address(path, &a, e);
    if (rv) {
        return rv;
    }
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "socket: %s", strerror(errno));
    }
    if (connect(s, (const struct sockaddr *)&a, sizeof a)) {
        rv = err_set(e, ST_UNAVAILABLE, "cannot connect to %s: %s", path, strerror(errno));
        close(s);
        return rv;
    }
    *fd = s;
    return 0;
}

int rpc_dial(uv_loop_t *loop, const char *path, rpc_dial_closed on_closed, void *user,
             struct rpc_dial **dial, struct err *e) {
    int fd = -1;
    int rv = connect_unix(path, &fd, e);
    if (rv) {
        return rv;
    }
    struct rpc_dial *d = mem_zeroed(1, sizeof *d);
    d->on_closed = on_closed;
    d->user = user;
    d->client = grpc_client_new(on_output, &d->wire);
    d->wire.ops = &ops;
    d->wire.end = d->client;
    d->wire.owner = d;
    d->wire.in = d->in;
    rv = wire_start(&d->wire, loop, fd);
    if (rv) {
        rv = err_set(e, ST_UNAVAILABLE, "watching %s: %s", path, uv_strerror(rv));
        grpc_client_free(d->client);
        free(d);
        return rv;
    }
    *dial = d;
    return 0;
}

struct grpc_client *rpc_dial_client(struct rpc_dial *d) {
    return d->client;
}

void rpc_dial_close(struct rpc_dial *d) {
    wire_ask_shut(&d->wire, ST_CANCELLED, "the connection was closed here");
}
