#include "tests/base/suite.h"
#include "tests/kernels/data.h"

/* to[i] by the header's words, one element at a time. */
static float reference(size_t ranks, float *const *from, size_t i, enum sum_how how, float old) {
    volatile float total = from[0][i];
    for (size_t r = 1; r < ranks; r++) {
        total = total + from[r][i];
    }
    if (how == SUM_ADD) {
        total = old + total;
    }
    return isnan(total) ? NAN : total;
}

static const char *name_of(enum sum_how how) {
    return how == SUM_ADD ? "sum added" : how == SUM_STREAM ? "sum streamed" : "sum";
}

/* |shared|: |to| is that source; ranks or more: a range of its own. */
static void check_case(const struct kernels *k, size_t n, size_t ranks, size_t shared,
                       enum sum_how how, float (*source)(void)) {
    struct array in[KERNELS_MAX_RANKS], own = array_new(n, 5);
    float *from[KERNELS_MAX_RANKS];
    const float *sources[KERNELS_MAX_RANKS];
    float *expected = mem_zeroed(n, sizeof *expected);
    for (size_t r = 0; r < ranks; r++) {
        in[r] = array_new(n, (r * 7 + n) % 16);
        sources[r] = from[r] = in[r].at;
        fill(from[r], n, source);
    }
    fill(own.at, n, source);
    float *to = shared < ranks ? from[shared] : own.at;
    to[n] = 12345;
    for (size_t i = 0; i < n; i++) {
        expected[i] = reference(ranks, from, i, how, to[i]);
    }
    k->sum(n, ranks, sources, how, to);
    same_bits(k->isa, name_of(how), n, to, expected);
    ck_assert(to[n] == 12345);
    for (size_t r = 0; r < ranks; r++) {
        free(in[r].base);
    }
    free(own.base);
    free(expected);
}

START_TEST(every_number_of_ranks) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    data_seed("sum of 1 to 64 ranks");
    for (size_t ranks = 1; ranks <= KERNELS_MAX_RANKS; ranks++) {
        for (size_t s = 0; s < sets; s++) {
            for (enum sum_how how = SUM_SET; how <= SUM_STREAM; how++) {
                size_t n = (size_t)(data_bits() % 1100);
                check_case(list[s], n, ranks, ranks, how, data_hostile);
                check_case(list[s], n, ranks, ranks, how, data_plain);
                check_case(list[s], n, ranks, (size_t)(data_bits() % ranks), how, data_plain);
            }
        }
    }
}
END_TEST

START_TEST(every_length) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    data_seed("sum of every length");
    for (size_t i = 0; i < LENGTHS; i++) {
        for (size_t s = 0; s < sets; s++) {
            size_t ranks = 1 + i % 9;
            for (enum sum_how how = SUM_SET; how <= SUM_STREAM; how++) {
                check_case(list[s], data_length(i), ranks, ranks, how, data_hostile);
                check_case(list[s], data_length(i), ranks, i % ranks, how, data_hostile);
            }
        }
    }
}
END_TEST

/* The same numbers as bf16 and as fp32 have the same sum, so sum() is the reference. */
static void check_bf16(const struct kernels *k, size_t n, size_t ranks, enum sum_how how) {
    uint16_t *half[KERNELS_MAX_RANKS];
    const uint16_t *halves[KERNELS_MAX_RANKS];
    struct array wide[KERNELS_MAX_RANKS], to = array_new(n, 3), expected = array_new(n, 0);
    const float *wides[KERNELS_MAX_RANKS];
    for (size_t r = 0; r < ranks; r++) {
        const size_t shift = (r * 5 + n) % 32;
        half[r] = mem_zeroed(n + shift, sizeof *half[r]);
        halves[r] = half[r] + shift;
        wide[r] = array_new(n, 0);
        wides[r] = wide[r].at;
        for (size_t i = 0; i < n; i++) {
            half[r][shift + i] = (uint16_t)(bits_of(data_hostile()) >> 16);
            wide[r].at[i] = float_of((uint32_t)half[r][shift + i] << 16);
        }
    }
    fill(to.at, n, data_plain);
    memcpy(expected.at, to.at, n * sizeof *to.at);
    to.at[n] = 12345;
    k->sum(n, ranks, wides, how == SUM_ADD ? SUM_ADD : SUM_SET, expected.at);
    k->sum_bf16(n, ranks, halves, how, to.at);
    same_bits(k->isa, name_of(how), n, to.at, expected.at);
    ck_assert(to.at[n] == 12345);
    for (size_t r = 0; r < ranks; r++) {
        free(half[r]);
        free(wide[r].base);
    }
    free(to.base);
    free(expected.base);
}

START_TEST(bf16_is_widened) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    data_seed("sum of bf16");
    for (size_t i = 0; i < LENGTHS; i++) {
        for (size_t s = 0; s < sets; s++) {
            for (enum sum_how how = SUM_SET; how <= SUM_STREAM; how++) {
                check_bf16(list[s], data_length(i), 1 + i % 9, how);
                check_bf16(list[s], data_length(i) % 300, 1 + data_bits() % KERNELS_MAX_RANKS, how);
            }
        }
    }
}
END_TEST

/* 2^24 + 1 + 1: the order decides. */
START_TEST(order_is_rank_order) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    float big = 0x1p24f, one = 1, out;
    for (size_t s = 0; s < sets; s++) {
        list[s]->sum(1, 3, (const float *const[]){&big, &one, &one}, SUM_SET, &out);
        ck_assert_float_eq(out, 0x1p24f);
        list[s]->sum(1, 3, (const float *const[]){&one, &one, &big}, SUM_SET, &out);
        ck_assert_float_eq(out, 0x1p24f + 2);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("sum");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_number_of_ranks);
    tcase_add_test(t, every_length);
    tcase_add_test(t, bf16_is_widened);
    tcase_add_test(t, order_is_rank_order);
    suite_add_tcase(s, t);
    return run_suite(s);
}
