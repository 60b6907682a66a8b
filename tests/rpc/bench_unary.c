/* Unary latency over a unix socket beside a bare ping-pong of the same run.
 *
 *   bench_unary [CALLS]        calls of 64 bytes, one in flight; 5 alternating rounds
 *
 * One line: p50 and p99 of both in microseconds, and the ratio of the p50s (median of rounds).
 * The floor is a blocking socketpair between two threads, 64 bytes each way. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/grpc_channel.h"
#include "tests/rpc/host.h"

enum { ROUNDS = 5, BYTES = 64, CALLS = 5000, WARM = 200 };

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void *pong(void *arg) {
    int fd = *(int *)arg;
    char bytes[BYTES];
    while (recv(fd, bytes, sizeof bytes, 0) == BYTES && send(fd, bytes, BYTES, 0) == BYTES) {
    }
    return NULL;
}

static void floor_round(size_t calls, int64_t *ns) {
    int pair[2];
    pthread_t thread;
    char bytes[BYTES] = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
        pthread_create(&thread, NULL, pong, &pair[1])) {
        abort();
    }
    for (size_t i = 0; i < calls + WARM; i++) {
        int64_t start = clock_ns();
        if (send(pair[0], bytes, BYTES, 0) != BYTES || recv(pair[0], bytes, BYTES, 0) != BYTES) {
            abort();
        }
        ns[i < WARM ? 0 : i - WARM] = clock_ns() - start;
    }
    close(pair[0]);
    pthread_join(thread, NULL);
    close(pair[1]);
}

static void call_round(struct grpc_channel *ch, size_t calls, int64_t *ns) {
    uint8_t bytes[BYTES] = {0};
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    t.token = (ProtobufCBinaryData){.len = BYTES, .data = bytes};
    for (size_t i = 0; i < calls + WARM; i++) {
        ProtobufCMessage *reply;
        struct err e;
        int64_t start = clock_ns();
        if (grpc_channel_unary(ch, ECHO_UNARY, &t.base, &zerod__v1__ticket__descriptor, 1000000000,
                               &reply, &e)) {
            (void)fprintf(stderr, "%s\n", e.text);
            abort();
        }
        ns[i < WARM ? 0 : i - WARM] = clock_ns() - start;
        protobuf_c_message_free_unpacked(reply, NULL);
    }
}

struct numbers {
    double p50, p99;
};

static struct numbers numbers(size_t calls, int64_t *ns) {
    qsort(ns, calls, sizeof *ns, by_size);
    return (struct numbers){(double)ns[calls / 2] / 1e3, (double)ns[calls * 99 / 100] / 1e3};
}

int main(int argc, char **argv) {
    static struct host h;
    struct grpc_channel *ch;
    struct err e;
    struct numbers call[ROUNDS], bare[ROUNDS];
    int64_t ratio[ROUNDS]; /* thousandths */
    size_t calls = argc > 1 ? strtoul(argv[1], NULL, 10) : CALLS;
    if (calls < 100 || calls > 10000000) {
        (void)fprintf(stderr, "usage: bench_unary [CALLS]   100 to 10000000\n");
        return 2;
    }
    int64_t *ns = calloc(calls, sizeof *ns);
    host_start(&h);
    if (!ns || grpc_channel_connect(h.path, 1000000000, &ch, &e)) {
        return 1;
    }
    for (int r = 0; r < ROUNDS; r++) {
        floor_round(calls, ns);
        bare[r] = numbers(calls, ns);
        call_round(ch, calls, ns);
        call[r] = numbers(calls, ns);
        ratio[r] = (int64_t)(1000 * call[r].p50 / bare[r].p50);
    }
    qsort(ratio, ROUNDS, sizeof *ratio, by_size);
    for (int r = 0; r < ROUNDS; r++) {
        (void)printf("round %d: unary p50 %.1f p99 %.1f us, ping-pong p50 %.1f p99 %.1f us\n",
                     r + 1, call[r].p50, call[r].p99, bare[r].p50, bare[r].p99);
    }
    (void)printf("unary / ping-pong p50: %.2f (median of %d)\n", (double)ratio[ROUNDS / 2] / 1000,
                 ROUNDS);
    grpc_channel_close(ch);
    host_stop(&h);
    free(ns);
    return 0;
}
