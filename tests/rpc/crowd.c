#include "tests/rpc/crowd.h"

#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/grpc_channel.h"
#include "proto/unix_address.h"
#include "tests/proto/raw.h"

#define SECOND INT64_C(1000000000)
enum { KIB = 1024 };

long look_rss_kib(void) {
    long total, resident = 0;
    malloc_trim(0);
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_int_eq(fscanf(f, "%ld %ld", &total, &resident), 2);
    (void)fclose(f);
    return resident * sysconf(_SC_PAGESIZE) / KIB;
}

void look_limited(const char *what, long before, long growth) {
    long after = look_rss_kib();
    (void)printf("%s: resident %ld KiB before, %ld KiB after\n", what, before, after);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ck_assert_int_le(after, before + growth); /* sanitizers keep what was freed */
#else
    (void)growth;
#endif
}

void look_serves(struct host *h) {
    struct grpc_channel *ch = NULL;
    ProtobufCMessage *reply = NULL;
    struct err e;
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    ck_assert_int_eq(grpc_channel_connect(h->path, SECOND, &ch, &e), 0);
    ck_assert_int_eq(grpc_channel_unary(ch, ECHO_UNARY, &t.base, &zerod__v1__ticket__descriptor,
                                        SECOND, &reply, &e),
                     0);
    protobuf_c_message_free_unpacked(reply, NULL);
    grpc_channel_close(ch);
}

static void look(struct host *host, void *arg) {
    struct look *l = arg;
    l->connections = rpc_server_connections(host->server);
    l->echo = host->echo;
}

struct look look_at(struct host *h) {
    struct look l;
    host_do(h, look, &l);
    return l;
}

void look_all_gone(struct host *h) {
    int64_t until = clock_ns() + 10 * SECOND;
    while (look_at(h).connections > 0 && clock_ns() < until) {
    }
    ck_assert_uint_eq(look_at(h).connections, 0);
}

/* ---- raw peers ---- */

int raw_connect(const char *path) {
    struct sockaddr_un a;
    ck_assert_int_eq(unix_address(path, &a, NULL), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

bool raw_send(int fd, const void *bytes, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        at += (size_t)sent;
    }
    return true;
}

bool raw_flush(int fd, struct buf *b) {
    bool sent = raw_send(fd, buf_bytes(b), buf_unread(b));
    buf_consume(b, buf_unread(b));
    return sent;
}

bool raw_await(int fd, size_t n) {
    char sink[65536];
    for (size_t at = 0; at < n;) {
        ssize_t got = recv(fd, sink, sizeof sink, 0);
        if (got <= 0) {
            return false;
        }
        at += (size_t)got;
    }
    return true;
}

bool raw_read(int fd) {
    char sink[65536];
    ssize_t n;
    while ((n = recv(fd, sink, sizeof sink, MSG_DONTWAIT)) > 0) {
    }
    return n != 0;
}

void raw_put_request(struct buf *b, uint32_t id, const char *path, uint8_t flags) {
    struct buf fields = {0};
    raw_request(&fields, path, "localhost");
    raw_frame(b, RAW_HEADERS, flags, id, buf_bytes(&fields), buf_unread(&fields));
    buf_free(&fields);
}
