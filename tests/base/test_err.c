#include <string.h>

#include "base/err.h"
#include "tests/base/suite.h"

START_TEST(sets_code_and_text) {
    struct err e;
    int rc = err_set(&e, ST_NOT_FOUND, "unit \"%s\" of rank %d", "head", 3);
    ck_assert_int_eq(rc, -5);
    ck_assert_int_eq(e.code, ST_NOT_FOUND);
    ck_assert_str_eq(e.text, "unit \"head\" of rank 3");
}
END_TEST

START_TEST(works_without_a_place) {
    ck_assert_int_eq(err_set(NULL, ST_DATA_LOSS, "nobody reads this"), -15);
}
END_TEST

START_TEST(cuts_long_texts) {
    struct err e;
    char text[2 * ERR_TEXT];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    err_set(&e, ST_INTERNAL, "%s", text);
    ck_assert_uint_eq(strlen(e.text), ERR_TEXT - 1);
}
END_TEST

START_TEST(names_every_code) {
    ck_assert_str_eq(status_name(0), "OK");
    ck_assert_str_eq(status_name(ST_FAILED_PRECONDITION), "FAILED_PRECONDITION");
    ck_assert_str_eq(status_name(16), "UNAUTHENTICATED");
    ck_assert_str_eq(status_name(17), "UNKNOWN");
    ck_assert_str_eq(status_name(-1), "UNKNOWN");
}
END_TEST

int main(void) {
    Suite *s = suite_create("err");
    TCase *t = tcase_create("all");
    tcase_add_test(t, sets_code_and_text);
    tcase_add_test(t, works_without_a_place);
    tcase_add_test(t, cuts_long_texts);
    tcase_add_test(t, names_every_code);
    suite_add_tcase(s, t);
    return run_suite(s);
}
