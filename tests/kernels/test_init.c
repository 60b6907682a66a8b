/* First values: the same however the range is cut, in range, with the moments of their
 * distribution, and a few known ones, which must never change (jobs start from them). */
#include "kernels/init.h"
#include "tests/base/suite.h"
#include "tests/kernels/data.h"

#define UNIFORM_HASH UINT64_C(0x4B59DC086519894A) /* also computed in Python */
#define NORMAL_HASH UINT64_C(0x6227CF19268F80DF)  /* 19 of 2^20 are 1 ulp beside inv_cdf's */
enum { MANY = 1 << 20, SOME = 1000, KNOWN = 8 };

static void whole_and_pieces(void (*init)(uint64_t, uint64_t, size_t, double, double, float *)) {
    static float whole[SOME], pieces[SOME];
    const uint64_t seed = data_bits(), first = data_bits() >> 20;
    init(seed, first, SOME, -0.5, 0.25, whole);
    for (size_t at = 0; at < SOME;) {
        const size_t most = SOME - at, n = (size_t)(1 + data_bits() % 100);
        const size_t here = n < most ? n : most;
        init(seed, first + at, here, -0.5, 0.25, pieces + at);
        at += here;
    }
    same_bits("init", "element", SOME, pieces, whole);
    init(seed + 1, first, SOME, -0.5, 0.25, pieces);
    size_t same = 0;
    for (size_t i = 0; i < SOME; i++) {
        same += bits_of(pieces[i]) == bits_of(whole[i]);
    }
    ck_assert_uint_lt(same, 3); /* another seed, other values */
}

START_TEST(the_cut_does_not_matter) {
    data_seed("init");
    for (int i = 0; i < 20; i++) {
        whole_and_pieces(init_uniform);
        whole_and_pieces(init_normal);
    }
}
END_TEST

struct moments {
    double mean, deviation, skew, kurtosis, least, most, lag;
};

static struct moments moments_of(size_t n, const float *x) {
    struct moments m = {.least = (double)x[0], .most = (double)x[0]};
    for (size_t i = 0; i < n; i++) {
        m.mean += (double)x[i] / (double)n;
        m.least = fmin(m.least, (double)x[i]);
        m.most = fmax(m.most, (double)x[i]);
    }
    double power[5] = {0}, lag = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - m.mean;
        power[2] += d * d / (double)n;
        power[3] += d * d * d / (double)n;
        power[4] += d * d * d * d / (double)n;
        lag += i ? d * ((double)x[i - 1] - m.mean) / (double)n : 0;
    }
    m.deviation = sqrt(power[2]);
    m.skew = power[3] / (power[2] * m.deviation);
    m.kurtosis = power[4] / (power[2] * power[2]);
    m.lag = lag / power[2];
    return m;
}

/* Limits are 5 standard errors of n samples: 1/sqrt n for the mean and the correlation of
 * neighbours, 1/sqrt(2 n) for the deviation, sqrt(6/n), sqrt(24/n) for the higher ones. */
START_TEST(normal_has_its_moments) {
    float *x = mem_zeroed(MANY, sizeof *x);
    const double n = MANY;
    data_seed("normal");
    init_normal(data_bits(), data_bits() >> 20, MANY, 0, 1, x);
    const struct moments m = moments_of(MANY, x);
    ck_assert_double_lt(fabs(m.mean), 5 / sqrt(n));
    ck_assert_double_lt(fabs(m.deviation - 1), 5 / sqrt(2 * n));
    ck_assert_double_lt(fabs(m.skew), 5 * sqrt(6 / n));
    ck_assert_double_lt(fabs(m.kurtosis - 3), 5 * sqrt(24 / n));
    ck_assert_double_lt(fabs(m.lag), 5 / sqrt(n));
    ck_assert(m.least > -8.3 && m.most < 8.3 && m.least < -4 && m.most > 4);
    float shifted[SOME], plain[SOME];
    init_normal(7, 0, SOME, 3, 0.02, shifted);
    init_normal(7, 0, SOME, 0, 1, plain);
    for (size_t i = 0; i < SOME; i++) {
        ck_assert_double_eq_tol((double)shifted[i], 3 + 0.02 * (double)plain[i], 0x1p-22);
    }
    free(x);
}
END_TEST

/* The distribution itself: the share below z is erfc(-z / sqrt 2) / 2, within 5 standard errors. */
START_TEST(normal_is_normal) {
    float *x = mem_zeroed(MANY, sizeof *x);
    data_seed("normal quantiles");
    init_normal(data_bits(), 0, MANY, 0, 1, x);
    for (double z = -4; z <= 4; z += 0.25) {
        const double share = erfc(-z / sqrt(2)) / 2;
        size_t below = 0;
        for (size_t i = 0; i < MANY; i++) {
            below += (double)x[i] < z;
        }
        const double error = sqrt(share * (1 - share) * MANY);
        ck_assert_double_lt(fabs((double)below - share * MANY), 5 * error);
    }
    free(x);
}
END_TEST

START_TEST(uniform_fills_its_range) {
    float *x = mem_zeroed(MANY, sizeof *x);
    data_seed("uniform");
    init_uniform(data_bits(), data_bits() >> 20, MANY, -1, 3, x);
    const struct moments m = moments_of(MANY, x);
    ck_assert_double_lt(fabs(m.mean - 1), 5 * 4 / sqrt(12.0 * MANY));
    ck_assert_double_eq_tol(m.deviation, 4 / sqrt(12), 0.01);
    ck_assert_double_lt(fabs(m.lag), 5 / sqrt((double)MANY));
    ck_assert(m.least >= -1 && m.most < 3 && m.least < -0.9999 && m.most > 2.9999);
    free(x);
}
END_TEST

/* Ranges so narrow that rounding alone would reach the upper end. */
START_TEST(uniform_never_reaches_its_end) {
    static const double ends[][2] = {{1, 1 + 0x1p-22}, {-1 - 0x1p-22, -1}, {-0x1p-140, 0},
                                     {0, 0x1p-140},    {0.5, 1},           {0.1, 0.3}};
    static float x[4 * SOME];
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        init_uniform(i, 0, 4 * SOME, ends[i][0], ends[i][1], x);
        for (size_t j = 0; j < 4 * SOME; j++) {
            ck_assert_msg((double)x[j] < ends[i][1], "%a of [%a, %a)", (double)x[j], ends[i][0],
                          ends[i][1]);
            ck_assert((double)x[j] >= (double)(float)ends[i][0]);
        }
    }
    init_uniform(1, 0, 8, 2, 2, x); /* nothing in it: the number below */
    ck_assert(x[0] < 2 && (double)x[0] > 2 - 0x1p-22);
}
END_TEST

START_TEST(constant) {
    float x[5] = {0, 0, 0, 0, 9};
    init_constant(4, 0.1, x);
    ck_assert(x[0] == 0.1f && x[3] == 0.1f && x[4] == 9);
    init_constant(0, 1, x);
    ck_assert(x[0] == 0.1f);
}
END_TEST

/* Computed in Python, the normal ones with statistics.NormalDist.inv_cdf. */
START_TEST(known_values) {
    static const float normal[] = {0x1.2c741e0p-6f,  0x1.ea79080p-8f, -0x1.5fe80e0p-8f,
                                   -0x1.a0c55e0p-6f, 0x1.75cd2a0p-6f, 0x1.86c8c20p-5f,
                                   0x1.de9a020p-11f, 0x1.a4909e0p-7f};
    static const float uniform[] = {-0x1.d849280p-1f, 0x1.ff08d60p-4f,  0x1.75bdd40p-2f,
                                    -0x1.63c71e0p+0f, -0x1.3cf2ce0p+0f, -0x1.f2e38c0p+0f,
                                    0x1.c814e40p-1f,  -0x1.bf575e0p-2f};
    float x[KNOWN];
    const uint64_t seed = init_seed(42, 1000);
    ck_assert_uint_eq(seed, UINT64_C(0xAA2AE9B7C25B76DF));
    init_normal(seed, 5, KNOWN, 0, 0.02, x);
    same_bits("known", "normal", KNOWN, x, normal);
    init_uniform(seed, 5, KNOWN, -2, 1, x);
    same_bits("known", "uniform", KNOWN, x, uniform);
}
END_TEST

/* All bits of more of them, which every compiler and machine must get: the sum of hash_element. */
START_TEST(known_hashes) {
    float *x = mem_zeroed(MANY, sizeof *x);
    uint64_t sum[2] = {0};
    for (int kind = 0; kind < 2; kind++) {
        (kind ? init_normal : init_uniform)(42, 0, MANY, 0, 1, x);
        for (size_t i = 0; i < MANY; i++) {
            sum[kind] += hash_element(i, bits_of(x[i]));
        }
    }
    ck_assert_uint_eq(sum[0], UNIFORM_HASH);
    ck_assert_uint_eq(sum[1], NORMAL_HASH);
    free(x);
}
END_TEST

int main(void) {
    Suite *s = suite_create("init");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_cut_does_not_matter);
    tcase_add_test(t, normal_has_its_moments);
    tcase_add_test(t, normal_is_normal);
    tcase_add_test(t, uniform_fills_its_range);
    tcase_add_test(t, uniform_never_reaches_its_end);
    tcase_add_test(t, constant);
    tcase_add_test(t, known_values);
    tcase_add_test(t, known_hashes);
    suite_add_tcase(s, t);
    return run_suite(s);
}
