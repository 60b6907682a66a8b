#include <string.h>

#include "proto/framing.h"
#include "proto/unix_address.h"
#include "tests/base/suite.h"

struct seen {
    unsigned count;
    size_t bytes;
    uint8_t last[64];
    size_t last_len;
    int answer;
};

static int take(void *arg, const uint8_t *message, size_t len) {
    struct seen *s = arg;
    s->count++;
    s->bytes += len;
    s->last_len = len;
    if (len > 0 && len <= sizeof s->last) {
        memcpy(s->last, message, len);
    }
    return s->answer;
}

static size_t put(uint8_t *to, const char *text) {
    size_t n = strlen(text);
    grpc_prefix_write(to, (uint32_t)n);
    memcpy(to + GRPC_PREFIX, text, n);
    return GRPC_PREFIX + n;
}

START_TEST(byte_at_a_time) {
    uint8_t wire[64];
    size_t n = put(wire, "hello");
    n += put(wire + n, "");
    n += put(wire + n, "x");
    struct deframer d = {.max = 100};
    struct seen s = {0};
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(deframer_push(&d, wire + i, 1, take, &s), 0);
        ck_assert_int_eq(deframer_idle(&d), i + 1 == 10 || i + 1 == 15 || i + 1 == n);
    }
    ck_assert_uint_eq(s.count, 3);
    ck_assert_uint_eq(s.bytes, 6);
    ck_assert_uint_eq(s.last[0], 'x');
    deframer_free(&d);
}
END_TEST

/* Every way to cut three messages into two pieces gives the same. */
START_TEST(trap_06_every_cut) {
    uint8_t wire[64];
    size_t n = put(wire, "abc");
    n += put(wire + n, "");
    n += put(wire + n, "defgh");
    for (size_t cut = 0; cut <= n; cut++) {
        struct deframer d = {.max = 100};
        struct seen s = {0};
        ck_assert_int_eq(deframer_push(&d, wire, cut, take, &s), 0);
        ck_assert_int_eq(deframer_push(&d, wire + cut, n - cut, take, &s), 0);
        ck_assert_uint_eq(s.count, 3);
        ck_assert_uint_eq(s.bytes, 8);
        ck_assert_int_eq(memcmp(s.last, "defgh", 5), 0);
        ck_assert(deframer_idle(&d));
        deframer_free(&d);
    }
}
END_TEST

START_TEST(refusals) {
    struct seen s = {0};
    struct deframer d = {.max = 4};
    const uint8_t five[] = {0, 0, 0, 0, 5};
    ck_assert_int_eq(deframer_push(&d, five, 5, take, &s), -ST_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(d.body.data); /* refused before a byte was kept */
    ck_assert_int_eq(deframer_push(&d, five, 5, take, &s), -ST_INTERNAL);
    d = (struct deframer){.max = GRPC_MESSAGE_MAX};
    const uint8_t huge[] = {0, 0xff, 0xff, 0xff, 0xff};
    ck_assert_int_eq(deframer_push(&d, huge, 5, take, &s), -ST_RESOURCE_EXHAUSTED);
    d = (struct deframer){.max = 4};
    const uint8_t compressed[] = {1, 0, 0, 0, 1, 0};
    ck_assert_int_eq(deframer_push(&d, compressed, 6, take, &s), -ST_UNIMPLEMENTED);
    d = (struct deframer){.max = 4};
    const uint8_t odd[] = {2, 0, 0, 0, 1, 0};
    ck_assert_int_eq(deframer_push(&d, odd, 6, take, &s), -ST_INTERNAL);
    ck_assert_uint_eq(s.count, 0);
}
END_TEST

START_TEST(taker_stops_it) {
    uint8_t wire[64];
    size_t n = put(wire, "a");
    n += put(wire + n, "b");
    struct deframer d = {.max = 4};
    struct seen s = {.answer = -ST_CANCELLED};
    ck_assert_int_eq(deframer_push(&d, wire, n, take, &s), -ST_CANCELLED);
    ck_assert_uint_eq(s.count, 1);
    deframer_free(&d);
}
END_TEST

static int64_t parse(const char *text) {
    return grpc_timeout_parse(text, strlen(text));
}

START_TEST(trap_04_timeouts) {
    ck_assert_int_eq(parse("1n"), 1);
    ck_assert_int_eq(parse("250m"), 250000000);
    ck_assert_int_eq(parse("1S"), 1000000000);
    ck_assert_int_eq(parse("2M"), 120000000000);
    ck_assert_int_eq(parse("99999999H"), INT64_MAX); /* saturates */
    ck_assert_int_eq(parse("0S"), 0);
    static const char *const bad[] = {"", "S", "1", "123456789S", "-1S", "1s", " 1S", "1.5S"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(parse(bad[i]), -1);
    }
    static const int64_t times[] = {-5,       0, 1, 99999999, 100000000, 100000001, 123456789012345,
                                    INT64_MAX};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        char text[GRPC_TIMEOUT_TEXT];
        size_t n = grpc_timeout_format(times[i], text);
        ck_assert_uint_le(n, 9);
        int64_t back = grpc_timeout_parse(text, n);
        ck_assert_int_ge(back, times[i] < 1 ? 1 : times[i]);             /* never shorter */
        ck_assert(times[i] < 1 || back - times[i] <= times[i] / 100000); /* nor much longer */
    }
}
END_TEST

START_TEST(trap_05_texts) {
    char to[GRPC_TEXT_ENCODED], back[GRPC_TEXT_MAX + 1];
    const char *odd = "50 % of Größe\n\x01~";
    size_t n = grpc_text_encode(odd, sizeof to, to);
    ck_assert_str_eq(to, "50 %25 of Gr%C3%B6%C3%9Fe%0A%01~");
    ck_assert_uint_eq(grpc_text_decode(to, n, sizeof back, back), strlen(odd));
    ck_assert_str_eq(back, odd);
    ck_assert_uint_eq(grpc_text_encode("ab%", 5, to), 2); /* no half escape */
    ck_assert_str_eq(to, "ab");
    static const char *const broken[] = {"%", "%4", "%zz", "%z4", "%4z", "100%", "a%4"};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        grpc_text_decode(broken[i], strlen(broken[i]), sizeof back, back);
        ck_assert_str_eq(back, broken[i]);
    }
    ck_assert_uint_eq(grpc_text_decode("abcdef", 6, 4, back), 3);
    ck_assert_str_eq(back, "abc");
}
END_TEST

START_TEST(statuses) {
    ck_assert_int_eq(grpc_status_parse("0", 1), ST_OK);
    ck_assert_int_eq(grpc_status_parse("16", 2), ST_UNAUTHENTICATED);
    ck_assert_int_eq(grpc_status_parse("17", 2), ST_UNKNOWN);
    ck_assert_int_eq(grpc_status_parse("", 0), ST_UNKNOWN);
    ck_assert_int_eq(grpc_status_parse("1x", 2), ST_UNKNOWN);
    ck_assert_int_eq(grpc_status_parse("100", 3), ST_UNKNOWN);
    ck_assert_int_eq(grpc_status_of_http(404), ST_UNIMPLEMENTED);
    ck_assert_int_eq(grpc_status_of_http(503), ST_UNAVAILABLE);
    ck_assert_int_eq(grpc_status_of_http(415), ST_UNKNOWN);
    ck_assert_int_eq(grpc_status_of_reset(7), ST_UNAVAILABLE);
    ck_assert_int_eq(grpc_status_of_reset(8), ST_CANCELLED);
    ck_assert_int_eq(grpc_status_of_reset(11), ST_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(grpc_status_of_reset(1), ST_INTERNAL);
}
END_TEST

START_TEST(socket_paths) {
    struct sockaddr_un a;
    struct err e = {0};
    char path[120];
    memset(path, 'x', sizeof path);
    path[UNIX_PATH_LONGEST] = 0;
    ck_assert_int_eq(unix_address(path, &a, &e), 0);
    path[UNIX_PATH_LONGEST] = 'x';
    path[UNIX_PATH_LONGEST + 1] = 0;
    ck_assert_int_eq(unix_address(path, &a, &e), -ST_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(e.text, "108 bytes"));
    ck_assert_ptr_nonnull(strstr(e.text, "107"));
    ck_assert_ptr_nonnull(strstr(e.text, path));
    ck_assert_int_eq(unix_address("", &a, &e), -ST_INVALID_ARGUMENT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("framing");
    TCase *t = tcase_create("framing");
    tcase_add_test(t, byte_at_a_time);
    tcase_add_test(t, trap_06_every_cut);
    tcase_add_test(t, refusals);
    tcase_add_test(t, taker_stops_it);
    tcase_add_test(t, trap_04_timeouts);
    tcase_add_test(t, trap_05_texts);
    tcase_add_test(t, statuses);
    tcase_add_test(t, socket_paths);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
