/* Peers that break the rules, byte by byte: each limit is kept, other calls go on. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "proto/framing.h"
#include "proto/unpack.h"
#include "tests/base/suite.h"
#include "tests/proto/pair.h"
#include "tests/proto/raw.h"

static struct pair p;
static struct buf wire;

static void setup(void) {
    pair_open(&p);
    wire = (struct buf){0};
    raw_preface(&wire);
}

static void teardown(void) {
    buf_free(&wire);
    pair_close(&p);
}

static int feed(void) {
    int rv = pair_feed(&p, buf_bytes(&wire), buf_unread(&wire));
    buf_consume(&wire, buf_unread(&wire));
    return rv;
}

static void request(uint32_t stream, uint8_t flags, const char *authority) {
    struct buf fields = {0};
    raw_request(&fields, ECHO_UNARY, authority);
    raw_frame(&wire, RAW_HEADERS, flags, stream, buf_bytes(&fields), buf_unread(&fields));
    buf_free(&fields);
}

static void take_output(void) {
    const uint8_t *bytes;
    size_t n = grpc_server_output(p.server, &bytes);
    grpc_server_sent(p.server, n);
}

/* grpcio, grpc-java and others differ in what they call a unix socket. */
START_TEST(trap_03_any_authority) {
    static const char *const names[] = {"localhost", "%2Frun%2Fx.sock", "/run/x.sock",
                                        "unix:/run/x.sock"};
    uint32_t id = 1;
    const uint8_t empty[] = {0, 0, 0, 0, 0};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++, id += 2) {
        request(id, RAW_END_HEADERS, names[i]);
        raw_frame(&wire, RAW_DATA, RAW_END_STREAM, id, empty, sizeof empty);
        ck_assert_int_eq(feed(), 0);
        ck_assert_uint_eq(p.echo.opened, i + 1);
        take_output();
        ck_assert_uint_eq(p.echo.done, i + 1);
        ck_assert_int_eq(p.echo.last_status, ST_OK);
    }
}
END_TEST

START_TEST(trap_06_oversize_message) {
    const uint8_t prefix[] = {0, 0, 0x40, 0, 1}; /* 4 MiB and a byte */
    request(1, RAW_END_HEADERS, "localhost");
    raw_frame(&wire, RAW_DATA, 0, 1, prefix, sizeof prefix);
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(p.echo.done, 1);
    ck_assert_int_eq(p.echo.last_status, ST_RESOURCE_EXHAUSTED);
    const uint8_t *bytes;
    size_t n = grpc_server_output(p.server, &bytes);
    ck_assert(raw_has(bytes, n, RAW_HEADERS, 1));
    ck_assert(raw_has(bytes, n, RAW_RST, 1)); /* and it need not send the rest */
}
END_TEST

START_TEST(trap_07_compressed_message) {
    const uint8_t message[] = {1, 0, 0, 0, 1, 0};
    request(1, RAW_END_HEADERS, "localhost");
    raw_frame(&wire, RAW_DATA, RAW_END_STREAM, 1, message, sizeof message);
    ck_assert_int_eq(feed(), 0);
    ck_assert_int_eq(p.echo.last_status, ST_UNIMPLEMENTED);
    ck_assert_uint_eq(p.echo.done, 1);
}
END_TEST

START_TEST(truncated_message) {
    const uint8_t message[] = {0, 0, 0, 0, 9, 'x'};
    request(1, RAW_END_HEADERS, "localhost");
    raw_frame(&wire, RAW_DATA, RAW_END_STREAM, 1, message, sizeof message);
    ck_assert_int_eq(feed(), 0);
    ck_assert_int_eq(p.echo.last_status, ST_INTERNAL);
}
END_TEST

/* A second message of a unary call that comes in pieces; the connection's account stays right. */
START_TEST(second_message_in_pieces) {
    const uint8_t messages[] = {0, 0, 0, 0, 2, 0x0a, 0, 0, 0, 0, 0, 2, 0x0a};
    for (uint32_t id = 1; id < 200; id += 2) {
        request(id, RAW_END_HEADERS, "localhost");
        raw_frame(&wire, RAW_DATA, 0, id, messages, sizeof messages);
        raw_frame(&wire, RAW_DATA, 0, id, "", 1);
        ck_assert_int_eq(feed(), 0);
        ck_assert_uint_eq(p.echo.done, (id + 1) / 2);
        ck_assert_int_eq(p.echo.last_status, ST_INTERNAL);
        take_output();
    }
}
END_TEST

/* Two bytes on the wire that become a hundred in memory, two million times. */
START_TEST(unpacking_is_bounded) {
    enum { BYTES = 4000000 };
    uint8_t *bytes = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i += 2) {
        bytes[i] = 2 << 3 | 2; /* Unit.tensors, of length 0 */
        bytes[i + 1] = 0;
    }
    ck_assert_ptr_null(unpack_message(&zerod__v1__unit__descriptor, bytes, BYTES));
    ProtobufCMessage *m = unpack_message(&zerod__v1__unit__descriptor, bytes, 20000);
    ck_assert_ptr_nonnull(m);
    ck_assert_uint_eq(((Zerod__V1__Unit *)m)->n_tensors, 10000);
    protobuf_c_message_free_unpacked(m, NULL);
    free(bytes);
}
END_TEST

/* 9 KiB of headers: refused, though nghttp2 would take 64 KiB; the connection lives. */
START_TEST(trap_09_oversize_headers) {
    struct buf fields = {0};
    raw_request(&fields, ECHO_UNARY, "localhost");
    char value[101];
    memset(value, 'v', sizeof value - 1);
    value[100] = 0;
    for (int i = 0; i < 66; i++) {
        raw_field(&fields, "x", value);
    }
    raw_frame(&wire, RAW_HEADERS, RAW_END_HEADERS | RAW_END_STREAM, 1, buf_bytes(&fields),
              buf_unread(&fields));
    buf_free(&fields);
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(p.echo.opened, 0);
    const uint8_t *bytes;
    size_t n = grpc_server_output(p.server, &bytes);
    ck_assert(raw_has(bytes, n, RAW_HEADERS, 1));
    grpc_server_sent(p.server, n);
    request(3, RAW_END_HEADERS, "localhost");
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(p.echo.opened, 1);
}
END_TEST

START_TEST(malformed_requests) {
    static const char *const fields[][2] = {
        {":path", ECHO_FAIL}, {"content-type", "application/grpc"}, {"grpc-timeout", "soon"}};
    for (uint32_t i = 0; i < 3; i++) { /* a second path, a second type, a bad timeout */
        struct buf b = {0};
        raw_request(&b, ECHO_UNARY, "localhost");
        raw_field(&b, fields[i][0], fields[i][1]);
        raw_frame(&wire, RAW_HEADERS, RAW_END_HEADERS, 2 * i + 1, buf_bytes(&b), buf_unread(&b));
        buf_free(&b);
    }
    struct buf b = {0}; /* nothing at all */
    raw_field(&b, "x", "y");
    raw_frame(&wire, RAW_HEADERS, RAW_END_HEADERS, 9, buf_bytes(&b), buf_unread(&b));
    buf_free(&b);
    ck_assert_int_eq(feed(), 0);
    ck_assert_uint_eq(p.echo.opened, 0);
    const uint8_t *bytes;
    size_t n = grpc_server_output(p.server, &bytes);
    for (uint32_t id = 1; id <= 5; id += 2) {
        ck_assert(raw_has(bytes, n, RAW_HEADERS, id));
    }
    ck_assert(raw_has(bytes, n, RAW_HEADERS, 9) || raw_has(bytes, n, RAW_RST, 9));
}
END_TEST

START_TEST(trap_14_not_http2) {
    static const char old[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    ck_assert_int_lt(pair_feed(&p, old, sizeof old - 1), 0);
    const uint8_t *bytes;
    size_t n = grpc_server_output(p.server, &bytes);
    grpc_server_sent(p.server, n);
    ck_assert(grpc_server_over(p.server));
}
END_TEST

START_TEST(trap_04_silent_connection) {
    ck_assert_int_lt(grpc_server_next_deadline(p.server), GRPC_NEVER);
    p.now = grpc_server_next_deadline(p.server);
    grpc_server_tick(p.server, p.now);
    const uint8_t *bytes;
    size_t n = grpc_server_output(p.server, &bytes);
    grpc_server_sent(p.server, n);
    ck_assert(grpc_server_over(p.server));
}
END_TEST

/* Feeds |one| again and again, taking output or not, until the server gives up. */
static int flood(void (*one)(uint32_t id), bool reading, int most) {
    for (int i = 0; i < most; i++) {
        one(2 * (uint32_t)i + 1);
        if (feed() < 0) {
            return i;
        }
        const uint8_t *bytes;
        size_t n = grpc_server_output(p.server, &bytes);
        if (reading) {
            grpc_server_sent(p.server, n);
            if (grpc_server_over(p.server)) {
                return i;
            }
        }
    }
    return most;
}

static void reset(uint32_t id) {
    const uint8_t cancel[] = {0, 0, 0, 8};
    request(id, RAW_END_HEADERS, "localhost");
    raw_frame(&wire, RAW_RST, 0, id, cancel, sizeof cancel);
}

START_TEST(trap_12_rapid_reset) {
    ck_assert_int_lt(flood(reset, true, 5000), 2000);
    ck_assert_uint_eq(p.echo.opened, p.echo.done);
}
END_TEST

static void ping(uint32_t id) {
    (void)id;
    raw_frame(&wire, RAW_PING, 0, 0, "12345678", 8);
}

START_TEST(trap_11_pings_to_a_deaf_peer) {
    /* what is answered into the transport's buffer counts as sent: 64 KiB of it, then the queue */
    ck_assert_int_lt(flood(ping, false, 20000), 10000);
}
END_TEST

static void settings(uint32_t id) {
    (void)id;
    raw_frame(&wire, RAW_SETTINGS, 0, 0, NULL, 0);
}

START_TEST(trap_12_settings_to_a_deaf_peer) {
    ck_assert_int_lt(flood(settings, false, 20000), 10000);
}
END_TEST

static void empty_call(uint32_t id) {
    raw_frame(&wire, RAW_HEADERS, RAW_END_HEADERS | RAW_END_STREAM, id, NULL, 0);
}

/* Who has not acknowledged our SETTINGS is answered with a reset for each call too many. */
START_TEST(trap_12_calls_of_a_deaf_peer) {
    size_t before = mallinfo2().uordblks;
    ck_assert_int_lt(flood(empty_call, false, 200000), 60000);
    ck_assert_uint_lt(mallinfo2().uordblks, before + (8 << 20));
}
END_TEST

START_TEST(trap_12_endless_headers) {
    struct buf fields = {0};
    raw_request(&fields, ECHO_UNARY, "localhost");
    raw_frame(&wire, RAW_HEADERS, 0, 1, buf_bytes(&fields), buf_unread(&fields));
    int rv = feed();
    int frames = 0;
    const uint8_t *bytes;
    for (; frames < 1000 && rv == 0 && !grpc_server_over(p.server); frames++) {
        raw_frame(&wire, RAW_CONTINUATION, 0, 1, buf_bytes(&fields), 0);
        rv = feed();
        grpc_server_sent(p.server, grpc_server_output(p.server, &bytes));
    }
    ck_assert_int_lt(frames, 100);
    buf_free(&fields);
}
END_TEST

/* 100 calls that each hold most of a 4 MiB message: the connection's account stops them. */
START_TEST(half_sent_messages_are_bounded) {
    enum { PART = 16384 };
    static uint8_t part[PART] = {0, 0, 0x3f, 0xff, 0xff};
    const uint8_t *bytes;
    for (uint32_t id = 1; id < 200; id += 2) {
        request(id, RAW_END_HEADERS, "localhost");
    }
    ck_assert_int_eq(feed(), 0);
    for (unsigned sent = 0; sent < 3 << 20; sent += PART) {
        memset(part, 0, sizeof part);
        if (sent == 0) {
            memcpy(part, "\0\0\x3f\xff\xff", 5);
        }
        for (uint32_t id = 1; id < 200; id += 2) {
            raw_frame(&wire, RAW_DATA, 0, id, part, PART);
            (void)feed();
            grpc_server_sent(p.server, grpc_server_output(p.server, &bytes));
        }
    }
    ck_assert_uint_lt(mallinfo2().uordblks, (size_t)3 * GRPC_BUFFER_MAX);
    ck_assert_uint_gt(p.echo.done, 50);
    ck_assert_int_eq(p.echo.last_status, ST_RESOURCE_EXHAUSTED);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("limits");
    TCase *t = tcase_create("limits");
    tcase_set_timeout(t, 30);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, trap_03_any_authority);
    tcase_add_test(t, trap_06_oversize_message);
    tcase_add_test(t, trap_07_compressed_message);
    tcase_add_test(t, truncated_message);
    tcase_add_test(t, second_message_in_pieces);
    tcase_add_test(t, unpacking_is_bounded);
    tcase_add_test(t, trap_09_oversize_headers);
    tcase_add_test(t, malformed_requests);
    tcase_add_test(t, trap_14_not_http2);
    tcase_add_test(t, trap_04_silent_connection);
    tcase_add_test(t, trap_12_rapid_reset);
    tcase_add_test(t, trap_11_pings_to_a_deaf_peer);
    tcase_add_test(t, trap_12_settings_to_a_deaf_peer);
    tcase_add_test(t, trap_12_calls_of_a_deaf_peer);
    tcase_add_test(t, trap_12_endless_headers);
    tcase_add_test(t, half_sent_messages_are_bounded);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
