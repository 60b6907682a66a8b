#include "tests/base/suite.h"
#include "tests/kernels/data.h"

START_TEST(is_the_sum_of_its_elements) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    data_seed("hash");
    for (size_t i = 0; i < LENGTHS; i++) {
        size_t n = data_length(i), cut = n ? (size_t)(data_bits() % n) : 0;
        uint64_t first = data_bits(), expected = 0;
        struct array x = array_new(n, i % 16);
        fill(x.at, n, data_hostile);
        for (size_t j = n; j-- > 0;) {
            expected += hash_element(first + j, bits_of(x.at[j]));
        }
        for (size_t s = 0; s < sets; s++) {
            ck_assert_uint_eq(list[s]->hash(first, n, x.at), expected);
            ck_assert_uint_eq(list[s]->hash(first, cut, x.at) +
                                  list[s]->hash(first + cut, n - cut, x.at + cut),
                              expected);
        }
        free(x.base);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("hash");
    TCase *t = tcase_create("all");
    tcase_add_test(t, is_the_sum_of_its_elements);
    suite_add_tcase(s, t);
    return run_suite(s);
}
