/* Optimizer constants and a step's numbers. */
#include <math.h>
#include <string.h>

#include "kernels/scalars.h"
#include "tests/base/suite.h"

static const struct optimizer_options options = {
    .kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1};

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
    struct update_numbers u = update_numbers(&options, &s, 0.5f, 1);
    ck_assert_float_eq(u.multiplier, s.multiplier);
    ck_assert_float_eq(u.beta2, 0.999f);
    ck_assert_float_eq(u.one_minus_b1, (float)(1 - 0.9)); /* 0.1 is 1 ulp off 1 - 0.9f */
    ck_assert_float_ne(u.one_minus_b1, 1 - 0.9f);
    ck_assert_float_eq(u.one_minus_b2, (float)(1 - 0.999));
    ck_assert_float_eq(u.epsilon, 1e-8f);
    ck_assert_float_eq(u.decay, s.decay * 0.5f);
    ck_assert_float_eq(u.l2, 0);
    ck_assert_float_eq(u.step_size, s.step_size);
    ck_assert_float_eq(u.inv_sqrt_c2, s.inv_sqrt_c2);
    ck_assert(!u.first && u.clip_value == 0);
    ck_assert_float_eq(update_numbers(&options, &s, 0, 1).decay, 0);
}
END_TEST

START_TEST(multipliers) {
    struct step_scalars s = step_scalars(&options, 144, 4, 1.5, 1e-3, 3);
    const struct update_numbers one = update_numbers(&options, &s, 1, 1);
    ck_assert_mem_eq(&one.decay, &s.decay, sizeof one.decay);
    ck_assert_mem_eq(&one.step_size, &s.step_size, sizeof one.step_size);
    const struct update_numbers u = update_numbers(&options, &s, 0.5f, 3);
    ck_assert_float_eq(u.decay, s.decay * 0.5f * 3);
    ck_assert_float_eq(u.step_size, s.step_size * 3);
    struct optimizer_options adam = options;
    adam.kind = OPTIMIZER_ADAM;
    s = step_scalars(&adam, 144, 4, 1.5, 1e-3, 3);
    const struct update_numbers a = update_numbers(&adam, &s, 0.5f, 3);
    ck_assert_float_eq(a.decay, 0);
    ck_assert_float_eq(a.l2, 0.1f * 0.5f); /* the gradient's, not the step's: no learning rate */
    ck_assert_float_eq(a.step_size, s.step_size * 3);
}
END_TEST

START_TEST(steps_of_each_optimizer) {
    struct optimizer_options o = options;
    o.kind = OPTIMIZER_ADAM;
    struct step_scalars s = step_scalars(&o, 4, 1, 0, 1e-3, 2);
    const struct step_scalars adamw = step_scalars(&options, 4, 1, 0, 1e-3, 2);
    ck_assert(s.decay == 0 && s.step_size == adamw.step_size && !s.first);
    ck_assert_float_eq(s.inv_sqrt_c2, adamw.inv_sqrt_c2);
    o.kind = OPTIMIZER_SGD;
    s = step_scalars(&o, 4, 1, 0, 1e-3, 1);
    ck_assert(s.decay == 0 && s.step_size == -1e-3f && s.inv_sqrt_c2 == 1 && s.first);
    o.kind = OPTIMIZER_LION;
    s = step_scalars(&o, 4, 1, 0, 1e-3, 2);
    ck_assert(s.decay == (float)(-1e-3 * 0.1) && s.step_size == -1e-3f && !s.first);
}
END_TEST

/* ---- constants ---- */

START_TEST(names_and_states) {
    static const struct {
        const char *name;
        unsigned states;
    } known[OPTIMIZERS] = {{"none", 0}, {"adamw", 2}, {"adam", 2}, {"sgd", 0}, {"lion", 1}};
    for (enum optimizer kind = OPTIMIZER_ADAMW; kind < OPTIMIZERS; kind++) {
        const struct optimizer_options o = {.kind = kind};
        ck_assert_str_eq(optimizer_name(kind), known[kind].name);
        ck_assert_int_eq(optimizer_parse(known[kind].name), kind);
        ck_assert_uint_eq(optimizer_states(&o), known[kind].states);
    }
    const struct optimizer_options momentum = {.kind = OPTIMIZER_SGD, .momentum = 0.9};
    ck_assert_uint_eq(optimizer_states(&momentum), 1);
    ck_assert_int_eq(optimizer_parse("none"), OPTIMIZER_NONE);
    ck_assert_int_eq(optimizer_parse("AdamW"), OPTIMIZER_NONE);
    ck_assert_str_eq(optimizer_name((enum optimizer)77), "none");
}
END_TEST

static void refused(struct optimizer_options o, const char *text) {
    struct err e;
    ck_assert_int_eq(optimizer_check(&o, &e), -ST_INVALID_ARGUMENT);
    ck_assert_msg(strstr(e.text, text) != NULL, "\"%s\" lacks \"%s\"", e.text, text);
}

#define WITH(k, ...) ((struct optimizer_options){.kind = OPTIMIZER_##k, .epsilon = 1, __VA_ARGS__})

START_TEST(constants_out_of_range) {
    struct err e;
    struct optimizer_options o = optimizer_defaults();
    ck_assert_int_eq(optimizer_check(&o, &e), 0);
    ck_assert(o.beta1 == 0.9 && o.beta2 == 0.95 && o.epsilon == 1e-8 && o.weight_decay == 0);
    o = (struct optimizer_options){.kind = OPTIMIZER_SGD, .beta1 = 7, .epsilon = -1};
    ck_assert_int_eq(optimizer_check(&o, &e), 0); /* what SGD has no use for */
    o = (struct optimizer_options){.kind = OPTIMIZER_LION, .beta1 = 0.9, .momentum = 5};
    ck_assert_int_eq(optimizer_check(&o, &e), 0);
    o = (struct optimizer_options){.kind = OPTIMIZER_SGD, .beta1 = (double)NAN};
    refused(o, "sgd: beta1 is nan, it must be finite"); /* two ranks' nan would never be equal */
    refused((struct optimizer_options){0}, "optimizer 0");
    refused(WITH(ADAMW, .beta1 = 1), "adamw: beta1 is 1, it must be in [0, 1)");
    refused(WITH(ADAMW, .beta2 = (double)NAN), "beta2 is nan");
    refused(((struct optimizer_options){.kind = OPTIMIZER_ADAM}),
            "adam: epsilon is 0, it must be above 0");
    refused(((struct optimizer_options){.kind = OPTIMIZER_ADAM, .epsilon = (double)INFINITY}),
            "epsilon is inf");
    refused(WITH(ADAMW, .weight_decay = -1), "weight decay is -1, it must not be negative");
    refused(WITH(ADAMW, .clip_value = (double)INFINITY), "clip value is inf");
    o = WITH(SGD, .momentum = 1);
    refused(o, "sgd: momentum is 1, it must be in [0, 1)");
    o.momentum = 1e-50;
    refused(o, "momentum is 1e-50, which is 0 in fp32");
    o.momentum = 0;
    o.nesterov = true;
    refused(o, "nesterov needs a momentum");
    refused(WITH(LION, .beta2 = 2), "lion: beta2 is 2");
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
    tcase_add_test(t, multipliers);
    tcase_add_test(t, steps_of_each_optimizer);
    tcase_add_test(t, names_and_states);
    tcase_add_test(t, constants_out_of_range);
    suite_add_tcase(s, t);
    return run_suite(s);
}
