/* Models for the tests of client/plan. */
#ifndef ZD_TESTS_ZEROCTL_PLAN_FIXTURE_H
#define ZD_TESTS_ZEROCTL_PLAN_FIXTURE_H

#include <check.h>
#include <string.h>

#include "client/plan/plan.h"

/* No units yet; bytes an element (2, 2, 12) or (2, 4, 12). */
static inline struct model plan_empty(enum dtype kept) {
    struct model m = {0};
    model_defaults(&m);
    m.strategy = STRATEGY_ZERO3;
    m.param_dtype = DTYPE_BF16;
    m.kept_dtype = kept;
    return m;
}

static inline struct model plan_invented(uint64_t params, uint64_t layers, unsigned world,
                                         enum dtype kept) {
    struct model m = plan_empty(kept);
    struct err e = {0};
    ck_assert_msg(!plan_model_invent(&m, params, layers, world, &e), "%s", e.text);
    ck_assert_msg(!plan_model_finish(&m, &e), "%s", e.text);
    m.strategy = STRATEGY_NONE;
    return m;
}

static inline void plan_made(struct plan_table *t, const struct model *m, unsigned world,
                             unsigned shard, uint64_t device) {
    const struct plan_request r = {
        .model = m, .world = world, .shard_size = shard, .slots = {2, 2}, .device_memory = device};
    struct err e = {0};
    ck_assert_msg(!plan_table_init(t, &r, &e), "%s", e.text);
}

#endif
