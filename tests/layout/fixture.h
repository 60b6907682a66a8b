/* Small models for layout's tests. */
#ifndef ZD_TESTS_LAYOUT_FIXTURE_H
#define ZD_TESTS_LAYOUT_FIXTURE_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "layout/layout.h"

/* Empty but for good numbers. */
static inline struct model fixture_empty(enum strategy s, enum dtype d, uint32_t micro_batches) {
    return (struct model){
        .strategy = s,
        .param_dtype = d,
        .micro_batches = micro_batches,
        .adamw = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1},
    };
}

static inline void fixture_tensor(struct model *m, const char *name, uint64_t elements) {
    struct err e = {0};
    ck_assert_msg(model_add_tensor(m, name, 1, &elements, 1, &e) == 0, "%s", e.text);
}

/* "train": gathers all units forward, then backwards gathers (zero3's second time) and reduces. */
static inline void fixture_plans(struct model *m) {
    struct err e;
    ck_assert_int_eq(model_add_plan(m, "train", &e), 0);
    for (size_t u = 0; u < m->unit_count; u++) {
        ck_assert_int_eq(model_add_op(m, PLAN_GATHER, u, &e), 0);
    }
    for (size_t u = m->unit_count; u-- > 0;) {
        ck_assert_int_eq(model_add_op(m, PLAN_GATHER, u, &e), 0);
        ck_assert_int_eq(model_add_op(m, PLAN_REDUCE, u, &e), 0);
    }
    ck_assert_int_eq(model_add_plan(m, "eval", &e), 0);
    for (size_t u = 0; u < m->unit_count; u++) {
        ck_assert_int_eq(model_add_op(m, PLAN_GATHER, u, &e), 0);
    }
}

/* Two units of two tensors, all well. */
static inline struct model fixture_model(void) {
    static const uint64_t square[] = {16, 16}, oblong[] = {3, 5, 7};
    struct model m = fixture_empty(STRATEGY_ZERO3, DTYPE_BF16, 2);
    struct err e;
    ck_assert_int_eq(model_add_unit(&m, "embedding", &e), 0);
    ck_assert_int_eq(model_add_tensor(&m, "embedding.weight", 2, square, 1, &e), 0);
    ck_assert_int_eq(model_add_tensor(&m, "embedding.scale", 0, NULL, 0, &e), 0);
    ck_assert_int_eq(model_add_unit(&m, "head", &e), 0);
    ck_assert_int_eq(model_add_tensor(&m, "head.weight", 3, oblong, 1, &e), 0);
    fixture_tensor(&m, "head.bias", 10);
    fixture_plans(&m);
    return m;
}

static inline void fixture_good(struct model *m) {
    struct err e = {0};
    ck_assert_msg(model_check(m, &e) == 0, "%s", e.text);
}

#endif
