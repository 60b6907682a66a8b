#include "tests/base/suite.h"
#include "tests/kernels/data.h"

START_TEST(names_what_it_selects) {
    const struct kernels *list[3], *k;
    struct err e;
    size_t n = data_sets(list);
    ck_assert_str_eq(list[0]->isa, "plain");
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(kernels_select(list[i]->isa, &k, &e), 0);
        ck_assert_ptr_eq(k, list[i]);
    }
}
END_TEST

START_TEST(takes_the_environment_then_the_best) {
    const struct kernels *list[3], *k;
    size_t n = kernels_available(list);
    struct err e;
    setenv("ZEROD_ISA", "plain", 1);
    ck_assert_int_eq(kernels_select(NULL, &k, &e), 0);
    ck_assert_ptr_eq(k, list[0]);
    ck_assert_int_eq(kernels_select("", &k, &e), 0);
    ck_assert_ptr_eq(k, list[0]);
    setenv("ZEROD_ISA", "", 1);
    ck_assert_int_eq(kernels_select(NULL, &k, &e), 0);
    ck_assert_ptr_eq(k, list[n - 1]);
    unsetenv("ZEROD_ISA");
    ck_assert_int_eq(kernels_select(NULL, &k, &e), 0);
    ck_assert_ptr_eq(k, list[n - 1]);
    setenv("ZEROD_ISA", "mmx", 1);
    ck_assert_int_eq(kernels_select(NULL, &k, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "instruction set \"mmx\": known are plain, avx2 and avx512");
    ck_assert_int_eq(kernels_select("plain", &k, &e), 0); /* a name beats the environment */
    ck_assert_ptr_eq(k, list[0]);
}
END_TEST

START_TEST(says_what_the_cpu_lacks) {
    const struct kernels *list[3], *k = NULL;
    struct err e;
    static const char *const names[] = {"plain", "avx2", "avx512"};
    for (size_t i = kernels_available(list); i < 3; i++) {
        ck_assert_int_eq(kernels_select(names[i], &k, &e), -ST_FAILED_PRECONDITION);
        ck_assert_ptr_nonnull(strstr(e.text, names[i]));
        ck_assert_ptr_null(k);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("select");
    TCase *t = tcase_create("all");
    tcase_add_test(t, names_what_it_selects);
    tcase_add_test(t, takes_the_environment_then_the_best);
    tcase_add_test(t, says_what_the_cpu_lacks);
    suite_add_tcase(s, t);
    return run_suite(s);
}
