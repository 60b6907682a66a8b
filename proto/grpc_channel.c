/* grpc_client.h over a unix socket with poll(2). Reads and writes are tried before waiting, so a
 * call costs a write, a poll and a read. */
#include "proto/grpc_channel.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "proto/grpc_server.h"
#include "proto/unix_address.h"
#include "proto/unpack.h"

enum { READ_CHUNK = 64 * 1024 };
#define RETRY_NS INT64_C(5000000) /* between tries to connect */

struct grpc_channel {
    struct grpc_client *client;
    int fd;
    bool lost;
    struct err reason; /* of |lost| */
    uint8_t in[READ_CHUNK];
};

/* ---- connecting ---- */

static int try_connect(const struct sockaddr_un *a) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    if (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0) {
        return fd;
    }
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

int grpc_channel_connect(const char *path, int64_t timeout_ns, struct grpc_channel **channel,
                         struct err *e) {
    struct sockaddr_un a;
    int rv = unix_address(path, &a, e);
    if (rv) {
        return rv;
    }
    int64_t until = clock_ns() + (timeout_ns > 0 ? timeout_ns : 0);
    int fd;
    while ((fd = try_connect(&a)) < 0) {
        bool later = errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN;
        if (!later || clock_ns() >= until) {
            int code = errno == EACCES ? ST_PERMISSION_DENIED : ST_UNAVAILABLE;
            return err_set(e, (enum status)code, "cannot connect to %s: %s", path, strerror(errno));
        }
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
    }
    struct grpc_channel *ch = mem_zeroed(1, sizeof *ch);
    ch->fd = fd;
    ch->client = grpc_client_new(NULL, NULL);
    *channel = ch;
    return 0;
}

struct grpc_client *grpc_channel_client(struct grpc_channel *ch) {
    return ch->client;
}

int grpc_channel_fd(const struct grpc_channel *ch) {
    return ch->fd;
}

/* ---- moving bytes ---- */

static void lose(struct grpc_channel *ch, const char *what, const char *why) {
    if (!ch->lost) {
        ch->lost = true;
        err_set(&ch->reason, ST_UNAVAILABLE, "%s: %s", what, why);
        grpc_client_close(ch->client, ST_UNAVAILABLE, ch->reason.text);
    }
}

/* Writes what there is; true when some had to stay. */
static bool write_some(struct grpc_channel *ch) {
    const uint8_t *bytes;
    size_t n;
    while (!ch->lost && (n = grpc_client_output(ch->client, &bytes)) > 0) {
        ssize_t w = send(ch->fd, bytes, n, MSG_NOSIGNAL);
        if (w >= 0) {
            grpc_client_sent(ch->client, (size_t)w);
        } else if (errno == EAGAIN) {
            return true;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return false; /* what the server said before it went is still to be read */
        } else if (errno != EINTR) {
            lose(ch, "writing to the server", strerror(errno));
        }
    }
    return false;
}

/* Reads what is there; true when something came. */
static bool read_some(struct grpc_channel *ch) {
    ssize_t n = ch->lost ? -1 : recv(ch->fd, ch->in, sizeof ch->in, 0);
    if (ch->lost || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
        return false;
    }
    struct err e;
    if (n < 0) {
        lose(ch, "reading from the server", strerror(errno));
    } else if (n == 0) {
        lose(ch, "connection lost", "the server closed it");
    } else if (grpc_client_receive(ch->client, ch->in, (size_t)n, clock_ns(), &e)) {
        lose(ch, "connection lost", e.text);
    }
    return true;
}

/* Until the earlier of |until| and the next deadline of a call; ms for poll, rounded up. */
static int wait_ms(const struct grpc_channel *ch, int64_t until, int64_t now) {
    int64_t at = grpc_client_next_deadline(ch->client);
    if (until < at) {
        at = until;
    }
    if (at == GRPC_NEVER) {
        return -1;
    }
    int64_t ms = at <= now ? 0 : (at - now - 1) / 1000000 + 1;
    return ms > 3600000 ? 3600000 : (int)ms;
}

/* One turn: true when a handler was called. */
static bool turn(struct grpc_channel *ch, int64_t until, uint64_t events) {
    bool blocked = write_some(ch);
    while (grpc_client_events(ch->client) == events && !ch->lost) {
        int64_t now = clock_ns();
        struct pollfd p = {.fd = ch->fd, .events = (short)(POLLIN | (blocked ? POLLOUT : 0))};
        if (poll(&p, 1, wait_ms(ch, until, now)) > 0 && (p.revents & ~POLLOUT)) {
            read_some(ch);
        }
        now = clock_ns();
        grpc_client_tick(ch->client, now);
        blocked = write_some(ch);
        if (!blocked && grpc_client_over(ch->client)) {
            lose(ch, "connection lost", "the server said goodbye");
        }
        if (!ch->lost && grpc_client_over(ch->client)) { /* our GOAWAY is out: it broke HTTP/2 */
            lose(ch, "connection lost", "the server does not speak HTTP/2");
        }
        if (now >= until) {
            break;
        }
    }
    return grpc_client_events(ch->client) != events;
}

int grpc_channel_pump(struct grpc_channel *ch, int64_t timeout_ns, struct err *e) {
    uint64_t events = grpc_client_events(ch->client);
    int64_t now = clock_ns();
    int64_t until = timeout_ns < 0 || timeout_ns > GRPC_NEVER - now ? GRPC_NEVER : now + timeout_ns;
    grpc_client_tick(ch->client, now);
    if (turn(ch, until, events)) {
        return 1;
    }
    return ch->lost ? err_set(e, ST_UNAVAILABLE, "%s", ch->reason.text) : 0;
}

int grpc_channel_look(struct grpc_channel *ch, struct err *e) {
    uint64_t events = grpc_client_events(ch->client);
    (void)read_some(ch);
    if (grpc_client_events(ch->client) != events) {
        return 1;
    }
    return ch->lost ? err_set(e, ST_UNAVAILABLE, "%s", ch->reason.text) : 0;
}

int grpc_channel_flush(struct grpc_channel *ch, struct err *e) {
    while (write_some(ch)) {
        struct pollfd p = {.fd = ch->fd, .events = POLLIN | POLLOUT};
        if (poll(&p, 1, -1) > 0 && (p.revents & ~POLLOUT)) {
            read_some(ch); /* else two full sockets would wait for each other */
        }
    }
    return ch->lost ? err_set(e, ST_UNAVAILABLE, "%s", ch->reason.text) : 0;
}

/* ---- unary ---- */

struct unary {
    const ProtobufCMessageDescriptor *type;
    ProtobufCMessage *reply;
    struct err err;
    bool done, bad;
};

static void on_reply(struct grpc_stream *s, const uint8_t *bytes, size_t len) {
    struct unary *u = grpc_stream_data(s);
    u->bad = u->bad || u->reply;
    if (!u->reply) {
        u->reply = unpack_message(u->type, bytes, len);
        u->bad = u->bad || !u->reply;
    }
}

static void on_reply_done(struct grpc_stream *s, int code, const char *text) {
    struct unary *u = grpc_stream_data(s);
    u->done = true;
    err_set(&u->err, (enum status)code, "%s", text);
}

static const struct grpc_stream_handlers unary_handlers = {.on_message = on_reply,
                                                           .on_done = on_reply_done};

int grpc_channel_unary(struct grpc_channel *ch, const char *method, const ProtobufCMessage *request,
                       const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ns,
                       ProtobufCMessage **reply, struct err *e) {
    struct unary u = {.type = reply_type};
    int64_t now = clock_ns();
    int64_t until = timeout_ns < 0 || timeout_ns > GRPC_NEVER - now ? GRPC_NEVER : now + timeout_ns;
    struct grpc_stream *s = grpc_client_start(ch->client, method, &unary_handlers, &u, until, now);
    if (grpc_client_send(s, request)) {
        grpc_client_cancel(s);
        u.bad = true;
    }
    grpc_client_half_close(s);
    while (!u.done) {
        (void)grpc_channel_pump(ch, -1, NULL);
    }
    if (u.err.code == ST_OK && (u.bad || !u.reply)) {
        err_set(&u.err, ST_INTERNAL, "the answer of %s is no %s", method, reply_type->name);
    } else if (u.bad) {
        err_set(&u.err, ST_RESOURCE_EXHAUSTED, "the request of %s is too large", method);
    }
    if (u.err.code != ST_OK) {
        if (u.reply) {
            protobuf_c_message_free_unpacked(u.reply, NULL);
        }
        return err_set(e, (enum status)u.err.code, "%s", u.err.text);
    }
    *reply = u.reply;
    return 0;
}

void grpc_channel_close(struct grpc_channel *ch) {
    if (!ch) {
        return;
    }
    grpc_client_free(ch->client);
    close(ch->fd);
    free(ch);
}

void grpc_channel_forget(struct grpc_channel *ch) {
    if (ch) {
        grpc_client_forget(ch->client);
        close(ch->fd);
        free(ch);
    }
}
