/* The decision as a function of the votes: sums in rank order, clipping, skips, and every way in
 * which ranks can disagree. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "job/decide.h"
#include "tests/base/suite.h"

static struct decide_options options = {
    .optimizer = {.kind = OPTIMIZER_ADAMW,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .epsilon = 1e-8,
                  .weight_decay = 0.1},
    .scaling = {.start = 1, .factor = 2, .floor = 1, .window = 1000, .hysteresis = 2},
    .max_skips_in_row = 2,
};

#define UNSCALED                                                                                   \
    { .scale = 1, .hysteresis = 2 }

static struct vote yes(uint64_t step, double squares) {
    return (struct vote){.fence = {3, step, 2},
                         .yes = true,
                         .sum_squares = squares,
                         .scalars = {.learning_rate = 0.01, .clip = 1, .micro_batches = 4},
                         .weight = 1};
}

static struct decision of(const struct vote *votes, size_t ranks, const struct decision *before,
                          struct err *e) {
    *e = (struct err){0};
    return decide(&options, votes, ranks, before, e);
}

START_TEST(sums_run_in_rank_order) {
    /* (1 + 1e-16) + 1e-16 is 1, the other order is more. */
    struct vote v[3] = {yes(1, 1), yes(1, 1e-16), yes(1, 1e-16)};
    for (int r = 0; r < 3; r++) {
        v[r].user_count = 2;
        v[r].user[0] = v[r].sum_squares;
        v[r].user[1] = r;
    }
    struct err e;
    const struct decision before = {
        .fence = {3, 0, 1}, .outcome = OUTCOME_COMMIT, .scale = UNSCALED};
    struct decision d = of(v, 3, &before, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_COMMIT);
    ck_assert(d.user[0] == 1 && d.user[1] == 3 && d.user_count == 2);
    ck_assert(d.scalars.grad_norm == 1.0 / 3);
    const struct vote first = v[0];
    v[0] = v[2];
    v[2] = first;
    d = of(v, 3, &before, &e);
    ck_assert(d.user[0] > 1);
}
END_TEST

START_TEST(commit_counts_t_and_clips) {
    struct vote v[2] = {yes(7, 30), yes(7, 70)};
    const struct decision before = {
        .fence = {2, 6, 1}, .outcome = OUTCOME_SKIP, .t = 4, .skips_in_row = 2, .scale = UNSCALED};
    struct err e;
    struct decision d = of(v, 2, &before, &e);
    ck_assert_uint_eq(d.t, 5);
    ck_assert_uint_eq(d.skips_in_row, 0);
    ck_assert(d.learning_rate == 0.01 && d.scale.scale == 1);
    ck_assert_mem_eq(&d.fence, &v[0].fence, sizeof d.fence);
    const struct step_scalars s = step_scalars(&options.optimizer, 100, 2, 1, 0.01, 5);
    ck_assert(d.scalars.multiplier == s.multiplier && d.scalars.decay == s.decay);
    ck_assert(d.scalars.step_size == s.step_size && d.scalars.inv_sqrt_c2 == s.inv_sqrt_c2);
    ck_assert(d.scalars.grad_norm == s.grad_norm && !d.scalars.first);
    ck_assert(d.scalars.grad_norm == 5); /* of the mean: sqrt(100) / 2 */
    ck_assert(fabs((double)d.scalars.multiplier - 0.1) < 1e-6);
}
END_TEST

START_TEST(weights_divide) {
    struct vote v[2] = {yes(7, 36), yes(7, 0)};
    v[0].weight = 2;
    v[1].weight = 0; /* means 1 */
    v[0].scalars.clip = v[1].scalars.clip = 0;
    struct err e;
    struct decision d = of(v, 2, NULL, &e);
    ck_assert(d.scalars.grad_norm == 2);
    ck_assert(d.scalars.multiplier == (float)(1.0 / 3));
    v[1].weight = -2;
    d = of(v, 2, NULL, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_ABORT);
    ck_assert(strstr(e.text, "weights add up to 0"));
}
END_TEST

START_TEST(not_finite_skips) {
    struct vote v[2] = {yes(7, 1), yes(7, 2)};
    const struct decision before = {
        .fence = {2, 6, 1}, .t = 4, .skips_in_row = 1, .scale = UNSCALED};
    struct err e;
    v[1].non_finite = true;
    struct decision d = of(v, 2, &before, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_SKIP);
    ck_assert(d.t == 4 && d.skips_in_row == 2);
    v[1].non_finite = false;
    v[0].sum_squares = 1e308;
    v[1].sum_squares = 1e308; /* only the sum is infinite */
    d = of(v, 2, &before, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_SKIP);
    v[0].sum_squares = (double)NAN;
    d = of(v, 2, &before, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_SKIP);
}
END_TEST

START_TEST(too_many_skips) {
    struct vote v[1] = {yes(7, (double)INFINITY)};
    const struct decision before = {
        .fence = {2, 6, 1}, .t = 4, .skips_in_row = 2, .scale = UNSCALED};
    struct err e;
    struct decision d = of(v, 1, &before, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_ABORT);
    ck_assert_int_eq(e.code, ST_FAILED_PRECONDITION);
    ck_assert_msg(strstr(e.text, "the limit is 2 in a row"), "%s", e.text);
}
END_TEST

/* ---- the loss scale ---- */

static const struct decide_options scaled = {
    .optimizer = {.kind = OPTIMIZER_SGD},
    .scaling =
        {.dynamic = true, .start = 64, .factor = 4, .floor = 8, .window = 2, .hysteresis = 2},
    .max_skips_in_row = 50,
};

static struct decision next(const struct decision *before, uint64_t step, double squares,
                            struct err *e) {
    struct vote v[2] = {yes(step, squares), yes(step, squares)};
    return decide(&scaled, v, 2, before, e);
}

START_TEST(gradients_are_unscaled_with_their_scale) {
    struct err e;
    const struct decision loaded = next(NULL, 0, 0, &e);
    ck_assert_int_eq(loaded.outcome, OUTCOME_COMMIT);
    ck_assert(loaded.scale.scale == 64 && loaded.scale.good == 0); /* step 0 has no gradients */
    const struct decision first = next(&loaded, 1, 2 * 64 * 64, &e);
    ck_assert(first.scalars.grad_norm == 1); /* sqrt(2 * 2) * 64, over 2 ranks and 64 */
    ck_assert(first.scalars.multiplier == (float)(1 / (1 + 1e-6) / 128) && first.scalars.first);
    ck_assert(first.scale.scale == 64 && first.scale.good == 1);
    const struct decision second = next(&first, 2, 2 * 64 * 64, &e);
    ck_assert(second.scalars.multiplier == first.scalars.multiplier); /* not with the new one */
    ck_assert(second.scale.scale == 256 && second.scale.good == 0 && !second.scalars.first);
    const struct decision third = next(&second, 3, 2 * 64 * 64, &e);
    ck_assert(third.scalars.grad_norm == 0.25);
}
END_TEST

/* pytorch's and DeepSpeed's rule, and deepspeed#7568: all ranks skip together, with one scale. */
START_TEST(overflow_lowers_the_scale_for_all) {
    struct err e;
    struct decision d = {
        .fence = {3, 6, 1}, .t = 5, .scale = {.scale = 64, .good = 1, .hysteresis = 2}};
    static const double scale[] = {64, 16, 8};
    for (uint64_t i = 0; i < 3; i++) {
        struct vote v[2] = {yes(7 + i, 1), yes(7 + i, 1)};
        v[1].non_finite = true;
        d = decide(&scaled, v, 2, &d, &e);
        ck_assert_int_eq(d.outcome, OUTCOME_SKIP);
        ck_assert(d.scale.scale == scale[i] && d.scale.good == 0 && d.scale.hysteresis == 1);
        ck_assert(d.t == 5 && d.skips_in_row == i + 1);
    }
}
END_TEST

START_TEST(floor_is_named_and_nothing_changes) {
    struct err e;
    const struct decision before = {
        .fence = {3, 6, 1}, .t = 5, .scale = {.scale = 8, .good = 1, .hysteresis = 1}};
    struct decision d = next(&before, 7, (double)INFINITY, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_ABORT);
    ck_assert_int_eq(e.code, ST_FAILED_PRECONDITION);
    ck_assert_msg(strstr(e.text, "step 7: the gradients are not finite, and the loss scale 8 is at "
                                 "its floor 8; the state is that of the last commit"),
                  "%s", e.text);
    d = next(&before, 7, 1, &e); /* tried again */
    ck_assert_int_eq(d.outcome, OUTCOME_COMMIT);
    ck_assert(d.t == 6 && d.scale.scale == 32);
}
END_TEST

START_TEST(a_constant_scale_only_divides) {
    struct decide_options o = options;
    o.scaling.start = 16;
    struct vote v[1] = {yes(0, 0)};
    struct err e;
    struct decision d = decide(&o, v, 1, NULL, &e);
    for (uint64_t step = 1; step < 10; step++) {
        v[0] = yes(step, step % 3 ? 64 : (double)NAN);
        d = decide(&o, v, 1, &d, &e);
        ck_assert_int_eq(d.outcome, step % 3 ? OUTCOME_COMMIT : OUTCOME_SKIP);
        ck_assert(d.scale.scale == 16 && (step % 3 == 0 || d.scalars.grad_norm == 0.5));
    }
}
END_TEST

START_TEST(a_registered_divisor) {
    struct decide_options o = options;
    o.gradient_divisor = 10;
    struct vote v[2] = {yes(7, 50), yes(7, 50)};
    v[0].weight = 3; /* counts for nothing then */
    const struct decision before = {.fence = {2, 6, 1}, .scale = {.scale = 4, .hysteresis = 2}};
    struct err e;
    struct decision d = decide(&o, v, 2, &before, &e);
    ck_assert(d.scalars.grad_norm == 0.25 && d.scalars.multiplier == 1.0f / 40);
}
END_TEST

START_TEST(a_scale_that_is_none) {
    struct err e;
    const struct decision before = {.fence = {3, 6, 1}, .t = 5}; /* of a peer, say */
    const struct decision d = next(&before, 7, 1, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_ABORT);
    ck_assert_msg(strstr(e.text, "the loss scale 0: that divides no sum"), "%s", e.text);
}
END_TEST

static void expect_named(struct vote *v, const char *what) {
    struct err e;
    struct decision d = of(v, 3, NULL, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_ABORT);
    ck_assert_int_eq(e.code, ST_FAILED_PRECONDITION);
    ck_assert_msg(strstr(e.text, what), "%s", e.text);
}

START_TEST(scalars_that_differ_are_named) {
    struct vote v[3] = {yes(7, 1), yes(7, 1), yes(7, 1)};
    v[2].scalars.learning_rate = 0.02;
    expect_named(v, "step 7: rank 2 gave learning rate 0.02, rank 0 gave 0.01");
    v[2].scalars.learning_rate = (double)NAN;
    expect_named(v, "rank 2 gave learning rate nan");
    v[2] = yes(7, 1);
    v[1].scalars.clip = 5;
    expect_named(v, "rank 1 gave clip 5, rank 0 gave 1");
    v[1] = yes(7, 1);
    v[1].scalars.micro_batches = 5;
    expect_named(v, "rank 1 gave micro-batches 5, rank 0 gave 4");
    v[1] = yes(7, 1);
    v[2].user_count = 1;
    expect_named(v, "rank 2 gave a number of user values 1");
    v[2] = yes(7, 1);
    v[0].scalars.learning_rate = (double)INFINITY;
    expect_named(v, "rank 0 gave learning rate inf");
}
END_TEST

START_TEST(loading_has_no_scalars) {
    struct vote v[3] = {yes(0, 0), yes(0, 0), yes(0, 0)};
    const uint64_t same[2] = {11, 22}, other[2] = {11, 23};
    for (int r = 0; r < 3; r++) {
        v[r].checksums = same;
        v[r].checksum_count = 2;
        v[r].checksum = 33;
    }
    struct err e;
    struct decision d = of(v, 3, NULL, &e);
    ck_assert_int_eq(d.outcome, OUTCOME_COMMIT);
    ck_assert_uint_eq(d.t, 0);
    ck_assert(d.scalars.multiplier == 0 && d.scalars.step_size == 0);
    v[2].checksums = other;
    v[2].checksum = 34;
    expect_named(v, "the initial values of unit 1 differ between rank 0 and rank 2");
    options.units = (const struct unit[]){{.name = "embedding"}, {.name = "block 0"}};
    options.unit_count = 2;
    expect_named(v, "the initial values of unit \"block 0\" differ between rank 0 and rank 2");
    options.unit_count = 1; /* no name for the second */
    expect_named(v, "the initial values of unit 1 differ between rank 0 and rank 2");
    v[1] = v[2];
    expect_named(v, "differ between rank 0 and rank 1 and 1 more");
    v[1] = v[0];
    v[2].checksum_count = 0; /* from a record: only the sum is left */
    expect_named(v, "the initial values differ between rank 0 and rank 2");
    v[2].checksum = 33; /* the lists name, they do not decide: a record has none */
    ck_assert_int_eq(of(v, 3, NULL, &e).outcome, OUTCOME_COMMIT);
    v[2] = v[1];
    v[1] = v[2];
    v[1].non_finite = true;
    expect_named(v, "the initial values of rank 1 are not all finite");
}
END_TEST

START_TEST(rank_0_gives_the_shared_cursor) {
    struct vote v[2] = {yes(1, 1), yes(1, 1)};
    v[0].shared_cursor = (const uint8_t *)"zero";
    v[0].shared_cursor_bytes = 4;
    v[1].shared_cursor = (const uint8_t *)"one";
    v[1].shared_cursor_bytes = 3;
    struct err e;
    struct decision d = of(v, 2, NULL, &e);
    ck_assert_uint_eq(d.shared_cursor_bytes, 4);
    ck_assert_mem_eq(d.shared_cursor, "zero", 4);
}
END_TEST

int main(void) {
    Suite *s = suite_create("decide");
    TCase *t = tcase_create("decide");
    tcase_add_test(t, sums_run_in_rank_order);
    tcase_add_test(t, commit_counts_t_and_clips);
    tcase_add_test(t, weights_divide);
    tcase_add_test(t, not_finite_skips);
    tcase_add_test(t, too_many_skips);
    tcase_add_test(t, gradients_are_unscaled_with_their_scale);
    tcase_add_test(t, overflow_lowers_the_scale_for_all);
    tcase_add_test(t, floor_is_named_and_nothing_changes);
    tcase_add_test(t, a_constant_scale_only_divides);
    tcase_add_test(t, a_registered_divisor);
    tcase_add_test(t, a_scale_that_is_none);
    tcase_add_test(t, scalars_that_differ_are_named);
    tcase_add_test(t, loading_has_no_scalars);
    tcase_add_test(t, rank_0_gives_the_shared_cursor);
    suite_add_tcase(s, t);
    return run_suite(s);
}
