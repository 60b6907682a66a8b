/* gRPC over a unix socket, our client and server on two threads, against the same bytes on a bare
 * socketpair between two threads: latency of a unary call and of a ping-pong (less is better), and
 * messages a second through a stream and through the pair, one write a message. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/grpc_channel.h"
#include "tests/bench/table.h"
#include "tests/rpc/host.h"

enum { ROUNDS = 7, BYTES = 64, CALLS = 3000, MESSAGES = 100000, AHEAD = 256 };

struct job {
    struct grpc_channel *channel;
    unsigned percent; /* of the calls that take no longer */
    int64_t ns[CALLS];
    size_t back; /* messages of the stream that have come back */
    bool done;
};

static _Noreturn void fail(const char *what) {
    log_error("%s failed", what);
    exit(EXIT_FAILURE);
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double percentile(struct job *j) {
    qsort(j->ns, CALLS, sizeof j->ns[0], by_size);
    return (double)j->ns[(size_t)CALLS * j->percent / 100] * 1e-9;
}

/* ---- latency ---- */

static void *pong(void *arg) {
    const int fd = *(int *)arg;
    char bytes[BYTES];
    while (recv(fd, bytes, sizeof bytes, 0) == BYTES && send(fd, bytes, BYTES, 0) == BYTES) {
    }
    return NULL;
}

static double ping(void *context) {
    struct job *j = context;
    int pair[2];
    pthread_t thread;
    char bytes[BYTES] = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
        pthread_create(&thread, NULL, pong, &pair[1])) {
        fail("a ping-pong");
    }
    for (size_t i = 0; i < CALLS; i++) {
        const int64_t start = clock_ns();
        if (send(pair[0], bytes, BYTES, 0) != BYTES || recv(pair[0], bytes, BYTES, 0) != BYTES) {
            fail("a ping-pong");
        }
        j->ns[i] = clock_ns() - start;
    }
    close(pair[0]);
    pthread_join(thread, NULL);
    close(pair[1]);
    return percentile(j);
}

static Zerod__V1__Ticket message(void) {
    static uint8_t bytes[BYTES];
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    t.token = (ProtobufCBinaryData){.len = BYTES, .data = bytes};
    return t;
}

static double unary(void *context) {
    struct job *j = context;
    const Zerod__V1__Ticket t = message();
    for (size_t i = 0; i < CALLS; i++) {
        ProtobufCMessage *reply;
        struct err e;
        const int64_t start = clock_ns();
        if (grpc_channel_unary(j->channel, ECHO_UNARY, &t.base, &zerod__v1__ticket__descriptor,
                               1000000000, &reply, &e)) {
            fail(e.text);
        }
        j->ns[i] = clock_ns() - start;
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return percentile(j);
}

/* ---- messages a second ---- */

static void on_message(struct grpc_stream *s, const uint8_t *bytes, size_t len) {
    (void)bytes;
    (void)len;
    ((struct job *)grpc_stream_data(s))->back++;
}

static void on_done(struct grpc_stream *s, int code, const char *text) {
    struct job *j = grpc_stream_data(s);
    j->done = true;
    if (code || j->back != MESSAGES) {
        log_error("%zu messages came back: %s", j->back, text);
        exit(EXIT_FAILURE);
    }
}

static void pump(struct job *j) {
    struct err e;
    if (grpc_channel_pump(j->channel, 1000000000, &e) < 0) {
        fail(e.text);
    }
}

static double stream(void *context) {
    static const struct grpc_stream_handlers handlers = {.on_message = on_message,
                                                         .on_done = on_done};
    struct job *j = context;
    const Zerod__V1__Ticket t = message();
    const int64_t start = clock_ns();
    struct grpc_stream *s = grpc_client_start(grpc_channel_client(j->channel), ECHO_BIDI, &handlers,
                                              j, GRPC_NEVER, start);
    j->done = false;
    j->back = 0;
    for (size_t i = 0; i < MESSAGES; i++) {
        while (i - j->back >= AHEAD) { /* as a trainer that is so far ahead of its daemon */
            pump(j);
        }
        if (grpc_client_send(s, &t.base)) {
            fail("a stream");
        }
    }
    grpc_client_half_close(s);
    while (!j->done) {
        pump(j);
    }
    return MESSAGES / ((double)(clock_ns() - start) * 1e-9);
}

static void *echo_all(void *arg) {
    const int fd = *(int *)arg;
    char bytes[BYTES];
    size_t left = MESSAGES;
    while (left > 0 && recv(fd, bytes, sizeof bytes, MSG_WAITALL) == BYTES &&
           send(fd, bytes, BYTES, 0) == BYTES) {
        left--;
    }
    return NULL;
}

static void *drain(void *arg) {
    char bytes[BYTES];
    size_t left = MESSAGES;
    while (left > 0 && recv(*(int *)arg, bytes, sizeof bytes, MSG_WAITALL) == BYTES) {
        left--;
    }
    return NULL;
}

static double pair_stream(void *context) {
    int pair[2];
    pthread_t echo, reader;
    char bytes[BYTES] = {0};
    (void)context;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
        pthread_create(&echo, NULL, echo_all, &pair[1]) ||
        pthread_create(&reader, NULL, drain, &pair[0])) {
        fail("a stream on a pair");
    }
    const int64_t start = clock_ns();
    for (size_t i = 0; i < MESSAGES; i++) {
        if (send(pair[0], bytes, BYTES, 0) != BYTES) {
            fail("a stream on a pair");
        }
    }
    pthread_join(echo, NULL);
    pthread_join(reader, NULL);
    const double rate = MESSAGES / ((double)(clock_ns() - start) * 1e-9);
    close(pair[0]);
    close(pair[1]);
    return rate;
}

static void row(struct job *j, const char *what, const char *against, const char *unit,
                double scale, bench_fn *ours, bench_fn *peer) {
    (void)bench_row(&(struct bench_pair){.what = what,
                                         .against = against,
                                         .unit = unit,
                                         .scale = scale,
                                         .ours = ours,
                                         .peer = peer,
                                         .context = j},
                    ROUNDS);
}

int main(void) {
    static struct host h;
    static struct job j;
    struct err e;
    log_name("bench_rpc");
    host_start(&h);
    if (grpc_channel_connect(h.path, 1000000000, &j.channel, &e)) {
        fail(e.text);
    }
    j.percent = 50;
    row(&j, "unary call, p50", "ping-pong", "us", 1e-6, unary, ping);
    j.percent = 99;
    row(&j, "unary call, p99", "ping-pong", "us", 1e-6, unary, ping);
    row(&j, "messages there and back", "socketpair", "k/s", 1e3, stream, pair_stream);
    grpc_channel_close(j.channel);
    host_stop(&h);
    return 0;
}
