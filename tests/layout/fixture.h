/* Small models for layout's tests. */
#ifndef ZD_TESTS_LAYOUT_FIXTURE_H
#define ZD_TESTS_LAYOUT_FIXTURE_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "layout/layout.h"

/* Empty but for good numbers. */
static inline struct model fixture_empty(enum strategy s, enum dtype d, uint32_t micro_batches) {
    struct model m = {0};
    model_defaults(&m);
    m.strategy = s;
    m.param_dtype = d;
    m.micro_batches = micro_batches;
    m.optimizer.beta2 = 0.999;
    m.optimizer.weight_decay = 0.1;
    return m;
}

static inline void fixture_unit(struct model *m, const char *name) {
    struct err e = {0};
    ck_assert_msg(model_add_unit(m, name, 1, &e) == 0, "%s", e.text);
}

static inline void fixture_add(struct model *m, const struct tensor *t) {
    struct err e = {0};
    ck_assert_msg(model_add_tensor(m, t, &e) == 0, "%s", e.text);
}

static inline void fixture_tensor(struct model *m, const char *name, uint64_t elements) {
    const struct tensor t = model_tensor(name, 1, &elements);
    fixture_add(m, &t);
}

static inline bool fixture_trains(const struct model *m, size_t unit) {
    const struct unit *u = &m->units[unit];
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (!t->frozen && !t->ignored && !t->alias[0]) {
            return true;
        }
    }
    return false;
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
        for (uint32_t c = 0; c < m->units[u].contributions && fixture_trains(m, u); c++) {
            ck_assert_int_eq(model_add_op(m, PLAN_REDUCE, u, &e), 0);
        }
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
    struct tensor weight = model_tensor("embedding.weight", 2, square);
    struct tensor scale = model_tensor("embedding.scale", 0, NULL);
    struct tensor head = model_tensor("head.weight", 3, oblong);
    scale.decay_multiplier = 0;
    fixture_unit(&m, "embedding");
    fixture_add(&m, &weight);
    fixture_add(&m, &scale);
    fixture_unit(&m, "head");
    fixture_add(&m, &head);
    fixture_tensor(&m, "head.bias", 10);
    fixture_plans(&m);
    return m;
}

static inline void fixture_good(struct model *m) {
    struct err e = {0};
    ck_assert_msg(model_check(m, &e) == 0, "%s", e.text);
}

static inline void fixture_refused(struct model *m, enum status code, const char *text) {
    struct err e = {0};
    ck_assert_int_eq(model_check(m, &e), -(int)code);
    ck_assert_int_eq(e.code, (int)code);
    ck_assert_str_eq(e.text, text);
}

#endif
