#include "tests/base/suite.h"
#include "tests/kernels/data.h"

enum { GUARD = 128, MOST = 70000 };

static void check_case(const struct kernels *k, size_t bytes, size_t from_shift, size_t to_shift) {
    uint8_t *from = mem_zeroed(bytes + from_shift, 1);
    uint8_t *to = mem_zeroed(bytes + to_shift + 2 * GUARD, 1);
    uint8_t *start = to + GUARD + to_shift;
    memset(to, 0xEE, bytes + to_shift + 2 * GUARD);
    for (size_t i = 0; i < bytes; i++) {
        from[from_shift + i] = (uint8_t)data_bits();
    }
    k->copy(bytes, from + from_shift, start);
    ck_assert_msg(!bytes || !memcmp(start, from + from_shift, bytes),
                  "%s: %zu bytes, shifts %zu and %zu", k->isa, bytes, from_shift, to_shift);
    size_t bad = 0;
    for (size_t i = 0; i < GUARD; i++) {
        bad += start[-1 - (ptrdiff_t)i] != 0xEE;
        bad += start[bytes + i] != 0xEE;
    }
    ck_assert_msg(bad == 0, "%s: %zu bytes around %zu were written", k->isa, bad, bytes);
    free(from);
    free(to);
}

START_TEST(every_byte_and_no_other) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    data_seed("copy");
    for (size_t s = 0; s < sets; s++) {
        for (size_t bytes = 0; bytes <= 130; bytes++) {
            check_case(list[s], bytes, bytes % 7, bytes % 5);
        }
        for (size_t shift = 0; shift < 64; shift++) {
            check_case(list[s], 4095 + shift, shift, 63 - shift);
            check_case(list[s], 4096 + shift * 3, 0, shift);
            check_case(list[s], (size_t)(data_bits() % MOST), shift, (size_t)(data_bits() % 64));
        }
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("copy");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_byte_and_no_other);
    suite_add_tcase(s, t);
    return run_suite(s);
}
