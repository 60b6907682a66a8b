/* The traps of gRPC over HTTP/2 that this wire is known to meet, by number; a test that shows how
 * one is met is called trap_NN_... wherever it stands:
 *
 *   1 reset overtakes the reply       here
 *   2 trailers                        here; for stock clients test_grpcio.py
 *   3 :authority on unix sockets      test_limits.c. Enforcement on TCP: there is no TCP here
 *   4 deadlines                       test_call.c, test_limits.c, test_framing.c
 *   5 grpc-message                    test_call.c, test_framing.c
 *   6 message size                    test_limits.c, test_framing.c, rpc/test_floods.c
 *   7 compression                     test_limits.c, rpc/test_grpcio.py
 *   8 flow control                    here, test_stream.c, rpc/test_slow.c
 *   9 settings, header list size      here, test_limits.c, test_stream.c
 *  10 GOAWAY                          test_call.c, rpc/test_server.c, test_grpcio.py,
 *                                     test_daemon.py, e2e wire/drain. Only TCP needs a notice first
 *  11 keep-alive                      here, test_limits.c, rpc/test_grpcio.py. No pings of our own:
 *                                     only TCP needs them
 *  12 floods                          here, test_limits.c, rpc/test_floods.c
 *  13 re-entrancy                     test_call.c, test_stream.c
 *  14 content-type, HTTP/1.1          here, test_limits.c
 *  15 proto3 optional, zeros          rpc/test_daemon.py
 *  16 libuv's unix sockets            rpc/test_listen.c, test_daemon.py; e2e wire/another_user
 *  17 SIGPIPE                         rpc/test_server.c
 *  18 te: trailers                    here
 *  19 threads                         here, for what the wire can do: an answer that comes from
 *                                     elsewhere after its caller went. That workers never hold a
 *                                     call is seen by TSan in the end-to-end cases */
#include <nghttp2/nghttp2.h>
#include <string.h>

#include "proto/framing.h"
#include "tests/base/suite.h"
#include "tests/proto/pair.h"
#include "tests/proto/raw.h"
#include "tests/proto/seen.h"

static struct pair p;
static struct buf wire;
static nghttp2_hd_inflater *inflater; /* of the side that is looked at */

static void setup(void) {
    pair_open(&p);
    wire = (struct buf){0};
    raw_preface(&wire);
    ck_assert_int_eq(nghttp2_hd_inflate_new(&inflater), 0);
}

static void teardown(void) {
    buf_free(&wire);
    nghttp2_hd_inflate_del(inflater);
    pair_close(&p);
}

static int feed(void) {
    int rv = pair_feed(&p, buf_bytes(&wire), buf_unread(&wire));
    buf_consume(&wire, buf_unread(&wire));
    return rv;
}

static void request_of(uint32_t stream, uint8_t flags, struct buf *fields) {
    raw_frame(&wire, RAW_HEADERS, flags | RAW_END_HEADERS, stream, buf_bytes(fields),
              buf_unread(fields));
    buf_free(fields);
}

static void request(uint32_t stream, const char *path) {
    struct buf fields = {0};
    raw_request(&fields, path, "localhost");
    request_of(stream, 0, &fields);
}

static const uint8_t empty_message[] = {0, 0, 0, 0, 0};

static void unary(uint32_t stream, const char *path) {
    request(stream, path);
    raw_frame(&wire, RAW_DATA, RAW_END_STREAM, stream, empty_message, sizeof empty_message);
}

/* All output of the server into |to|; it stays valid until the next output. */
static size_t answer(struct seen_frame *to) {
    const uint8_t *bytes;
    size_t n = grpc_server_output(p.server, &bytes);
    size_t count = seen_frames(bytes, n, to);
    grpc_server_sent(p.server, n);
    return count;
}

/* Only the frames of |stream|. */
static size_t answer_on(uint32_t stream, struct seen_frame *to) {
    size_t n = answer(to), count = 0;
    for (size_t i = 0; i < n; i++) {
        if (to[i].stream == stream) {
            to[count++] = to[i];
        }
    }
    return count;
}

static const char *header_of(const struct seen_frame *f, const char *name) {
    return seen_header(inflater, f, name);
}

/* ---- 1, 2: the end of a reply ---- */

/* nghttp2 sends a queued reset ahead of everything. */
START_TEST(trap_01_reset_after_the_reply) {
    const uint8_t too_large[] = {0, 0, 0x40, 0, 1};
    struct seen_frame f[SEEN_FRAMES];
    request(1, ECHO_UNARY);
    raw_frame(&wire, RAW_DATA, 0, 1, too_large, sizeof too_large);
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(answer_on(1, f), 2);
    ck_assert_uint_eq(f[0].type, RAW_HEADERS);
    ck_assert(f[0].flags & RAW_END_STREAM);
    ck_assert_uint_eq(f[1].type, RAW_RST);
    ck_assert_uint_eq(f[1].payload[3], 0); /* NO_ERROR */
    request(3, ECHO_BIDI);                 /* with a message on its way, too */
    raw_frame(&wire, RAW_DATA, 0, 3, empty_message, sizeof empty_message);
    ck_assert_int_eq(feed(), 0);
    grpc_call_finish(p.echo.held, ST_ABORTED, "enough");
    ck_assert_uint_eq(answer_on(3, f), 4);
    static const uint8_t types[] = {RAW_HEADERS, RAW_DATA, RAW_HEADERS, RAW_RST};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(f[i].type, types[i]);
        ck_assert_int_eq((f[i].flags & RAW_END_STREAM) != 0, i == 2);
    }
}
END_TEST

START_TEST(trap_02_trailers) {
    struct seen_frame f[SEEN_FRAMES];
    unary(1, ECHO_UNARY);
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(answer_on(1, f), 3);
    ck_assert_uint_eq(f[0].type, RAW_HEADERS);
    ck_assert_str_eq(header_of(&f[0], ":status"), "200");
    ck_assert_uint_eq(f[1].type, RAW_DATA);
    ck_assert(!(f[1].flags & RAW_END_STREAM)); /* the end belongs to the trailers */
    ck_assert_uint_eq(f[2].type, RAW_HEADERS);
    ck_assert(f[2].flags & RAW_END_STREAM);
    ck_assert_str_eq(header_of(&f[2], "grpc-status"), "0"); /* also for OK */
}
END_TEST

START_TEST(trap_02_trailers_only) {
    struct seen_frame f[SEEN_FRAMES];
    unary(1, ECHO_FAIL);
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(answer_on(1, f), 1);
    ck_assert_uint_eq(f[0].type, RAW_HEADERS);
    ck_assert(f[0].flags & RAW_END_STREAM);
    ck_assert_str_eq(header_of(&f[0], "grpc-status"), "10");
    unary(3, ECHO_FAIL);
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(answer_on(3, f), 1);
    ck_assert_str_eq(header_of(&f[0], "content-type"), "application/grpc");
}
END_TEST

/* ---- 8, 9, 11: what the connection says of itself ---- */

static uint32_t number(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint32_t setting(const struct seen_frame *f, unsigned id) {
    for (size_t at = 0; at + 6 <= f->len; at += 6) {
        if (f->payload[at + 1] == id) {
            return number(f->payload + at + 2);
        }
    }
    return 0;
}

START_TEST(trap_08_windows) {
    enum { WINDOW_UPDATE = 8, DEFAULT_WINDOW = 65535 };
    struct seen_frame f[SEEN_FRAMES];
    size_t n = answer(f);
    uint32_t more = 0;
    ck_assert_uint_eq(f[0].type, RAW_SETTINGS);
    ck_assert_uint_eq(setting(&f[0], NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE), 1 << 20);
    for (size_t i = 0; i < n; i++) { /* the setting does not touch the connection's own window */
        more += f[i].type == WINDOW_UPDATE && f[i].stream == 0 ? number(f[i].payload) : 0;
    }
    ck_assert_uint_eq(DEFAULT_WINDOW + more, 4 << 20);
}
END_TEST

START_TEST(trap_09_settings) {
    enum { REFUSED_STREAM = 7 };
    struct seen_frame f[SEEN_FRAMES];
    ck_assert_uint_gt(answer(f), 0);
    ck_assert_uint_eq(setting(&f[0], NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS), GRPC_CALLS_MAX);
    ck_assert_uint_eq(setting(&f[0], NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE), GRPC_HEADERS_MAX);
    for (uint32_t i = 0; i <= GRPC_CALLS_MAX; i++) {
        request(2 * i + 1, ECHO_HOLD);
    }
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(p.echo.opened, GRPC_CALLS_MAX);
    ck_assert_uint_eq(answer_on(2 * GRPC_CALLS_MAX + 1, f), 1); /* safe to try again */
    ck_assert_uint_eq(f[0].type, RAW_RST);
    ck_assert_uint_eq(number(f[0].payload), REFUSED_STREAM);
}
END_TEST

/* No "ping strikes": a client may ask as often as it likes, if only it reads the answers. */
START_TEST(trap_11_pings_are_answered) {
    struct seen_frame f[SEEN_FRAMES];
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_gt(answer(f), 0);
    for (unsigned i = 0; i < 20000; i++) {
        uint8_t data[8] = {(uint8_t)i, (uint8_t)(i >> 8), 'p', 'i', 'n', 'g', '!', 0};
        raw_frame(&wire, RAW_PING, 0, 0, data, sizeof data);
        ck_assert_int_eq(feed(), 0);
        ck_assert_uint_eq(answer(f), 1);
        ck_assert_uint_eq(f[0].type, RAW_PING);
        ck_assert_uint_eq(f[0].flags, SEEN_ACK);
        ck_assert_mem_eq(f[0].payload, data, sizeof data);
    }
    ck_assert(!grpc_server_over(p.server));
}
END_TEST

/* ---- 12: floods ---- */

START_TEST(trap_12_empty_data) {
    enum { ENHANCE_YOUR_CALM = 11 };
    struct seen_frame f[SEEN_FRAMES];
    request(1, ECHO_BIDI);
    ck_assert_int_eq(feed(), 0);
    int sent = 0;
    uint32_t why = 0;
    while (sent < 10000 && !grpc_server_over(p.server)) {
        raw_frame(&wire, RAW_DATA, 0, 1, NULL, 0);
        sent++;
        (void)feed();
        for (size_t i = answer(f); i-- > 0;) {
            why = f[i].type == RAW_GOAWAY ? number(f[i].payload + 4) : why;
        }
    }
    ck_assert_int_lt(sent, 2000);
    ck_assert_uint_eq(why, ENHANCE_YOUR_CALM);
}
END_TEST

/* Some empty ones between others are nothing bad. */
START_TEST(trap_12_some_empty_data) {
    request(1, ECHO_SINK);
    for (int i = 0; i < 5000; i++) {
        raw_frame(&wire, RAW_DATA, 0, 1, NULL, 0);
        if (i % 900 == 0) {
            raw_frame(&wire, RAW_DATA, 0, 1, empty_message, sizeof empty_message);
        }
    }
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(p.echo.messages, 6);
    ck_assert_uint_eq(p.echo.done, 0);
}
END_TEST

/* ---- 14, 18: headers ---- */

START_TEST(trap_14_not_grpc) {
    static const char *const types[] = {"text/plain", "application/json", "application/grpcx", ""};
    struct seen_frame f[SEEN_FRAMES];
    for (uint32_t i = 0; i < 4; i++) {
        struct buf fields = {0};
        raw_field(&fields, ":method", i == 3 ? "GET" : "POST");
        raw_field(&fields, ":scheme", "http");
        raw_field(&fields, ":path", ECHO_UNARY);
        raw_field(&fields, ":authority", "localhost");
        raw_field(&fields, "content-type", i == 3 ? "application/grpc" : types[i]);
        request_of(2 * i + 1, RAW_END_STREAM, &fields);
        ck_assert_int_eq(feed(), 0);
        ck_assert_uint_eq(answer_on(2 * i + 1, f), 1);
        ck_assert_str_eq(header_of(&f[0], ":status"), "415");
    }
    ck_assert_uint_eq(p.echo.opened, 0);
}
END_TEST

START_TEST(trap_14_grpc_types) {
    static const char *const types[] = {"application/grpc+proto", "application/grpc;charset=x"};
    for (uint32_t i = 0; i < 2; i++) {
        struct buf fields = {0};
        raw_field(&fields, ":method", "POST");
        raw_field(&fields, ":scheme", "http");
        raw_field(&fields, ":path", ECHO_UNARY);
        raw_field(&fields, "content-type", types[i]);
        request_of(2 * i + 1, 0, &fields);
    }
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(p.echo.opened, 2);
}
END_TEST

/* Requests made by raw_request have no te, and are served in all tests. */
START_TEST(trap_18_te_is_sent) {
    static struct call_outcome o; /* heard of until the fixture's end */
    enum { MAGIC = 24 };
    struct seen_frame f[SEEN_FRAMES];
    const uint8_t *bytes;
    const char *te = NULL;
    pair_start(&p, ECHO_BIDI, &o, -1);
    size_t n = grpc_client_output(p.client, &bytes);
    n = seen_frames(bytes + MAGIC, n - MAGIC, f);
    for (size_t i = 0; i < n; i++) {
        te = f[i].type == RAW_HEADERS ? header_of(&f[i], "te") : te;
    }
    ck_assert_ptr_nonnull(te);
    ck_assert_str_eq(te, "trailers");
}
END_TEST

/* ---- 19: answers from elsewhere ---- */

/* The answer comes after its caller, then the whole connection, went: on_done is where whoever has
 * it forgets the call, and it comes first. */
START_TEST(trap_19_answer_after_the_caller_went) {
    static struct call_outcome o; /* its second call ends in the teardown */
    o = (struct call_outcome){0};
    struct grpc_stream *s = pair_unary(&p, ECHO_HOLD, 1, "", &o);
    ck_assert_ptr_nonnull(p.echo.held);
    grpc_client_cancel(s);
    pair_pump(&p);
    ck_assert_ptr_null(p.echo.held);
    pair_unary(&p, ECHO_HOLD, 1, "", &o);
    ck_assert_ptr_nonnull(p.echo.held);
    grpc_server_free(p.server);
    ck_assert_ptr_null(p.echo.held);
    ck_assert_uint_eq(p.echo.done, 2);
    struct grpc_server_options again = {.services = &p.service, .service_count = 1};
    p.server = grpc_server_new(&again, p.now);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("traps");
    TCase *t = tcase_create("traps");
    tcase_set_timeout(t, 30);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, trap_01_reset_after_the_reply);
    tcase_add_test(t, trap_02_trailers);
    tcase_add_test(t, trap_02_trailers_only);
    tcase_add_test(t, trap_08_windows);
    tcase_add_test(t, trap_09_settings);
    tcase_add_test(t, trap_11_pings_are_answered);
    tcase_add_test(t, trap_12_empty_data);
    tcase_add_test(t, trap_12_some_empty_data);
    tcase_add_test(t, trap_14_not_grpc);
    tcase_add_test(t, trap_14_grpc_types);
    tcase_add_test(t, trap_18_te_is_sent);
    tcase_add_test(t, trap_19_answer_after_the_caller_went);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
