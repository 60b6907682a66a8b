/* The awkward sizes at every world size, as models. */
#ifndef ZD_TESTS_LAYOUT_SIZES_H
#define ZD_TESTS_LAYOUT_SIZES_H

#include "tests/layout/fixture.h"

enum { SIZES = 9, MOST_RANKS = 8 };

static inline uint64_t sizes_at(size_t i, unsigned n) {
    const uint64_t sizes[SIZES] = {0, 1, n - 1, n, n + 1, 1000003, 63, 64, 65};
    return sizes[i];
}

/* Each size in a unit of its own, then all in one unit, backwards, then a unit without tensors. */
static inline struct model sizes_model(unsigned n, enum strategy s, enum dtype d, uint32_t k) {
    struct model m = fixture_empty(s, d, k);
    struct err e;
    char name[32];
    for (size_t i = 0; i < SIZES; i++) {
        (void)snprintf(name, sizeof name, "unit%zu", i);
        ck_assert_int_eq(model_add_unit(&m, name, &e), 0);
        (void)snprintf(name, sizeof name, "unit%zu.w", i);
        fixture_tensor(&m, name, sizes_at(i, n));
    }
    ck_assert_int_eq(model_add_unit(&m, "all", &e), 0);
    for (size_t i = SIZES; i-- > 0;) {
        (void)snprintf(name, sizeof name, "all.w%zu", i);
        fixture_tensor(&m, name, sizes_at(i, n));
    }
    ck_assert_int_eq(model_add_unit(&m, "none", &e), 0);
    fixture_plans(&m);
    fixture_good(&m);
    return m;
}

#endif
