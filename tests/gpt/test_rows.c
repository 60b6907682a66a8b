/* Rows in float: accuracy against libm in double, and the same bits from every instruction set. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "client/examples/gpt/rows.h"
#include "kernels/kernels.h"
#include "tests/base/suite.h"

enum { N = 7, C = 83, SEED = 99 }; /* odd sizes, so that tails are used */

static float uniform(uint64_t place, float width) {
    return ((float)(mix64(mix64(SEED) ^ place) >> 40) * 0x1p-23f - 1.0f) * width;
}

static const struct rows *best(void) {
    const struct kernels *list[3];
    const size_t n = kernels_available(list);
    return rows_select(list[n - 1]->isa);
}

START_TEST(exp_is_close) {
    double worst = 0;
    for (float x = -86.9f; x < 87.9f; x += 0.00123f) {
        float y;
        best()->exp(1, &x, &y);
        const double error = fabs((double)y / exp((double)x) - 1);
        worst = error > worst ? error : worst;
    }
    printf("exp: worst relative error %.2e\n", worst);
    ck_assert(worst < 2.5e-7);
    const float ends[] = {-1e30f, -INFINITY, 1e30f, INFINITY, NAN};
    float y[5];
    best()->exp(5, ends, y);
    ck_assert(y[0] > 0 && y[0] < 1e-37f && y[1] > 0 && y[1] < 1e-37f);
    ck_assert(isfinite(y[2]) && y[2] > 1e37f && isfinite(y[3]) && y[3] > 1e37f);
    ck_assert(isnan(y[4]));
}
END_TEST

START_TEST(gelu_is_close) {
    double worst = 0, worst_slope = 0;
    for (float x = -12; x < 12; x += 0.000371f) {
        const double u = sqrt(2 / M_PI) * ((double)x + 0.044715 * pow((double)x, 3));
        const double slope_u = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * (double)x * (double)x);
        const double want = 0.5 * (double)x * (1 + tanh(u));
        const double slope =
            0.5 * (1 + tanh(u)) + 0.5 * (double)x * (1 - tanh(u) * tanh(u)) * slope_u;
        float y, d = 1;
        best()->gelu(1, &x, &y);
        best()->gelu_back(1, &x, &d);
        const double scale = fabs((double)x) > 1 ? fabs((double)x) : 1;
        worst = fmax(worst, fabs((double)y - want) / scale);
        worst_slope = fmax(worst_slope, fabs((double)d - slope));
    }
    printf("gelu: worst error %.2e, of its slope %.2e\n", worst, worst_slope);
    ck_assert(worst < 1.2e-7);
    ck_assert(worst_slope < 5e-7);
}
END_TEST

START_TEST(softmax_is_causal) {
    float s[C * C];
    for (size_t i = 0; i < C * C; i++) {
        s[i] = uniform(i, 5);
    }
    best()->causal_softmax(C, s);
    for (size_t i = 0; i < C; i++) {
        double sum = 0;
        for (size_t j = 0; j < C; j++) {
            ck_assert(j <= i ? s[i * C + j] > 0 : s[i * C + j] == 0);
            sum += (double)s[i * C + j];
        }
        ck_assert(fabs(sum - 1) < 1e-6);
    }
}
END_TEST

/* Everything a table computes, hashed. */
static uint64_t hash_of(const struct rows *k) {
    static float a[C * C], b[C * C], w[C], d[C], e[C], m[C], r[C];
    uint8_t target[N];
    uint64_t h = 0;
    for (size_t i = 0; i < C * C; i++) {
        a[i] = uniform(i, 4);
        b[i] = 0;
    }
    for (size_t i = 0; i < C; i++) {
        w[i] = uniform(i + 100000, 1);
    }
    for (size_t i = 0; i < N; i++) {
        target[i] = (uint8_t)(mix64(i) % C);
    }
#define ADD(x, n)                                                                                  \
    for (size_t i = 0; i < (n); i++) {                                                             \
        uint32_t bits;                                                                             \
        memcpy(&bits, &(x)[i], 4);                                                                 \
        h = mix64(h ^ bits);                                                                       \
    }
    k->layernorm(N, C, a, w, w, b, m, r);
    ADD(b, N * C) ADD(m, N) ADD(r, N);
    k->layernorm_back(N, C, a, b, w, m, r, a + N * C, d, e);
    ADD(a + N * C, N * C) ADD(d, C) ADD(e, C);
    k->gelu(N * C, a, b);
    k->gelu_back(N * C, a, b + N * C);
    ADD(b, 2 * N * C);
    k->exp(N * C, a, b);
    ADD(b, N * C);
    const double loss = k->cross_entropy(N, C, target, 0.3f, b);
    ADD(b, N * C) ADD((const float *)&loss, 2);
    k->fill(N, C, w, a, b);
    k->add(N * C, a, b);
    k->column_sum(N, C, b, d);
    ADD(d, C);
    k->causal_softmax(C, a);
    memcpy(b, a, sizeof b);
    k->causal_softmax_back(C, a, b);
    ADD(a, C * C) ADD(b, C * C);
    return h;
}

START_TEST(every_set_gives_the_same_bits) {
    const struct kernels *list[3];
    const size_t n = kernels_available(list);
    const uint64_t plain = hash_of(rows_select("plain"));
    for (size_t i = 0; i < n; i++) {
        const struct rows *k = rows_select(list[i]->isa);
        ck_assert_ptr_nonnull(k);
        ck_assert_str_eq(k->isa, list[i]->isa);
        ck_assert_msg(hash_of(k) == plain, "%s differs from plain", k->isa);
        printf("rows: %s equals plain\n", k->isa);
    }
    ck_assert_ptr_null(rows_select("sse9"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("rows");
    TCase *t = tcase_create("rows");
    tcase_add_test(t, exp_is_close);
    tcase_add_test(t, gelu_is_close);
    tcase_add_test(t, softmax_is_causal);
    tcase_add_test(t, every_set_gives_the_same_bits);
    suite_add_tcase(s, t);
    return run_suite(s);
}
