#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tests/base/suite.h"

START_TEST(appends_and_consumes) {
    struct buf b = {0};
    buf_append(&b, "hello ", 6);
    buf_append(&b, "world", 5);
    ck_assert_uint_eq(buf_unread(&b), 11);
    buf_consume(&b, 6);
    ck_assert_uint_eq(buf_unread(&b), 5);
    ck_assert_mem_eq(buf_bytes(&b), "world", 5);
    buf_append(&b, NULL, 0);
    ck_assert_uint_eq(buf_unread(&b), 5);
    buf_free(&b);
    ck_assert_ptr_null(b.data);
    ck_assert_uint_eq(b.len, 0);
}
END_TEST

START_TEST(reserve_gives_room) {
    struct buf b = {0};
    ck_assert_ptr_nonnull(buf_reserve(&b, 0));
    uint8_t *to = buf_reserve(&b, 1000);
    memset(to, 7, 1000);
    b.len += 1000;
    ck_assert_uint_eq(buf_unread(&b), 1000);
    ck_assert_uint_eq(buf_bytes(&b)[999], 7);
    buf_free(&b);
}
END_TEST

/* A queue whose bytes are a known sequence, filled and drained in uneven pieces. */
START_TEST(keeps_bytes_in_order) {
    struct buf b = {0};
    unsigned in = 0, out = 0, seed = 1, wrong = 0;
    for (int round = 0; round < 2000; round++) {
        seed = seed * 1103515245u + 12345u;
        for (unsigned n = seed >> 24; n; n--) {
            uint8_t byte = (uint8_t)(in++ % 251);
            buf_append(&b, &byte, 1);
        }
        seed = seed * 1103515245u + 12345u;
        size_t take = (seed >> 24) % (buf_unread(&b) + 1);
        for (size_t i = 0; i < take; i++) {
            wrong += buf_bytes(&b)[i] != out++ % 251;
        }
        buf_consume(&b, take);
    }
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_eq(buf_unread(&b), in - out);
    buf_free(&b);
}
END_TEST

START_TEST(memory_is_zeroed) {
    uint8_t *p = mem_zeroed(100, 3);
    for (int i = 0; i < 300; i++) {
        ck_assert_uint_eq(p[i], 0);
    }
    free(p);
    p = mem_zeroed(0, 8);
    ck_assert_ptr_nonnull(p);
    free(p);
}
END_TEST

START_TEST(text_is_copied) {
    char *s = mem_text("zerod");
    ck_assert_str_eq(s, "zerod");
    free(s);
    ck_assert_ptr_null(mem_text(NULL));
}
END_TEST

int main(void) {
    Suite *s = suite_create("buf");
    TCase *t = tcase_create("all");
    tcase_add_test(t, appends_and_consumes);
    tcase_add_test(t, reserve_gives_room);
    tcase_add_test(t, keeps_bytes_in_order);
    tcase_add_test(t, memory_is_zeroed);
    tcase_add_test(t, text_is_copied);
    suite_add_tcase(s, t);
    return run_suite(s);
}
