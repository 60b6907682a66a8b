/* Cursor bytes, and where batches are read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/examples/gpt/cursor.h"
#include "client/examples/gpt/text.h"
#include "tests/base/suite.h"

static const struct cursor one = {
    .rank = 3, .step = 0x0102030405060708, .seed = 42, .sequences = 99, .text_bytes = 1000};

START_TEST(bytes_are_as_documented) {
    uint8_t b[CURSOR_BYTES];
    cursor_encode(&one, b);
    ck_assert(memcmp(b, "GPTCURSR\1\0\0\0\3\0\0\0\x08\7\6\5\4\3\2\1", 24) == 0);
    ck_assert_uint_eq(b[24], 42);
    ck_assert_uint_eq(b[32], 99);
    ck_assert_uint_eq(b[40] + 256u * b[41], 1000);
}
END_TEST

START_TEST(restores_only_its_own) {
    uint8_t b[CURSOR_BYTES];
    struct err e;
    struct cursor c = one;
    c.sequences = 0;
    cursor_encode(&one, b);
    ck_assert_int_eq(cursor_restore(&c, one.step + 1, b, sizeof b, &e), 0);
    ck_assert_uint_eq(c.sequences, 99);
    ck_assert_uint_eq(c.step, one.step);
    ck_assert_int_eq(cursor_restore(&c, one.step + 2, b, sizeof b, &e), -ST_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(e.text, "has step"));
    for (size_t i = 0; i < CURSOR_BYTES; i++) {
        c = one;
        b[i] ^= 0x10;
        const int rc = cursor_restore(&c, one.step + 1, b, sizeof b, &e);
        b[i] ^= 0x10;
        /* Only the counter of sequences may be anything. */
        ck_assert_int_eq(rc, i >= 32 && i < 40 ? 0 : -ST_FAILED_PRECONDITION);
    }
    ck_assert_int_eq(cursor_restore(&c, one.step + 1, b, 47, &e), -ST_FAILED_PRECONDITION);
    ck_assert_int_eq(cursor_restore(&c, 2, NULL, 0, &e), -ST_FAILED_PRECONDITION);
    ck_assert_int_eq(cursor_restore(&c, 1, NULL, 0, &e), 0);
    ck_assert_uint_eq(c.sequences, 0);
}
END_TEST

START_TEST(places_depend_on_every_number) {
    const uint64_t starts = 1000003;
    const struct text_place base = {1, 2, 3, 4, 5};
    const uint64_t at = text_offset(&base, starts);
    for (int i = 0; i < 5; i++) {
        struct text_place p = base;
        uint64_t *number[] = {&p.seed, &p.step, &p.micro_batch, &p.rank, &p.sequence};
        (*number[i])++;
        ck_assert_uint_ne(text_offset(&p, starts), at);
        ck_assert_uint_lt(text_offset(&p, 7), 7);
        ck_assert_uint_eq(text_offset(&p, 1), 0);
    }
    ck_assert_uint_eq(text_offset(&base, starts), at);
}
END_TEST

START_TEST(texts_are_checked) {
    char path[] = "/tmp/zerod-text-XXXXXX";
    struct text t;
    struct err e;
    const int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, "hello", 5), 5);
    close(fd);
    ck_assert_int_eq(text_load(&t, path, 5, &e), 0);
    ck_assert(t.count == 5 && memcmp(t.bytes, "hello", 5) == 0);
    text_free(&t);
    ck_assert_int_eq(text_load(&t, path, 6, &e), -ST_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(e.text, "has 5 bytes"));
    ck_assert_int_eq(text_load(&t, "/tmp", 1, &e), -ST_INVALID_ARGUMENT);
    unlink(path);
    ck_assert_int_eq(text_load(&t, path, 1, &e), -ST_NOT_FOUND);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cursor");
    TCase *t = tcase_create("cursor");
    tcase_add_test(t, bytes_are_as_documented);
    tcase_add_test(t, restores_only_its_own);
    tcase_add_test(t, places_depend_on_every_number);
    tcase_add_test(t, texts_are_checked);
    suite_add_tcase(s, t);
    return run_suite(s);
}
