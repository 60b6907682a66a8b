/* Gathers run ahead of the trainer, unless they are told not to. */

#include "tests/base/suite.h"
#include "world.h"

/* A trainer that takes its time finds every gather but the step's first complete; where the machine
 * is busy with other things it may miss a few. */
START_TEST(gathers_run_ahead) {
    const enum strategy strategies[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2,
                                        STRATEGY_ZERO3};
    enum { STEPS = 4 };
    struct world *w =
        world_up(&(struct config){.ranks = 2,
                                  .threads = 1,
                                  .model = {.strategy = strategies[_i], .micro_batches = 2},
                                  .slots = {2, 2},
                                  .compute_us = 3000,
                                  .seed = 6});
    world_load(w);
    world_steps(w, STEPS);
    struct engine_status s;
    for (unsigned r = 0; r < 2; r++) {
        engine_status(w->trainers[r].e, &s);
        ck_assert_uint_eq(s.gathers, STEPS * 2 * 10);
        ck_assert_uint_ge(s.gathers_ahead, s.gathers - 4 * STEPS);
    }
    world_down(w);
}
END_TEST

START_TEST(on_demand_nothing_runs_ahead) {
    struct world *w =
        world_up(&(struct config){.ranks = 2,
                                  .threads = 1,
                                  .model = {.strategy = _i ? STRATEGY_ZERO2 : STRATEGY_ZERO3},
                                  .slots = {2, 2},
                                  .compute_us = 1000,
                                  .on_demand = true,
                                  .seed = 6});
    world_load(w);
    world_steps(w, 2);
    struct engine_status s;
    engine_status(w->trainers[0].e, &s);
    ck_assert_uint_eq(s.gathers, 2 * 10);
    ck_assert_uint_eq(s.gathers_ahead, 0);
    world_down(w);
}
END_TEST

int main(void) {
    Suite *s = suite_create("ahead");
    TCase *c = tcase_create("ahead");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, gathers_run_ahead, 0, 4);
    tcase_add_loop_test(c, on_demand_nothing_runs_ahead, 0, 2);
    suite_add_tcase(s, c);
    return run_suite(s);
}
