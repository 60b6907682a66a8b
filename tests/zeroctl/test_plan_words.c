/* Numbers as people write them. */
#include "tests/base/suite.h"
#include "tests/zeroctl/plan_fixture.h"

static uint64_t count(const char *text) {
    uint64_t n = 0;
    struct err e;
    return plan_parse_count(text, &n, &e) ? 0 : n;
}

static uint64_t bytes(const char *text) {
    uint64_t n = 0;
    struct err e;
    return plan_parse_bytes(text, &n, &e) ? 0 : n;
}

START_TEST(counts) {
    static const char *const wrong[] = {"",    "7x",   "-7",  "0",   "1e300", "nan", "inf",
                                        "0x7", " 7e9", "7 B", "1.5", "7e9e9", "18T", "b"};
    struct err e;
    uint64_t n;
    ck_assert_uint_eq(count("7e9"), UINT64_C(7000000000));
    ck_assert_uint_eq(count("7B"), UINT64_C(7000000000));
    ck_assert_uint_eq(count("1.5T"), UINT64_C(1500000000000));
    ck_assert_uint_eq(count("124M"), 124000000);
    ck_assert_uint_eq(count("124439808"), 124439808);
    ck_assert_uint_eq(count("17592186044416"), MODEL_MAX_ELEMENTS);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(count(wrong[i]) == 0, "%s", wrong[i]);
    }
    ck_assert_int_eq(plan_parse_count("many", &n, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "\"many\" is no number of parameters: write 7e9, 7B or 124M, whole "
                             "and at most 17592186044416");
}
END_TEST

START_TEST(sizes) {
    ck_assert_uint_eq(bytes("80GB"), UINT64_C(80000000000));
    ck_assert_uint_eq(bytes("80GiB"), UINT64_C(80) << 30);
    ck_assert_uint_eq(bytes("1.5TB"), UINT64_C(1500000000000));
    ck_assert_uint_eq(bytes("80e9"), UINT64_C(80000000000));
    ck_assert_uint_eq(bytes("512B"), 512);
    ck_assert_uint_eq(bytes("80"), 80);
    ck_assert_uint_eq(bytes("80Gb"), 0);
    ck_assert_uint_eq(bytes("GB"), 0);
    ck_assert_uint_eq(bytes("99999999TB"), 0);
}
END_TEST

START_TEST(groups_of_three) {
    char text[PLAN_NUMBER];
    ck_assert_str_eq(plan_count_text(0, text), "0");
    ck_assert_str_eq(plan_count_text(999, text), "999");
    ck_assert_str_eq(plan_count_text(1000, text), "1,000");
    ck_assert_str_eq(plan_count_text(UINT64_MAX, text), "18,446,744,073,709,551,615");
}
END_TEST

int main(void) {
    Suite *s = suite_create("zeroctl/plan_words");
    TCase *t = tcase_create("all");
    tcase_add_test(t, counts);
    tcase_add_test(t, sizes);
    tcase_add_test(t, groups_of_three);
    suite_add_tcase(s, t);
    return run_suite(s);
}
