/* What a trainer may ask when: wrong calls are refused in words and launch nothing, leases, eval
 * passes, held updates. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/suite.h"
#include "world.h"

static struct world *w;
static struct engine *e;

static void up_with(enum strategy s, uint32_t gather_slots, uint32_t micro_batches) {
    w = world_up(&(struct config){.ranks = 1,
                                  .threads = 1,
                                  .model = {.strategy = s, .micro_batches = micro_batches},
                                  .slots = {gather_slots, 1},
                                  .seed = 5});
    e = w->trainers[0].e;
}

static void up(void) {
    up_with(STRATEGY_ZERO3, 2, 2);
}

static void down(void) {
    world_down(w);
    w = NULL;
}

#define REFUSED(call, status, message)                                                             \
    do {                                                                                           \
        struct err err_ = {0};                                                                     \
        struct err *err = &err_;                                                                   \
        ck_assert_int_eq((call), -(status));                                                       \
        ck_assert_int_eq(err_.code, (status));                                                     \
        ck_assert_str_eq(err_.text, (message));                                                    \
    } while (0)

/* Until |n| gathers are reported. */
static void await_gathered(uint32_t n) {
    for (int i = 0; i < 50000 && w->trainers[0].gathered < n; i++) {
        engine_events(e);
        usleep(100);
    }
    ck_assert_uint_eq(w->trainers[0].gathered, n);
}

static void await_granted(uint32_t n) {
    for (int i = 0; i < 50000 && w->trainers[0].granted < n; i++) {
        engine_events(e);
        usleep(100);
    }
    ck_assert_uint_eq(w->trainers[0].granted, n);
}

static void borrow(uint64_t unit, uint32_t number) {
    ck_assert_int_eq(engine_gather(e, unit, NULL), 0);
    for (int i = 0; i < 50000 && w->trainers[0].gathered <= number; i++) {
        engine_events(e);
        usleep(100);
    }
    ck_assert_uint_gt(w->trainers[0].gathered, number);
}

START_TEST(outside_a_try) {
    up();
    REFUSED(engine_gather(e, 0, err), ST_FAILED_PRECONDITION, "gather: the trainer is in no try");
    REFUSED(engine_release(e, 0, err), ST_FAILED_PRECONDITION, "release: the trainer is in no try");
    REFUSED(engine_reduce(e, 0, err), ST_FAILED_PRECONDITION, "reduce: the trainer is in no try");
    REFUSED(engine_load(e, 0, err), ST_FAILED_PRECONDITION, "load: the trainer is in no try");
    REFUSED(engine_finish(e, err), ST_FAILED_PRECONDITION, "step: the trainer is in no try");
    engine_open(e, &(struct fence){1, 0, 1});
    REFUSED(engine_load(e, 0, err), ST_FAILED_PRECONDITION, "load: the trainer is in no try");
    down();
}
END_TEST

START_TEST(while_loading) {
    up();
    world_open(w);
    REFUSED(engine_gather(e, 1, err), ST_FAILED_PRECONDITION,
            "step 0: nothing is loaded yet, unit \"block0\" cannot be gathered");
    REFUSED(engine_reduce(e, 1, err), ST_FAILED_PRECONDITION,
            "step 0: nothing is loaded yet, unit \"block0\" cannot be reduced");
    REFUSED(engine_begin_eval(e, err), ST_FAILED_PRECONDITION,
            "step 0: nothing is loaded yet, there is nothing to evaluate");
    REFUSED(engine_load(e, 2, err), ST_FAILED_PRECONDITION,
            "step 0: units are loaded in their order, next is \"embedding\", the trainer loads "
            "\"block1\"");
    REFUSED(engine_load(e, 77, err), ST_INVALID_ARGUMENT,
            "load: there is no unit 77, the model has 5");
    await_granted(1);
    ck_assert_int_eq(engine_load(e, 0, NULL), 0);
    REFUSED(engine_load(e, 0, err), ST_ALREADY_EXISTS,
            "step 0: unit \"embedding\" was loaded already");
    REFUSED(engine_finish(e, err), ST_FAILED_PRECONDITION,
            "step 0: unit \"block0\" was not loaded");
    down();
}
END_TEST

/* Nothing is gathered for a step that may never come, until the trainer says that it will. */
START_TEST(prefetch_gathers_before_the_first_is_asked_for) {
    up();
    world_open(w);
    REFUSED(engine_prefetch(e, err), ST_FAILED_PRECONDITION,
            "step 0: nothing is loaded yet, unit \"embedding\" cannot be gathered");
    world_finish_step(w);
    world_open(w);
    usleep(20000);
    engine_events(e);
    ck_assert_uint_eq(w->trainers[0].gathered, 0);
    ck_assert_int_eq(engine_prefetch(e, NULL), 0);
    await_gathered(2);
    struct engine_status s;
    ck_assert_int_eq(engine_gather(e, 0, NULL), 0);
    engine_status(e, &s);
    ck_assert_uint_eq(s.gathers_ahead, 1); /* the step's first */
    down();
}
END_TEST

START_TEST(a_load_needs_a_slot) {
    up();
    world_open(w);
    await_granted(1);
    ck_assert_int_eq(engine_load(e, 0, NULL), 0);
    REFUSED(engine_load(e, 1, err), ST_FAILED_PRECONDITION,
            "step 0: load of \"block0\" without a gradient slot: the trainer was granted 1");
    down();
}
END_TEST

START_TEST(off_the_plan) {
    up();
    world_load(w);
    world_open(w);
    REFUSED(engine_gather(e, 1, err), ST_FAILED_PRECONDITION,
            "step 1, micro-batch 0, plan position 0: the plan \"train\" says gather "
            "\"embedding\", the trainer asked for gather \"block0\"");
    REFUSED(engine_reduce(e, 0, err), ST_FAILED_PRECONDITION,
            "step 1, micro-batch 0, plan position 6: the plan \"train\" says reduce \"head\", "
            "the trainer asked for reduce \"embedding\"");
    REFUSED(engine_release(e, 0, err), ST_INVALID_ARGUMENT,
            "step 1: release of \"embedding\", which the trainer does not hold");
    REFUSED(engine_load(e, 0, err), ST_FAILED_PRECONDITION,
            "step 1: unit \"embedding\" cannot be loaded, initial values are step 0's");
    REFUSED(engine_finish(e, err), ST_FAILED_PRECONDITION,
            "step 1, micro-batch 0, plan position 0: the plan \"train\" still expects gather "
            "\"embedding\"; not reduced: \"head\", \"empty\", \"block1\", \"block0\", "
            "\"embedding\"");
    borrow(0, 0);
    REFUSED(engine_finish(e, err), ST_FAILED_PRECONDITION,
            "step 1: the trainer ended it while unit \"embedding\" is still held");
    struct engine_status s;
    engine_status(e, &s);
    ck_assert_uint_eq(s.gathers, 1); /* nothing that was refused counted */
    down();
}
END_TEST

START_TEST(twice_in_a_micro_batch) {
    up();
    world_load(w);
    world_open(w);
    while (w->trainers[0].reduces < 5) {
        world_move(w, 0);
        if (w->trainers[0].reduces == 2) {
            await_granted(3);
            REFUSED(engine_reduce(e, 4, err), ST_ALREADY_EXISTS,
                    "step 1, micro-batch 0: unit \"head\" was reduced already");
        }
    }
    REFUSED(engine_reduce(e, 0, err), ST_FAILED_PRECONDITION,
            "step 1, micro-batch 1, plan position 6: the plan \"train\" says reduce \"head\", "
            "the trainer asked for reduce \"embedding\"");
    while (w->trainers[0].op < 30) {
        world_move(w, 0);
    }
    REFUSED(engine_gather(e, 0, err), ST_FAILED_PRECONDITION,
            "step 1: the plan \"train\" has no further gather, the trainer asked for gather "
            "\"embedding\"");
    REFUSED(engine_reduce(e, 0, err), ST_FAILED_PRECONDITION,
            "step 1: the plan \"train\" has no further reduce, the trainer asked for reduce "
            "\"embedding\"");
    ck_assert_int_eq(engine_finish(e, NULL), 0);
    world_finish_step(w);
    ck_assert_uint_eq(world_hash(w), reference_hash(&w->ref));
    down();
}
END_TEST

START_TEST(only_a_release_could_help) {
    up();
    world_load(w);
    world_open(w);
    borrow(0, 0);
    borrow(1, 1);
    REFUSED(engine_gather(e, 2, err), ST_RESOURCE_EXHAUSTED,
            "step 1: gather of \"block1\" could only be served by a release of the trainer's own: "
            "it holds all 2 gather slots, \"embedding\", \"block0\"");
    ck_assert_int_eq(engine_release(e, 0, NULL), 0);
    borrow(2, 2);
    ck_assert_int_eq(engine_release(e, 1, NULL), 0);
    ck_assert_int_eq(engine_release(e, 2, NULL), 0);
    REFUSED(engine_release(e, 2, err), ST_INVALID_ARGUMENT,
            "step 1: release of \"block1\", which the trainer does not hold");
    down();
}
END_TEST

/* Where replicas are lent, nothing is exhausted. */
START_TEST(a_whole_replica_may_be_held) {
    up_with(_i ? STRATEGY_ZERO2 : STRATEGY_DDP, 1, 1);
    world_load(w);
    world_open(w);
    for (uint32_t u = 0; u < 5; u++) {
        borrow(u, u);
    }
    ck_assert(reference_equal(&w->ref, 2, w->trainers[0].params + w->trainers[0].gather_offset[2]));
    for (uint32_t u = 0; u < 5; u++) {
        ck_assert_int_eq(engine_release(e, u, NULL), 0);
    }
    down();
}
END_TEST

START_TEST(an_eval_pass_changes_nothing) {
    up();
    world_load(w);
    world_steps(w, 1);
    world_open(w);
    struct trainer *t = &w->trainers[0];
    const uint32_t order[] = {0, 2, 1, 3, 4};
    REFUSED(engine_end_eval(e, err), ST_FAILED_PRECONDITION, "step 2: no eval pass to end");
    for (int pass = 0; pass < 2; pass++) {
        ck_assert_int_eq(engine_begin_eval(e, NULL), 0);
        t->gathered = 0;
        REFUSED(engine_gather(e, 1, err), ST_FAILED_PRECONDITION,
                "step 2, micro-batch 0, plan position 0: the plan \"eval\" says gather "
                "\"embedding\", the trainer asked for gather \"block0\"");
        REFUSED(engine_reduce(e, 4, err), ST_FAILED_PRECONDITION,
                "step 2: reduce of \"head\" within an eval pass");
        REFUSED(engine_begin_eval(e, err), ST_FAILED_PRECONDITION,
                "step 2: an eval pass begins before the try's first collective, and not within "
                "another");
        REFUSED(engine_finish(e, err), ST_FAILED_PRECONDITION,
                "step 2: the eval pass was not ended");
        for (uint32_t i = 0; i < 5; i++) {
            borrow(order[i], i);
            ck_assert(reference_equal(&w->ref, order[i], t->params + t->gather_offset[i]));
            if (i == 2) {
                REFUSED(engine_end_eval(e, err), ST_FAILED_PRECONDITION,
                        "step 2: the eval pass ended while unit \"block0\" is still held");
            }
            ck_assert_int_eq(engine_release(e, order[i], NULL), 0);
            if (i == 2) {
                REFUSED(engine_end_eval(e, err), ST_FAILED_PRECONDITION,
                        "step 2, micro-batch 0, plan position 3: the plan \"eval\" still expects "
                        "gather \"empty\"");
            }
        }
        ck_assert_int_eq(engine_end_eval(e, NULL), 0);
        t->gathered = 0;
    }
    struct engine_status s;
    engine_status(e, &s);
    ck_assert_uint_eq(s.eval_gathers, 10);
    world_finish_step(w);
    ck_assert_uint_eq(world_hash(w), reference_hash(&w->ref));
    world_open(w);
    borrow(0, 0);
    REFUSED(engine_begin_eval(e, err), ST_FAILED_PRECONDITION,
            "step 3: an eval pass begins before the try's first collective, and not within "
            "another");
    down();
}
END_TEST

START_TEST(a_void_try_reports_nothing) {
    up();
    world_load(w);
    world_open(w);
    borrow(0, 0);
    const struct fence old = w->trainers[0].fence;
    engine_cancel(e, &old);
    while (!engine_idle(e)) {
        usleep(100);
    }
    uint32_t reported = w->trainers[0].gathered;
    usleep(2000);
    engine_events(e);
    ck_assert_uint_eq(w->trainers[0].gathered, reported);
    REFUSED(engine_release(e, 0, err), ST_FAILED_PRECONDITION, "release: the trainer is in no try");
    engine_cancel(e, &old); /* again: nothing to do */
    w->trainers[0].gathered = w->trainers[0].granted = 0;
    w->trainers[0].fence.attempt = w->attempt = 2;
    engine_open(e, &w->trainers[0].fence);
    engine_enter(e);
    engine_cancel(e, &old); /* of another try */
    borrow(0, 0);
    await_gathered(2);
    down();
}
END_TEST

START_TEST(before_entering_all_is_quiet) {
    up();
    world_load(w);
    struct trainer *t = &w->trainers[0];
    t->fence = (struct fence){1, 1, 1};
    t->gathered = t->granted = 0;
    world_quiet(w);
    engine_open(e, &t->fence);
    usleep(5000);
    engine_events(e);
    ck_assert_uint_eq(t->gathered, 0);
    ck_assert_uint_eq(t->granted, 0);
    engine_enter(e); /* reports at once what is due */
    ck_assert_uint_eq(t->granted, 1);
    usleep(5000);
    engine_events(e);
    ck_assert_uint_eq(t->gathered, 0); /* a job that ends here has gathered nothing in vain */
    ck_assert_int_eq(engine_gather(e, 0, NULL), 0);
    await_gathered(2);
    down();
}
END_TEST

START_TEST(updates_can_be_held_back) {
    up();
    world_load(w);
    world_quiet(w);
    engine_hold_updates(e, true);
    world_steps(w, 1);
    usleep(5000);
    ck_assert(!engine_quiet(e));
    ck_assert(engine_idle(e));
    w->trainers[0].progressed = 0;
    world_open(w);
    ck_assert_int_eq(engine_gather(e, 0, NULL), 0);
    w->trainers[0].asked = true;
    usleep(5000);
    engine_events(e);
    ck_assert_uint_eq(w->trainers[0].gathered, 0); /* of step 2: wants version 1 */
    /* Nor is a gradient summed: the update still reads the last one. */
    memset(w->trainers[0].grads, 0, w->trainers[0].bytes[1]);
    ck_assert_int_eq(engine_reduce(e, 4, NULL), 0);
    usleep(5000);
    engine_events(e);
    ck_assert_uint_eq(w->trainers[0].granted, 1);
    engine_hold_updates(e, false);
    await_granted(2);
    await_gathered(2);
    world_quiet(w);
    engine_events(e);
    ck_assert_uint_gt(w->trainers[0].progressed, 0);
    ck_assert_uint_eq(world_hash(w), reference_hash(&w->ref));
    down();
}
END_TEST

int main(void) {
    Suite *s = suite_create("calls");
    TCase *c = tcase_create("calls");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, outside_a_try);
    tcase_add_test(c, while_loading);
    tcase_add_test(c, prefetch_gathers_before_the_first_is_asked_for);
    tcase_add_test(c, a_load_needs_a_slot);
    tcase_add_test(c, off_the_plan);
    tcase_add_test(c, twice_in_a_micro_batch);
    tcase_add_test(c, only_a_release_could_help);
    tcase_add_loop_test(c, a_whole_replica_may_be_held, 0, 2);
    tcase_add_test(c, an_eval_pass_changes_nothing);
    tcase_add_test(c, a_void_try_reports_nothing);
    tcase_add_test(c, before_entering_all_is_quiet);
    tcase_add_test(c, updates_can_be_held_back);
    suite_add_tcase(s, c);
    return run_suite(s);
}
