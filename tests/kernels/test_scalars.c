#include <math.h>

#include "kernels/scalars.h"
#include "tests/base/suite.h"

static const struct adamw_options options = {
    .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1};

START_TEST(bias_corrections) {
    for (uint64_t t = 1; t < 3000; t += t / 7 + 1) {
        struct step_scalars s = step_scalars(&options, 4, 1, 0, 1e-3, t);
        double step = -1e-3 / (1 - pow(0.9, (double)t));
        double root = 1 / sqrt(1 - pow(0.999, (double)t));
        ck_assert_float_eq_tol(s.step_size, (float)step, (float)fabs(step) * 2e-7f);
        ck_assert_float_eq_tol(s.inv_sqrt_c2, (float)root, (float)root * 2e-7f);
        ck_assert_float_eq(s.decay, (float)(-1e-3 * 0.1));
    }
}
END_TEST

START_TEST(far_steps_have_none) {
    struct step_scalars s = step_scalars(&options, 4, 1, 0, 0.5, UINT64_MAX);
    ck_assert_float_eq(s.step_size, -0.5f);
    ck_assert_float_eq(s.inv_sqrt_c2, 1);
}
END_TEST

/* The sum of squares is of the summed gradient, the norm of the averaged one. */
START_TEST(clipping) {
    struct step_scalars s = step_scalars(&options, 144, 4, 0, 1e-3, 1); /* norm 12 / 4 = 3 */
    ck_assert_double_eq(s.grad_norm, 3);
    ck_assert_float_eq(s.multiplier, 0.25f);
    s = step_scalars(&options, 144, 4, 3.5, 1e-3, 1); /* below the limit: none */
    ck_assert_float_eq(s.multiplier, 0.25f);
    s = step_scalars(&options, 144, 4, 1.5, 1e-3, 1);
    ck_assert_float_eq(s.multiplier, (float)(1.5 / (3 + 1e-6) / 4));
    s = step_scalars(&options, 0, 4, 1, 1e-3, 1);
    ck_assert_double_eq(s.grad_norm, 0);
    ck_assert_float_eq(s.multiplier, 0.25f);
}
END_TEST

START_TEST(a_bad_norm_shows) {
    struct step_scalars s = step_scalars(&options, INFINITY, 2, 1, 1e-3, 1);
    ck_assert(isinf(s.grad_norm));
    s = step_scalars(&options, NAN, 2, 1, 1e-3, 1);
    ck_assert(isnan(s.grad_norm));
    ck_assert_float_eq(s.multiplier, 0.5f);
}
END_TEST

START_TEST(numbers_of_a_tensor) {
    struct step_scalars s = step_scalars(&options, 144, 4, 1.5, 1e-3, 3);
    struct adamw a = adamw_numbers(&options, &s, 0.5f);
    ck_assert_float_eq(a.multiplier, s.multiplier);
    ck_assert_float_eq(a.beta2, 0.999f);
    ck_assert_float_eq(a.one_minus_b1, (float)(1 - 0.9)); /* 0.1 is 1 ulp off 1 - 0.9f */
    ck_assert_float_ne(a.one_minus_b1, 1 - 0.9f);
    ck_assert_float_eq(a.one_minus_b2, (float)(1 - 0.999));
    ck_assert_float_eq(a.epsilon, 1e-8f);
    ck_assert_float_eq(a.decay, s.decay * 0.5f);
    ck_assert_float_eq(a.step_size, s.step_size);
    ck_assert_float_eq(a.inv_sqrt_c2, s.inv_sqrt_c2);
    ck_assert_float_eq(adamw_numbers(&options, &s, 0).decay, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("scalars");
    TCase *t = tcase_create("all");
    tcase_add_test(t, bias_corrections);
    tcase_add_test(t, far_steps_have_none);
    tcase_add_test(t, clipping);
    tcase_add_test(t, a_bad_norm_shows);
    tcase_add_test(t, numbers_of_a_tensor);
    suite_add_tcase(s, t);
    return run_suite(s);
}
