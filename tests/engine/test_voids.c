/* Attempts that are voided after any number of calls, learned of by each rank in its own time, and
 * redone: the bits are those of the undisturbed run, and none of the void gradients (a million
 * times as large) is ever seen. */
#include <time.h>

#include "tests/base/seed.h"
#include "tests/base/suite.h"
#include "world.h"

enum { STRATEGIES = 6 };
static const enum strategy strategies[STRATEGIES] = {STRATEGY_DDP,          STRATEGY_ZERO1,
                                                     STRATEGY_ZERO2,        STRATEGY_ZERO3,
                                                     STRATEGY_HYBRID_SHARD, STRATEGY_HYBRID_ZERO2};

static struct world *up(int i, unsigned ranks) {
    bool hybrid = i % STRATEGIES >= 4;
    struct config c = {.ranks = hybrid ? 4 : ranks,
                       .threads = 1,
                       .absent = i % 5 == 0,
                       .model = {.strategy = strategies[i % STRATEGIES],
                                 .shard_size = hybrid ? 2 : 0,
                                 .param = i % 2 ? DTYPE_BF16 : DTYPE_FP32,
                                 .micro_batches = 1 + (uint32_t)i / 3 % 2,
                                 .shape = i % 5 ? SHAPE_SMALL : SHAPE_RICH},
                       .slots = {1 + (uint32_t)i / 3 % 2, 1 + (uint32_t)i / 6 % 2},
                       .seed = test_seed("voids") * 64 + (uint64_t)i};
    return world_up(&c);
}

static void down(struct world *w) {
    ck_assert_msg(world_hash(w) == reference_hash(&w->ref), "seed %lu", (unsigned long)w->c.seed);
    world_down(w);
}

START_TEST(a_load_is_voided) {
    struct world *w = up(_i, 3);
    w->voids = 2;
    w->void_after = 1 + (unsigned)_i * 2;
    world_load(w);
    world_steps(w, 1);
    down(w);
}
END_TEST

START_TEST(an_attempt_is_voided_anywhere) {
    struct world *w = up(_i, 2 + (unsigned)_i % 2);
    world_load(w);
    for (unsigned after = 1; after < 100; after += 1 + after / 16) {
        w->voids = 1 + after % 2;
        w->void_after = after;
        world_steps(w, 1);
    }
    down(w);
}
END_TEST

START_TEST(a_trainer_dies_anywhere) {
    struct world *w = up(_i, 3);
    w->reattach = true;
    world_load(w);
    for (unsigned after = 1; after < 90; after += 5) {
        w->voids = 1 + after % 2;
        w->void_after = after;
        world_steps(w, 1);
    }
    down(w);
}
END_TEST

/* A slot of another try or another attachment is not summed, however ready it looks. */
START_TEST(stale_tags_wait) {
    struct world *w = up(3, 2);
    struct trainer *a = &w->trainers[0], *b = &w->trainers[1];
    world_load(w);
    world_steps(w, 1);
    world_open(w);
    for (unsigned i = 0; i < 2000 && b->reduces < 1; i++) {
        world_move(w, 1); /* rank 1 publishes its first gradient; rank 0 does nothing */
    }
    ck_assert_uint_eq(b->reduces, 1);
    engine_cancel(a->e, &a->fence);
    const struct fence next = {w->generation, w->step, 2};
    engine_open(a->e, &next);
    a->fence = next;
    a->gathered = a->granted = 0;
    engine_enter(a->e);
    for (unsigned i = 0; i < 2000 && a->reduces < 1; i++) {
        world_move(w, 0);
    }
    ck_assert_uint_eq(a->reduces,
                      1); /* same sequence, slot and unit as rank 1's, another attempt */
    const struct timespec t = {.tv_nsec = 50 * 1000 * 1000};
    nanosleep(&t, NULL);
    engine_events(a->e);
    struct engine_status s;
    engine_status(b->e, &s);
    struct traffic step = layout_traffic(&w->layout);
    ck_assert_uint_eq(s.sent.reduce_scatter_bytes, step.reduce_scatter_bytes); /* of step 1 only */
    world_down(w);
}
END_TEST

int main(void) {
    Suite *s = suite_create("voids");
    TCase *c = tcase_create("voids");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, a_load_is_voided, 0, 12);
    tcase_add_loop_test(c, an_attempt_is_voided_anywhere, 0, 12);
    tcase_add_loop_test(c, a_trainer_dies_anywhere, 0, 12);
    tcase_add_test(c, stale_tags_wait);
    suite_add_tcase(s, c);
    return run_suite(s);
}
