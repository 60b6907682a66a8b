/* Streams between a client and a server in memory: many messages, flow control, cancel. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "proto/framing.h"
#include "tests/base/suite.h"
#include "tests/proto/pair.h"

static struct pair p;

static void setup(void) {
    pair_open(&p);
}
static void teardown(void) {
    pair_close(&p);
}

START_TEST(bidi_10000) {
    struct call_outcome o = {.code = -1};
    struct grpc_stream *s = pair_start(&p, ECHO_BIDI, &o, -1);
    for (unsigned i = 1; i <= 10000; i++) {
        ck_assert_int_eq(pair_send(s, i % 200, "x"), 0);
        if (i % 7 == 0) { /* some share a chunk, some come alone */
            pair_pump(&p);
            ck_assert_uint_eq(o.messages, i);
        }
    }
    grpc_client_half_close(s);
    pair_pump(&p);
    ck_assert_uint_eq(o.messages, 10000);
    ck_assert_uint_eq(p.echo.messages, 10000);
    ck_assert_uint_eq(o.done, 1);
    ck_assert_int_eq(o.code, ST_OK);
    ck_assert_uint_eq(p.echo.done, 1);
}
END_TEST

/* A long stream holds no more memory after 100,000 messages than after 1,000. */
START_TEST(long_stream_keeps_memory) {
    struct call_outcome o = {0};
    struct grpc_stream *s = pair_start(&p, ECHO_BIDI, &o, -1);
    size_t early = 0;
    for (unsigned i = 1; i <= 100000; i++) {
        ck_assert_int_eq(pair_send(s, 100, ""), 0);
        pair_pump(&p);
        if (i == 1000) {
            early = mallinfo2().uordblks;
        }
    }
    ck_assert_uint_eq(o.messages, 100000);
    ck_assert_uint_le(mallinfo2().uordblks, early + 4096);
    grpc_client_cancel(s);
    pair_pump(&p);
    ck_assert_uint_eq(o.done, 1);
}
END_TEST

/* Many short calls leave nothing behind either. */
START_TEST(many_calls_keep_memory) {
    size_t early = 0;
    for (unsigned i = 1; i <= 20000; i++) {
        struct call_outcome o = {.code = -1};
        pair_unary(&p, ECHO_UNARY, 100, "", &o);
        ck_assert_int_eq(o.code, ST_OK);
        if (i == 1000) {
            early = mallinfo2().uordblks;
        }
    }
    ck_assert_uint_le(mallinfo2().uordblks, early + 4096);
}
END_TEST

START_TEST(flood_to_a_reader) {
    struct call_outcome o = {0};
    pair_unary(&p, ECHO_FLOOD, 10000, "", &o); /* more than GRPC_BUFFER_MAX in all */
    ck_assert_int_eq(o.code, ST_OK);
    ck_assert_uint_eq(o.messages, 10000);
    ck_assert_uint_eq(o.bytes, (size_t)10000 * FLOOD_BYTES);
    ck_assert_uint_gt(p.echo.writable, 0);
}
END_TEST

/* 20 MiB wait for a client that reads nothing: the server holds the mark and one chunk of them. */
START_TEST(trap_08_stalled_reader) {
    struct call_outcome o = {0}, other = {0};
    pair_unary(&p, ECHO_UNARY, 1, "", &o);
    size_t before = mallinfo2().uordblks;
    p.deaf_client = true;
    struct call_outcome flood = {0};
    pair_unary(&p, ECHO_FLOOD, 5000, "", &flood);
    pair_unary(&p, ECHO_UNARY, 1, "", &other);
    ck_assert_uint_eq(flood.messages, 0);
    ck_assert_uint_le(p.echo.most_queued, GRPC_HIGH_MARK + FLOOD_BYTES + 64);
    ck_assert_uint_ge(p.echo.flood_left, 4800);
    ck_assert_uint_le(mallinfo2().uordblks, before + 2 * GRPC_HIGH_MARK + 512 * 1024);
    p.deaf_client = false;
    pair_pump(&p);
    ck_assert_uint_eq(flood.messages, 5000);
    ck_assert_int_eq(flood.code, ST_OK);
    ck_assert_int_eq(other.code, ST_OK);
}
END_TEST

/* A flooded call does not hold up another one of the same connection. */
START_TEST(other_calls_go_on) {
    static struct call_outcome flood, other; /* heard of until the fixture's end */
    p.deaf_client = true;
    pair_unary(&p, ECHO_FLOOD, 5000, "", &flood);
    pair_unary(&p, ECHO_UNARY, 1, "", &other);
    p.deaf_client = false;
    p.chunk = 4096;
    for (int turns = 0; turns < 400 && !other.done; turns++) {
        const uint8_t *bytes;
        struct err e;
        size_t n = grpc_server_output(p.server, &bytes);
        n = n > p.chunk ? p.chunk : n;
        ck_assert_int_eq(grpc_client_receive(p.client, bytes, n, p.now, &e), 0);
        grpc_server_sent(p.server, n);
    }
    ck_assert_uint_eq(other.done, 1);
    ck_assert_uint_lt(flood.messages, 1000);
}
END_TEST

START_TEST(client_producer_is_told) {
    struct call_outcome o = {0};
    struct grpc_stream *s = pair_start(&p, ECHO_SINK, &o, -1);
    unsigned sent = 0;
    while (!grpc_stream_full(s)) {
        ck_assert_int_eq(pair_send(s, 1000, ""), 0);
        sent++;
    }
    ck_assert_uint_eq(o.writable, 0);
    pair_pump(&p);
    ck_assert_uint_eq(o.writable, 1);
    ck_assert_uint_eq(grpc_stream_queued(s), 0);
    ck_assert_uint_eq(p.echo.messages, sent);
    grpc_client_half_close(s);
    pair_pump(&p);
    ck_assert_int_eq(o.code, ST_OK);
}
END_TEST

START_TEST(queue_has_an_end) {
    static struct call_outcome o; /* heard of until the fixture's end */
    struct grpc_stream *s = pair_start(&p, ECHO_SINK, &o, -1);
    p.deaf_server = true;
    unsigned sent = 0;
    ck_assert_int_eq(pair_send(s, GRPC_MESSAGE_MAX + 1, ""), -ST_RESOURCE_EXHAUSTED);
    ck_assert_uint_eq(grpc_stream_queued(s), 0);
    while (pair_send(s, 1 << 20, "") == 0) {
        sent++;
    }
    ck_assert_uint_eq(sent, 31); /* GRPC_BUFFER_MAX less the prefixes */
    ck_assert_int_eq(pair_send(s, 1 << 20, ""), -ST_RESOURCE_EXHAUSTED);
}
END_TEST

START_TEST(trap_13_cancel_in_handler) {
    struct call_outcome o = {.cancel_at_first = true};
    pair_unary(&p, ECHO_FLOOD, 5000, "", &o);
    ck_assert_uint_eq(o.messages, 1); /* none after the cancel */
    ck_assert_uint_eq(o.done, 1);
    ck_assert_int_eq(o.code, ST_CANCELLED);
    ck_assert_uint_eq(p.echo.done, 1);
    ck_assert_int_eq(p.echo.last_status, ST_CANCELLED);
    ck_assert_uint_gt(p.echo.flood_left, 0);
    ck_assert_uint_eq(grpc_server_calls(p.server), 0);
}
END_TEST

/* The server ends a stream whose client still sends. */
START_TEST(server_ends_early) {
    struct call_outcome o = {0};
    struct grpc_stream *s = pair_start(&p, ECHO_BIDI, &o, -1);
    pair_send(s, 1, "");
    pair_pump(&p);
    grpc_call_finish(p.echo.held, ST_FAILED_PRECONDITION, "rank 3 left its plan");
    pair_pump(&p);
    ck_assert_uint_eq(o.done, 1);
    ck_assert_int_eq(o.code, ST_FAILED_PRECONDITION);
    ck_assert_str_eq(o.text, "rank 3 left its plan");
    ck_assert_uint_eq(p.echo.done, 1);
    ck_assert_uint_eq(grpc_server_calls(p.server), 0);
}
END_TEST

/* 300 calls at once over a limit of 128: the rest wait and all end well. Some of those that wait
 * are cancelled before they went out. */
START_TEST(trap_09_more_calls_than_the_limit) {
    enum { CALLS = 300 };
    static struct call_outcome o[CALLS];
    struct grpc_stream *s[CALLS];
    memset(o, 0, sizeof o);
    for (int i = 0; i < CALLS; i++) {
        s[i] = pair_start(&p, ECHO_UNARY, &o[i], -1);
        pair_send(s[i], 10, "");
        grpc_client_half_close(s[i]);
    }
    const uint8_t *bytes;
    ck_assert_uint_gt(grpc_client_output(p.client, &bytes), 0); /* submitted, 172 of them wait */
    for (int i = 250; i < CALLS; i++) {
        grpc_client_cancel(s[i]);
    }
    pair_pump(&p);
    for (int i = 0; i < CALLS; i++) {
        ck_assert_uint_eq(o[i].done, 1);
        ck_assert_int_eq(o[i].code, i < 250 ? ST_OK : ST_CANCELLED);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("stream");
    TCase *t = tcase_create("stream");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, bidi_10000);
    tcase_add_test(t, long_stream_keeps_memory);
    tcase_add_test(t, many_calls_keep_memory);
    tcase_add_test(t, flood_to_a_reader);
    tcase_add_test(t, trap_08_stalled_reader);
    tcase_add_test(t, other_calls_go_on);
    tcase_add_test(t, client_producer_is_told);
    tcase_add_test(t, queue_has_an_end);
    tcase_add_test(t, trap_13_cancel_in_handler);
    tcase_add_test(t, server_ends_early);
    tcase_add_test(t, trap_09_more_calls_than_the_limit);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
