/* What a tensor may be: frozen, of its own dtype, made by an initialiser, with multipliers of its
 * own, ignored, an alias; a unit that is reduced twice in a micro-batch, or left out. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/base/seed.h"
#include "tests/base/suite.h"
#include "world.h"

enum { STRATEGIES = 6 };
static const enum strategy strategies[STRATEGIES] = {STRATEGY_DDP,          STRATEGY_ZERO1,
                                                     STRATEGY_ZERO2,        STRATEGY_ZERO3,
                                                     STRATEGY_HYBRID_SHARD, STRATEGY_HYBRID_ZERO2};
static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_FP32, DTYPE_FP16};

static struct config config_of(int i, enum shape shape) {
    return (struct config){
        .ranks = 4,
        .threads = 1,
        .model = {.shape = shape,
                  .strategy = strategies[i % STRATEGIES],
                  .shard_size = 2,
                  .param = dtypes[i / STRATEGIES % 3]},
        .slots = {1 + (uint32_t)i % 3, 1 + (uint32_t)i / 3 % 3},
        .seed = test_seed("tensors") * 64 + (uint64_t)i,
    };
}

static void finish(struct world *w) {
    ck_assert_msg(world_hash(w) == reference_hash(&w->ref), "seed %lu", (unsigned long)w->c.seed);
    world_down(w);
}

START_TEST(all_kinds_of_tensors) {
    struct config c = config_of(_i, SHAPE_RICH);
    c.model.micro_batches = 1 + (uint32_t)_i % 2;
    struct world *w = world_up(&c);
    world_load(w);
    world_steps(w, 4);
    finish(w);
}
END_TEST

/* Units are left out by some ranks, in the third step by all; what is not reduced is not sent. */
START_TEST(absent_units_are_zeros) {
    enum { STEPS = 4 };
    struct config c = config_of(_i, SHAPE_RICH);
    c.absent = c.on_demand = true;
    c.model.micro_batches = 2;
    struct world *w = world_up(&c);
    struct traffic by[2];
    uint64_t less = 0;
    layout_traffic_by_group(&w->layout, by);
    world_load(w);
    world_steps(w, STEPS);
    world_quiet(w);
    for (unsigned r = 0; r < c.ranks; r++) {
        struct engine_status s;
        const struct traffic *missing = &w->missing[r], *sent = &s.sent_by_group[0];
        engine_status(w->trainers[r].e, &s);
        ck_assert_uint_eq(sent->reduce_scatter_elements + missing->reduce_scatter_elements,
                          STEPS * by[0].reduce_scatter_elements);
        ck_assert_uint_eq(sent->all_gather_elements + missing->all_gather_elements,
                          STEPS * by[0].all_gather_elements);
        ck_assert_uint_eq(s.sent_by_group[1].all_reduce_elements,
                          STEPS * by[1].all_reduce_elements);
        less += missing->reduce_scatter_elements;
    }
    ck_assert(less > 0 || w->layout.inner == 1);
    finish(w);
}
END_TEST

static void await_reduced(struct world *w) {
    for (unsigned r = 0; r < w->c.ranks; r++) {
        for (int i = 0; i < 50000 && !w->trainers[r].reduced; i++) {
            engine_events(w->trainers[r].e);
            usleep(100);
        }
        ck_assert(w->trainers[r].reduced);
    }
}

START_TEST(nothing_to_load_is_loaded_at_once) {
    struct config c = config_of(_i, SHAPE_MADE);
    struct world *w = world_up(&c);
    world_open(w);
    await_reduced(w); /* no trainer has moved */
    for (unsigned r = 0; r < c.ranks; r++) {
        ck_assert_uint_eq(w->trainers[r].granted, 0);
    }
    world_finish_step(w);
    world_steps(w, 2);
    finish(w);
}
END_TEST

START_TEST(nothing_is_trained) {
    struct config c = config_of(_i, SHAPE_FROZEN);
    struct world *w = world_up(&c);
    world_load(w);
    uint64_t before = world_hash(w);
    world_open(w);
    await_reduced(w);
    ck_assert(w->trainers[0].sum_squares == 0);
    world_finish_step(w);
    world_steps(w, 1);
    ck_assert_uint_eq(world_hash(w), before);
    finish(w);
}
END_TEST

#define REFUSED(call, status, message)                                                             \
    do {                                                                                           \
        struct err err = {0};                                                                      \
        ck_assert_int_eq((call), -(status));                                                       \
        ck_assert_str_eq(err.text, (message));                                                     \
    } while (0)

static void await_granted(struct trainer *t, uint32_t n) {
    for (int i = 0; i < 50000 && t->granted < n; i++) {
        engine_events(t->e);
        usleep(100);
    }
    ck_assert_uint_ge(t->granted, n);
}

/* Units: embedding 0 (reduced twice), mixed 1, expert 2 (may be absent), frozen 3, tied 4. Reduces:
 * embedding, tied, expert, mixed, embedding. */
START_TEST(wrong_calls_are_refused) {
    struct config c = config_of(3, SHAPE_RICH);
    c.ranks = 1;
    c.model.shard_size = 1;
    c.slots = (struct slots){2, 4};
    struct world *w = world_up(&c);
    struct trainer *t = &w->trainers[0];
    struct engine *e = t->e;
    world_open(w);
    REFUSED(engine_load(e, 0, &err), ST_FAILED_PRECONDITION,
            "step 0: nothing of unit \"embedding\" is loaded, its tensors have initialisers");
    REFUSED(engine_load(e, 2, &err), ST_FAILED_PRECONDITION,
            "step 0: units are loaded in their order, next is \"mixed\", the trainer loads "
            "\"expert\"");
    world_finish_step(w);
    world_open(w);
    await_granted(t, 4);
    ck_assert_int_eq(engine_reduce(e, 0, NULL), 0);
    REFUSED(engine_reduce(e, 0, &err), ST_ALREADY_EXISTS,
            "step 1, micro-batch 0: unit \"embedding\" was reduced already");
    REFUSED(engine_reduce(e, 1, &err), ST_FAILED_PRECONDITION,
            "step 1, micro-batch 0, plan position 7: the plan \"train\" says reduce \"tied\", the "
            "trainer asked for reduce \"mixed\"");
    REFUSED(engine_finish(e, &err), ST_FAILED_PRECONDITION,
            "step 1, micro-batch 0, plan position 0: the plan \"train\" still expects gather "
            "\"embedding\"; not reduced: \"tied\", \"mixed\", \"embedding\"");
    ck_assert_int_eq(engine_reduce(e, 4, NULL), 0);
    ck_assert_int_eq(engine_reduce(e, 1, NULL), 0); /* "expert" is left out */
    REFUSED(engine_reduce(e, 2, &err), ST_ALREADY_EXISTS,
            "step 1, micro-batch 0: unit \"expert\" was reduced already, or left out");
    REFUSED(engine_finish(e, &err), ST_FAILED_PRECONDITION,
            "step 1, micro-batch 0, plan position 0: the plan \"train\" still expects gather "
            "\"embedding\"; not reduced: \"embedding\"");
    world_down(w);
}
END_TEST

/* Both trainers' values of one tensor differ: the checksum of that unit shows it. */
START_TEST(checksums_are_of_what_is_loaded) {
    struct config c = config_of(_i, SHAPE_RICH);
    struct world *w = world_up(&c);
    world_open(w);
    world_finish_step(w); /* compares the ranks' checksums */
    for (unsigned r = 0; r < c.ranks; r++) {
        ck_assert(w->trainers[r].checksums[0] == 0 && w->trainers[r].checksums[4] == 0);
        ck_assert(w->trainers[r].checksums[1] != 0 && w->trainers[r].checksums[3] != 0);
    }
    world_down(w);
}
END_TEST

int main(void) {
    Suite *s = suite_create("tensors");
    TCase *c = tcase_create("tensors");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, all_kinds_of_tensors, 0, 3 * STRATEGIES);
    tcase_add_loop_test(c, absent_units_are_zeros, 0, 3 * STRATEGIES);
    tcase_add_loop_test(c, nothing_to_load_is_loaded_at_once, 0, STRATEGIES);
    tcase_add_loop_test(c, nothing_is_trained, 0, 3 * STRATEGIES);
    tcase_add_test(c, wrong_calls_are_refused);
    tcase_add_loop_test(c, checksums_are_of_what_is_loaded, 0, STRATEGIES);
    suite_add_tcase(s, c);
    return run_suite(s);
}
