/* Loads and steps over strategies, dtypes, ranks, slots, threads, instruction sets, micro-batches:
 * always the reference's bits. */
#include <stdio.h>
#include <time.h>

#include "tests/base/seed.h"
#include "tests/base/suite.h"
#include "world.h"

enum { STRATEGIES = 6 };
static const enum strategy strategies[STRATEGIES] = {STRATEGY_DDP,          STRATEGY_ZERO1,
                                                     STRATEGY_ZERO2,        STRATEGY_ZERO3,
                                                     STRATEGY_HYBRID_SHARD, STRATEGY_HYBRID_ZERO2};

static uint64_t run(const struct config *c, unsigned steps) {
    struct world *w = world_up(c);
    world_load(w);
    world_steps(w, steps);
    uint64_t hash = world_hash(w);
    ck_assert_msg(hash == reference_hash(&w->ref),
                  "%s %s ranks %u threads %u slots %u %u K %u isa %s seed %lu",
                  strategy_name(c->model.strategy), dtype_name(c->model.param), c->ranks,
                  c->threads, c->slots.gather, c->slots.grad, c->model.micro_batches, c->isa,
                  (unsigned long)c->seed);
    world_down(w);
    return hash;
}

static struct config config_of(enum strategy s, unsigned ranks) {
    return (struct config){.ranks = ranks,
                           .threads = 1,
                           .model = {.strategy = s},
                           .slots = {2, 2},
                           .isa = "plain",
                           .seed = test_seed("steps") * 31 + ranks};
}

START_TEST(any_number_of_ranks) {
    struct config c = config_of(strategies[_i % STRATEGIES], (unsigned)_i / STRATEGIES + 1);
    if (c.ranks == 4 || c.ranks == 2) {
        c.model.param = DTYPE_BF16;
    }
    run(&c, 3);
}
END_TEST

START_TEST(equal_hashes) {
    const struct kernels *list[3];
    size_t isas = kernels_available(list);
    const uint32_t slots[] = {1, 2, 4};
    uint64_t first = 0;
    for (unsigned i = 0; i < 4 * 3 * 2 * 2; i++) {
        struct config c = config_of(strategies[i % 4], 4); /* no hybrid ones */
        c.slots = (struct slots){slots[i / 4 % 3], slots[(i / 4 + 1) % 3]};
        c.threads = 1 + i / 12 % 2;
        c.model.param = i / 24 ? DTYPE_BF16 : DTYPE_FP32;
        c.isa = list[(i + i / 4 + i / 12) % isas]->isa;
        c.on_demand = i % 5 == 0;
        uint64_t hash = run(&c, 2);
        first = i ? first : hash;
        ck_assert_uint_eq(hash, first);
    }
}
END_TEST

/* Long ranges, which several threads share. */
START_TEST(large_units) {
    const struct kernels *list[3];
    struct config c = config_of(strategies[_i % STRATEGIES], 2 + 2 * ((unsigned)_i % 2));
    c.model.shard_size = 2;
    c.isa = list[kernels_available(list) - 1]->isa;
    c.model.shape = SHAPE_LARGE;
    c.threads = 1 + (unsigned)_i / STRATEGIES * 2;
    c.model.param = _i < STRATEGIES ? DTYPE_BF16 : DTYPE_FP32;
    run(&c, 2);
}
END_TEST

START_TEST(micro_batches) {
    struct config c = config_of(strategies[_i % STRATEGIES], 3);
    c.model.micro_batches = 1 + (uint32_t)_i / STRATEGIES;
    c.slots = (struct slots){1, 1}; /* each slot is used again and again */
    run(&c, 3);
}
END_TEST

START_TEST(eight_ranks_with_one_slot) {
    struct config c = config_of(strategies[_i], 8);
    c.slots = (struct slots){1, 1};
    c.model.micro_batches = 2;
    c.model.shard_size = 4;
    run(&c, 3);
}
END_TEST

START_TEST(many_micro_batches) {
    struct config c = config_of(strategies[_i], 2);
    c.model.micro_batches = 128;
    c.model.kept = _i % 2 ? DTYPE_BF16 : DTYPE_FP32;
    run(&c, 1);
}
END_TEST

START_TEST(an_infinite_gradient_skips) {
    struct config c = config_of(strategies[_i], 3);
    struct world *w = world_up(&c);
    world_load(w);
    world_steps(w, 1);
    uint64_t before = world_hash(w);
    w->inf = true;
    world_steps(w, 1);
    ck_assert_uint_eq(world_hash(w), before);
    world_steps(w, 2);
    ck_assert_uint_eq(world_hash(w), reference_hash(&w->ref));
    world_down(w);
}
END_TEST

int main(void) {
    Suite *s = suite_create("steps");
    TCase *c = tcase_create("steps");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, any_number_of_ranks, 0, 4 * STRATEGIES);
    tcase_add_test(c, equal_hashes);
    tcase_add_loop_test(c, large_units, 0, 2 * STRATEGIES);
    tcase_add_loop_test(c, micro_batches, 0, 3 * STRATEGIES);
    tcase_add_loop_test(c, eight_ranks_with_one_slot, 0, STRATEGIES);
    tcase_add_loop_test(c, many_micro_batches, 0, STRATEGIES);
    tcase_add_loop_test(c, an_infinite_gradient_skips, 0, STRATEGIES);
    suite_add_tcase(s, c);
    return run_suite(s);
}
