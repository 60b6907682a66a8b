#include "tests/base/suite.h"
#include "tests/kernels/data.h"

/* The header's order, lane by lane; the tree as its definition by recursion: a lane's total at some
 * width is its own plus that of the lane |width| further on, both at twice the width. */
static double lane_sum(const float *x, size_t n, size_t lane) {
    volatile double total = 0;
    for (size_t i = lane; i < n; i += 256) {
        volatile double square = (double)x[i] * (double)x[i];
        total = total + square;
    }
    return total;
}

static double tree(const float *x, size_t n, size_t lane, size_t width) {
    if (width == 256) {
        return lane_sum(x, n, lane);
    }
    return tree(x, n, lane, 2 * width) + tree(x, n, lane + width, 2 * width);
}

static void same(const char *isa, size_t n, double got, double expected) {
    ck_assert_msg(!memcmp(&got, &expected, sizeof got) || (isnan(got) && isnan(expected)),
                  "%s: %zu elements: %a, not %a", isa, n, got, expected);
}

static size_t length(size_t i) {
    static const size_t more[] = {NORM_BLOCK - 257, NORM_BLOCK - 1, NORM_BLOCK};
    return i < LENGTHS ? data_length(i) : more[i - LENGTHS];
}

START_TEST(one_block) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    data_seed("sum_squares");
    for (size_t i = 0; i < LENGTHS + 3; i++) {
        size_t n = length(i);
        struct array x = array_new(n, i % 16);
        fill(x.at, n, data_plain);
        double expected = tree(x.at, n, 0, 1);
        uint64_t first = 0;
        for (size_t s = 0; s < sets; s++) {
            double got = list[s]->sum_squares(n, x.at);
            uint64_t bits;
            same(list[s]->isa, n, got, expected);
            if (n) { /* any bad element shows, and NaN has the same bits everywhere */
                float old = x.at[n / 2];
                x.at[n / 2] = s % 2 ? -INFINITY : float_of(0xFF800001u);
                got = list[s]->sum_squares(n, x.at);
                ck_assert(!isfinite(got));
                x.at[n / 2] = float_of(0xFFC12345u);
                x.at[0] = n / 2 ? NAN : x.at[0];
                got = list[s]->sum_squares(n, x.at);
                memcpy(&bits, &got, sizeof bits);
                ck_assert(isnan(got) && (s == 0 || bits == first));
                first = bits;
                fill(x.at, 1, data_plain);
                x.at[n / 2] = old;
                expected = tree(x.at, n, 0, 1);
            }
        }
        free(x.base);
    }
}
END_TEST

START_TEST(large_and_tiny_values_stay_exact) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    float x[2] = {0x1.fffffep127f, 0x1p-149f};
    for (size_t s = 0; s < sets; s++) {
        ck_assert_double_eq(list[s]->sum_squares(1, x), 0x1.fffffep127 * 0x1.fffffep127);
        ck_assert_double_eq(list[s]->sum_squares(1, x + 1), 0x1p-298);
    }
}
END_TEST

START_TEST(blocks_in_order) {
    const struct kernels *list[3];
    size_t sets = data_sets(list), n = 3 * NORM_BLOCK + 77;
    data_seed("norm");
    float *x = mem_zeroed(n, sizeof *x);
    fill(x, n, data_plain);
    double expected = 0;
    for (size_t at = 0; at < n; at += NORM_BLOCK) {
        expected += tree(x + at, n - at < NORM_BLOCK ? n - at : NORM_BLOCK, 0, 1);
    }
    for (size_t s = 0; s < sets; s++) {
        same(list[s]->isa, n, kernels_norm(list[s], n, x), expected);
        same(list[s]->isa, 0, kernels_norm(list[s], 0, x), 0);
    }
    free(x);
}
END_TEST

int main(void) {
    Suite *s = suite_create("norm");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, one_block);
    tcase_add_test(t, large_and_tiny_values_stay_exact);
    tcase_add_test(t, blocks_in_order);
    suite_add_tcase(s, t);
    return run_suite(s);
}
