#include "base/hash.h"
#include "tests/base/suite.h"

/* splitmix64 seeded with 1234567: its published first five numbers. */
START_TEST(is_splitmix64) {
    static const uint64_t known[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                     UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                     UINT64_C(16408922859458223821)};
    uint64_t state = 1234567;
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(mix64(state), known[i]);
        state += UINT64_C(0x9E3779B97F4A7C15);
    }
}
END_TEST

START_TEST(element_depends_on_place_and_bits) {
    uint64_t one = hash_element(7, 0x3F800000u);
    ck_assert_uint_eq(one, hash_element(7, 0x3F800000u));
    ck_assert_uint_ne(one, hash_element(8, 0x3F800000u));
    ck_assert_uint_ne(one, hash_element(7, 0x3F800001u));
    ck_assert_uint_ne(hash_element(7, 0), hash_element(7, 0x80000000u)); /* 0 and -0 */
}
END_TEST

int main(void) {
    Suite *s = suite_create("hash");
    TCase *t = tcase_create("all");
    tcase_add_test(t, is_splitmix64);
    tcase_add_test(t, element_depends_on_place_and_bits);
    suite_add_tcase(s, t);
    return run_suite(s);
}
