/* Look-ups in a hand-made FileDescriptorSet: imports, nesting, and sets cut anywhere. What the
 * built-in set holds is asked from outside, by test_daemon.py. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "rpc/descriptors.h"
#include "tests/base/suite.h"

/* Appends a field of that number (below 16) with |n| bytes (below 128). */
static void put(struct buf *b, unsigned number, const void *bytes, size_t n) {
    const uint8_t head[2] = {(uint8_t)(number << 3 | 2), (uint8_t)n};
    buf_append(b, head, 2);
    buf_append(b, bytes, n);
}

static void put_text(struct buf *b, unsigned number, const char *text) {
    put(b, number, text, strlen(text));
}

static void put_in(struct buf *b, unsigned number, struct buf *inner) {
    put(b, number, buf_bytes(inner), buf_unread(inner));
    buf_free(inner);
}

/* "a" imports b and what is not there, b imports c, c imports a; c has p.Outer.Inner.field. */
static struct buf make_set(void) {
    struct buf set = {0}, a = {0}, b = {0}, c = {0}, outer = {0}, inner = {0}, field = {0};
    const uint8_t others[] = {9 << 3 | 1, 0,          0, 0, 0, 0, 0,      0,
                              0,          9 << 3 | 5, 0, 0, 0, 0, 9 << 3, 1};
    put_text(&a, 1, "a");
    put_text(&a, 3, "b");
    put_text(&a, 3, "missing");
    put_text(&b, 1, "b");
    put_text(&b, 3, "c");
    buf_append(&b, others, sizeof others);
    put_text(&b, 2, "q.r");
    put_text(&c, 1, "c");
    put_text(&c, 2, "p");
    put_text(&c, 3, "a");
    put_text(&field, 1, "field");
    put_text(&inner, 1, "Inner");
    put_in(&inner, 2, &field);
    put_text(&outer, 1, "Outer");
    put_in(&outer, 3, &inner);
    put_in(&c, 4, &outer);
    put_in(&set, 1, &a);
    put_in(&set, 1, &b);
    put_in(&set, 1, &c);
    return set;
}

START_TEST(imports) {
    struct buf b = make_set();
    struct bytes set = {buf_bytes(&b), buf_unread(&b)}, file, files[8];
    ck_assert(descriptors_file(set, "a", &file));
    ck_assert_uint_eq(descriptors_with_imports(set, file, 8, files), 3);
    ck_assert_uint_eq(files[1].at[2], 'b');
    ck_assert_uint_eq(files[2].at[2], 'c');
    ck_assert_uint_eq(descriptors_with_imports(set, file, 2, files), 2);
    ck_assert_uint_eq(descriptors_with_imports(set, file, 0, files), 0);
    ck_assert(!descriptors_file(set, "missing", &file));
    ck_assert(!descriptors_file(set, "", &file));
    buf_free(&b);
}
END_TEST

START_TEST(symbols) {
    static const char *const here[] = {"p.Outer", "p.Outer.Inner", "p.Outer.Inner.field"};
    static const char *const lost[] = {"",        "p",   "p.", "p.Outer.", "p.Outer.Inner.field.x",
                                       "p.Inner", "q.r", "q",  "Outer",    "p..Outer"};
    struct buf b = make_set();
    struct bytes set = {buf_bytes(&b), buf_unread(&b)}, file;
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++) {
        ck_assert(descriptors_symbol(set, here[i], &file));
        ck_assert_uint_eq(file.at[2], 'c');
    }
    for (size_t i = 0; i < sizeof lost / sizeof lost[0]; i++) {
        ck_assert_msg(!descriptors_symbol(set, lost[i], &file), "%s", lost[i]);
    }
    buf_free(&b);
}
END_TEST

/* In memory of exactly that size, so that the sanitizer sees a byte too many. */
START_TEST(cut_anywhere) {
    struct buf b = make_set();
    for (size_t n = 0; n < buf_unread(&b); n++) {
        uint8_t *copy = malloc(n ? n : 1);
        struct bytes set = {copy, n}, file, files[8];
        memcpy(copy, buf_bytes(&b), n);
        ck_assert(!descriptors_symbol(set, "p.Outer.Inner.field", &file));
        if (descriptors_file(set, "a", &file)) {
            ck_assert_uint_le(descriptors_with_imports(set, file, 8, files), 2);
        }
        free(copy);
    }
    buf_free(&b);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("descriptors");
    TCase *t = tcase_create("descriptors");
    tcase_add_test(t, imports);
    tcase_add_test(t, symbols);
    tcase_add_test(t, cut_anywhere);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
