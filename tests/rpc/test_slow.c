/* Peers that do next to nothing, over real sockets: others are served all the while, what one such
 * peer may cost is bounded, and all of it comes back (printed). */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/framing.h"
#include "tests/base/suite.h"
#include "tests/proto/raw.h"
#include "tests/rpc/crowd.h"

#define SECOND INT64_C(1000000000)

enum { GROWTH_KIB = 4 * 1024 };

static struct host h;

static void setup(void) {
    host_start(&h);
}
static void teardown(void) {
    host_stop(&h);
}

/* 200 peers that send one byte at a time, in turns; each is answered in the end. */
START_TEST(slow_writers) {
    enum { PEERS = 200 };
    const uint8_t message[] = {0, 0, 0, 0, 0};
    int fds[PEERS];
    struct buf b = {0};
    raw_preface(&b);
    raw_put_request(&b, 1, ECHO_UNARY, RAW_END_HEADERS);
    raw_frame(&b, RAW_DATA, RAW_END_STREAM, 1, message, sizeof message);
    long before = look_rss_kib();
    for (int i = 0; i < PEERS; i++) {
        fds[i] = raw_connect(h.path);
    }
    for (size_t at = 0; at < buf_unread(&b); at++) {
        for (int i = 0; i < PEERS; i++) {
            ck_assert(raw_send(fds[i], buf_bytes(&b) + at, 1));
        }
        if (at % 32 == 0) {
            look_serves(&h);
        }
    }
    int64_t until = clock_ns() + 5 * SECOND;
    while (look_at(&h).echo.done < PEERS && clock_ns() < until) {
    }
    struct echo e = look_at(&h).echo;
    ck_assert_uint_ge(e.done, PEERS);
    ck_assert_uint_eq(e.done, e.opened);
    for (int i = 0; i < PEERS; i++) {
        close(fds[i]);
    }
    buf_free(&b);
    look_all_gone(&h);
    look_limited("slow writers", before, GROWTH_KIB);
}
END_TEST

/* 32 peers ask for 80 MiB each and read nothing: what waits for one is the mark and some chunks. */
START_TEST(trap_08_slow_readers) {
    enum { PEERS = 32, MESSAGES = 20000, EACH_KIB = 640 };
    int fds[PEERS];
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    t.token = (ProtobufCBinaryData){.len = MESSAGES, .data = mem_zeroed(MESSAGES, 1)};
    size_t n = protobuf_c_message_get_packed_size(&t.base);
    uint8_t *message = mem_zeroed(GRPC_PREFIX + n, 1);
    grpc_prefix_write(message, (uint32_t)n);
    protobuf_c_message_pack(&t.base, message + GRPC_PREFIX);
    look_serves(&h);
    long before = look_rss_kib();
    for (int i = 0; i < PEERS; i++) {
        struct buf b = {0};
        fds[i] = raw_connect(h.path);
        raw_preface(&b);
        raw_put_request(&b, 1, ECHO_FLOOD, RAW_END_HEADERS);
        const uint8_t much[] = {0x3f, 0xff, 0xff, 0xff};
        raw_frame(&b, 8, 0, 1, much, sizeof much); /* our windows are no limit */
        raw_frame(&b, 8, 0, 0, much, sizeof much);
        raw_frame(&b, RAW_DATA, 0, 1, message, 16384);
        raw_frame(&b, RAW_DATA, RAW_END_STREAM, 1, message + 16384, GRPC_PREFIX + n - 16384);
        ck_assert(raw_flush(fds[i], &b));
        buf_free(&b);
    }
    while (look_at(&h).echo.opened < PEERS + 1) {
    }
    look_serves(&h);
    look_limited("slow readers, waiting", before, (long)PEERS * EACH_KIB + GROWTH_KIB);
    for (int i = 0; i < PEERS; i++) {
        close(fds[i]);
    }
    free(t.token.data);
    free(message);
    look_all_gone(&h);
    ck_assert_uint_eq(look_at(&h).echo.done, look_at(&h).echo.opened);
    look_limited("slow readers, gone", before, GROWTH_KIB);
}
END_TEST

/* Peers that stop after the preface or inside a call, or say that they will send no more: the
 * former stay a while (tests/proto/test_idle.c) and cost little, the latter are hung up on, as
 * nothing can come of them. */
START_TEST(half_open_peers) {
    enum { PEERS = 400, EACH_KIB = 24 };
    int fds[PEERS];
    look_serves(&h);
    long before = look_rss_kib();
    for (int i = 0; i < PEERS; i++) {
        struct buf b = {0};
        fds[i] = raw_connect(h.path);
        raw_preface(&b);
        if (i % 2) {
            raw_put_request(&b, 1, ECHO_SINK, RAW_END_HEADERS);
        }
        ck_assert(raw_flush(fds[i], &b));
        buf_free(&b);
        if (i % 4 >= 2) {
            ck_assert_int_eq(shutdown(fds[i], SHUT_WR), 0);
        }
    }
    look_serves(&h);
    int64_t until = clock_ns() + 5 * SECOND;
    while (look_at(&h).connections > PEERS / 2 && clock_ns() < until) {
    }
    ck_assert_uint_eq(look_at(&h).connections, PEERS / 2);
    look_limited("half-open peers, there", before, (long)PEERS / 2 * EACH_KIB + GROWTH_KIB);
    for (int i = 0; i < PEERS; i++) {
        close(fds[i]);
    }
    look_all_gone(&h);
    ck_assert_uint_eq(look_at(&h).echo.done, look_at(&h).echo.opened);
    look_limited("half-open peers, gone", before, GROWTH_KIB);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("slow");
    TCase *t = tcase_create("slow");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, slow_writers);
    tcase_add_test(t, trap_08_slow_readers);
    tcase_add_test(t, half_open_peers);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
