/* Peers that stop, at every place where a peer can stop: none keeps its connection for ever, and
 * none that still has a call is sent away. */
#include <string.h>

#include "proto/framing.h"
#include "tests/base/suite.h"
#include "tests/proto/pair.h"
#include "tests/proto/raw.h"

#define SECOND INT64_C(1000000000)

static struct pair p;
static struct buf wire;

static void setup(void) {
    pair_open(&p);
    wire = (struct buf){0};
}

static void teardown(void) {
    buf_free(&wire);
    pair_close(&p);
}

static void feed(void) {
    ck_assert_int_eq(pair_feed(&p, buf_bytes(&wire), buf_unread(&wire)), 0);
    buf_consume(&wire, buf_unread(&wire));
}

/* What the transport does at each deadline. True: a GOAWAY was among what it wrote. */
static bool look(bool reads) {
    const uint8_t *bytes;
    grpc_server_tick(p.server, p.now);
    size_t n = grpc_server_output(p.server, &bytes);
    bool away = raw_has(bytes, n, RAW_GOAWAY, 0);
    if (reads) {
        grpc_server_sent(p.server, n);
    }
    return away;
}

/* From deadline to deadline until the server gives the connection up or |limit| has passed; what
 * passed. */
static int64_t let_pass(int64_t limit, bool reads, bool *away) {
    const int64_t start = p.now;
    bool told = look(reads);
    while (!grpc_server_over(p.server)) {
        int64_t at = grpc_server_next_deadline(p.server);
        ck_assert_int_gt(at, p.now); /* a deadline that stays would keep the loop busy */
        if (at > start + limit) {
            p.now = start + limit;
            return limit;
        }
        p.now = at;
        told = look(reads) || told;
    }
    if (away) {
        *away = told;
    }
    return p.now - start;
}

static void request(uint32_t stream, const char *path, uint8_t flags) {
    struct buf fields = {0};
    raw_request(&fields, path, "localhost");
    raw_frame(&wire, RAW_HEADERS, flags, stream, buf_bytes(&fields), buf_unread(&fields));
    buf_free(&fields);
}

static void send_away(int64_t passed, bool away) {
    ck_assert_int_ge(passed, GRPC_IDLE_CAP_NS);
    ck_assert_int_le(passed, 2 * GRPC_IDLE_CAP_NS + 20 * SECOND);
    ck_assert(away);
}

START_TEST(preface_and_nothing) {
    bool away = false;
    raw_preface(&wire);
    feed();
    int64_t passed = let_pass(GRPC_NEVER / 2, true, &away);
    send_away(passed, away);
}
END_TEST

START_TEST(a_call_and_nothing) {
    struct call_outcome o = {0};
    bool away = false;
    pair_unary(&p, ECHO_UNARY, 8, "x", &o);
    ck_assert_int_eq(o.code, ST_OK);
    int64_t passed = let_pass(GRPC_NEVER / 2, true, &away);
    send_away(passed, away);
}
END_TEST

START_TEST(each_call_starts_the_time_anew) {
    for (int i = 0; i < 20; i++) {
        struct call_outcome o = {0};
        pair_unary(&p, ECHO_UNARY, 8, "x", &o);
        ck_assert_int_eq(o.code, ST_OK);
        int64_t most = GRPC_IDLE_CAP_NS - SECOND;
        ck_assert_int_eq(let_pass(most, true, NULL), most);
    }
}
END_TEST

START_TEST(an_open_call_stays) {
    struct call_outcome o = {0};
    pair_start(&p, ECHO_BIDI, &o, -1);
    pair_pump(&p);
    ck_assert_uint_eq(p.echo.opened, 1);
    int64_t long_time = 100 * GRPC_IDLE_CAP_NS;
    ck_assert_int_eq(let_pass(long_time, true, NULL), long_time);
    ck_assert_uint_eq(p.echo.done, 0);
    grpc_call_finish(p.echo.held, ST_OK, NULL); /* the connection's clock stands still since then */
    look(false);
    ck_assert(!grpc_server_over(p.server));
    pair_pump(&p);
    ck_assert_int_eq(o.code, ST_OK);
    ck_assert_uint_eq(o.done, 1);
}
END_TEST

/* A ping says that the peer lives, not that it wants anything. */
START_TEST(pings_do_not_count) {
    int minutes = 0;
    raw_preface(&wire);
    feed();
    while (!grpc_server_over(p.server) && minutes++ < 100) {
        raw_frame(&wire, RAW_PING, 0, 0, "12345678", 8);
        feed();
        look(true);
        p.now += 60 * SECOND;
        look(true);
    }
    ck_assert_int_le(minutes, 12);
}
END_TEST

static void given_up(int64_t passed) {
    ck_assert_int_ge(passed, GRPC_IDLE_CAP_NS);
    ck_assert_int_le(passed, 2 * GRPC_IDLE_CAP_NS + 60 * SECOND);
}

START_TEST(answers_that_nobody_reads) {
    static struct call_outcome o; /* told of its end in teardown() */
    pair_pump(&p);
    p.deaf_client = true;
    pair_unary(&p, ECHO_UNARY, 1 << 19, "x", &o);
    const uint8_t *bytes;
    ck_assert_uint_ge(grpc_server_output(p.server, &bytes), 1 << 19);
    given_up(let_pass(GRPC_NEVER / 2, false, NULL));
}
END_TEST

/* Reads all that comes, and never opens its window for the rest. */
START_TEST(answers_that_nobody_has_room_for) {
    enum { TOKEN = 100000, FRAME = 16384 };
    const uint8_t token[] = {0x0a, (TOKEN & 127) | 128, (TOKEN >> 7 & 127) | 128, TOKEN >> 14};
    struct buf message = {0};
    uint8_t *prefix = buf_reserve(&message, GRPC_PREFIX);
    grpc_prefix_write(prefix, sizeof token + TOKEN);
    message.len += GRPC_PREFIX;
    buf_append(&message, token, sizeof token);
    memset(buf_reserve(&message, TOKEN), 0, TOKEN);
    message.len += TOKEN;
    raw_preface(&wire);
    feed();
    look(true);
    raw_frame(&wire, RAW_SETTINGS, 1, 0, NULL, 0); /* seen: the server's window is larger now */
    request(1, ECHO_UNARY, RAW_END_HEADERS);
    while (buf_unread(&message)) {
        const size_t left = buf_unread(&message), n = left < FRAME ? left : FRAME;
        raw_frame(&wire, RAW_DATA, n == left ? RAW_END_STREAM : 0, 1, buf_bytes(&message), n);
        buf_consume(&message, n);
    }
    buf_free(&message);
    feed();
    look(true);
    ck_assert_uint_eq(grpc_server_calls(p.server), 1);
    given_up(let_pass(GRPC_NEVER / 2, true, NULL));
}
END_TEST

START_TEST(headers_that_break_off) {
    raw_preface(&wire);
    request(1, ECHO_BIDI, 0);
    feed();
    ck_assert_int_eq(let_pass(GRPC_NEVER / 2, true, NULL), 10 * SECOND);
}
END_TEST

START_TEST(headers_that_come_late) {
    raw_preface(&wire);
    request(1, ECHO_BIDI, 0);
    feed();
    ck_assert_int_eq(let_pass(9 * SECOND, true, NULL), 9 * SECOND);
    raw_frame(&wire, RAW_CONTINUATION, RAW_END_HEADERS, 1, NULL, 0);
    feed();
    ck_assert_uint_eq(p.echo.opened, 1);
    ck_assert_int_eq(let_pass(GRPC_IDLE_CAP_NS, true, NULL), GRPC_IDLE_CAP_NS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("idle");
    TCase *t = tcase_create("idle");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, preface_and_nothing);
    tcase_add_test(t, a_call_and_nothing);
    tcase_add_test(t, each_call_starts_the_time_anew);
    tcase_add_test(t, an_open_call_stays);
    tcase_add_test(t, pings_do_not_count);
    tcase_add_test(t, answers_that_nobody_reads);
    tcase_add_test(t, answers_that_nobody_has_room_for);
    tcase_add_test(t, headers_that_break_off);
    tcase_add_test(t, headers_that_come_late);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
