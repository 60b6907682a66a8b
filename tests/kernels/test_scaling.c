/* The loss scale: growth, hysteresis, floor, and the two published schemes that it can be. */
#include <math.h>
#include <string.h>

#include "kernels/scalars.h"
#include "tests/base/suite.h"
#include "tests/kernels/data.h"

static struct loss_scaling checked(struct loss_scaling s) {
    struct err e;
    ck_assert_msg(scaling_check(&s, &e) == 0, "%s", e.text);
    return s;
}

START_TEST(zeros_mean_the_defaults) {
    const struct loss_scaling s = checked((struct loss_scaling){.dynamic = true});
    ck_assert(s.start == 65536 && s.factor == 2 && s.floor == 1);
    ck_assert(s.window == 1000 && s.hysteresis == 2);
    const struct scale_state at = scaling_start(&s);
    ck_assert(at.scale == 65536 && at.good == 0 && at.hysteresis == 2);
}
END_TEST

START_TEST(a_constant_scale_stays) {
    const struct loss_scaling none = checked((struct loss_scaling){0});
    struct scale_state at = scaling_start(&none);
    ck_assert(at.scale == 1);
    const struct loss_scaling s = checked((struct loss_scaling){.start = 0.5});
    at = scaling_start(&s);
    const struct scale_state first = at;
    for (int i = 0; i < 5000; i++) {
        ck_assert(scaling_next(&s, i % 3 == 0, &at));
    }
    ck_assert(at.scale == first.scale && at.scale == 0.5);
    ck_assert(at.good == first.good && at.hysteresis == first.hysteresis);
}
END_TEST

START_TEST(window_good_steps_in_a_row_double) {
    const struct loss_scaling s = checked((struct loss_scaling){.dynamic = true, .window = 3});
    struct scale_state at = scaling_start(&s);
    static const bool overflow[] = {false, false, true, false, false, false, true, true, true};
    static const double scale[] = {65536, 65536, 65536, 65536, 65536, 131072, 131072, 65536, 32768};
    static const uint32_t borne[] = {2, 2, 1, 1, 1, 2, 1, 1, 1};
    for (size_t i = 0; i < sizeof scale / sizeof scale[0]; i++) {
        ck_assert(scaling_next(&s, overflow[i], &at));
        ck_assert_double_eq(at.scale, scale[i]);
        ck_assert_uint_eq(at.hysteresis, borne[i]);
    }
}
END_TEST

START_TEST(floor_is_an_error) {
    const struct loss_scaling s = checked(
        (struct loss_scaling){.dynamic = true, .start = 10, .factor = 3, .floor = 2, .window = 2});
    struct scale_state at = scaling_start(&s);
    ck_assert(scaling_next(&s, true, &at)); /* borne */
    ck_assert(scaling_next(&s, true, &at));
    ck_assert_double_eq(at.scale, 10.0 / 3);
    ck_assert(scaling_next(&s, true, &at));
    ck_assert_double_eq(at.scale, 2); /* not 10 / 9 */
    ck_assert(scaling_next(&s, false, &at));
    const struct scale_state before = at;
    ck_assert(!scaling_next(&s, true, &at));
    ck_assert(at.scale == before.scale && at.good == 1 && at.hysteresis == before.hysteresis);
    ck_assert(scaling_next(&s, false, &at)); /* the second good one: up, and one is borne again */
    ck_assert(at.scale == 6 && at.hysteresis == 2);
    ck_assert(scaling_next(&s, true, &at) && at.scale == 6);
}
END_TEST

/* Trainers multiply an fp32 loss. */
START_TEST(growth_ends_where_fp32_does) {
    const struct loss_scaling s =
        checked((struct loss_scaling){.dynamic = true, .start = 0x1p126, .window = 1});
    struct scale_state at = scaling_start(&s);
    for (int i = 0; i < 5; i++) {
        ck_assert(scaling_next(&s, false, &at));
        ck_assert_double_eq(at.scale, 0x1p127);
    }
}
END_TEST

/* PyTorch's GradScaler as documented: found_inf: scale *= backoff, tracker = 0; else tracker += 1,
 * at the interval scale *= growth, tracker = 0. */
START_TEST(hysteresis_1_is_gradscaler) {
    const struct loss_scaling s = checked(
        (struct loss_scaling){.dynamic = true, .window = 5, .hysteresis = 1, .floor = 0x1p-100});
    struct scale_state at = scaling_start(&s);
    double scale = 65536;
    unsigned tracker = 0;
    data_seed("gradscaler");
    for (int i = 0; i < 10000; i++) {
        const bool inf = data_bits() % 16 == 0;
        tracker = inf ? 0 : tracker + 1;
        scale = inf ? scale * 0.5 : tracker == 5 ? scale * 2 : scale;
        tracker %= 5;
        scale = fmin(scale, 0x1p127);
        ck_assert(scaling_next(&s, inf, &at));
        if (at.scale != scale || at.good != tracker) {
            ck_abort_msg("step %d: scale %a, not %a", i, at.scale, scale);
        }
    }
}
END_TEST

/* DeepSpeed's dynamic scale with its defaults: a clean step i with i - last overflow a multiple of
 * the window grows. DeepSpeed starts one later (it needs window + 1 clean steps), we do not. */
START_TEST(hysteresis_2_is_deepspeed) {
    enum { WINDOW = 7 };
    const struct loss_scaling s =
        checked((struct loss_scaling){.dynamic = true, .window = WINDOW, .floor = 0x1p-100});
    struct scale_state at = scaling_start(&s);
    double scale = 65536;
    int last = 0, hysteresis = 2;
    data_seed("deepspeed");
    for (int i = 1; i < 10000; i++) {
        const bool inf = data_bits() % 24 == 0;
        if (inf && hysteresis == 1) {
            scale /= 2;
        } else if (inf) {
            hysteresis--;
        } else if ((i - last) % WINDOW == 0) {
            hysteresis = 2;
            scale = fmin(scale * 2, 0x1p127);
        }
        last = inf ? i : last;
        ck_assert(scaling_next(&s, inf, &at));
        if (at.scale != scale || at.hysteresis != (uint32_t)hysteresis) {
            ck_abort_msg("step %d: scale %a, not %a", i, at.scale, scale);
        }
    }
}
END_TEST

static void refused(struct loss_scaling s, const char *text) {
    struct err e;
    ck_assert_int_eq(scaling_check(&s, &e), -ST_INVALID_ARGUMENT);
    ck_assert_msg(strstr(e.text, text) != NULL, "\"%s\" lacks \"%s\"", e.text, text);
}

#define WITH(...) ((struct loss_scaling){.dynamic = true, __VA_ARGS__})

START_TEST(what_is_refused) {
    refused(WITH(.start = -1), "start is -1");
    refused(WITH(.start = (double)NAN), "start is nan");
    refused(WITH(.start = 1e39), "start is 1e+39, it must be above 0 and fit fp32");
    refused(WITH(.floor = 65537),
            "floor is 65537, it must be above 0 and at most the start, 65536");
    refused(WITH(.floor = -2), "floor is -2");
    refused(WITH(.factor = 1), "factor is 1, it must be finite and above 1");
    refused(WITH(.factor = (double)INFINITY), "factor is inf");
    refused((struct loss_scaling){.start = (double)INFINITY}, "start is inf");
}
END_TEST

int main(void) {
    Suite *s = suite_create("scaling");
    TCase *t = tcase_create("all");
    tcase_add_test(t, zeros_mean_the_defaults);
    tcase_add_test(t, a_constant_scale_stays);
    tcase_add_test(t, window_good_steps_in_a_row_double);
    tcase_add_test(t, floor_is_an_error);
    tcase_add_test(t, growth_ends_where_fp32_does);
    tcase_add_test(t, hysteresis_1_is_gradscaler);
    tcase_add_test(t, hysteresis_2_is_deepspeed);
    tcase_add_test(t, what_is_refused);
    suite_add_tcase(s, t);
    return run_suite(s);
}
