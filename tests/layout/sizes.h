/* The awkward sizes at every world size, as models. */
#ifndef ZD_TESTS_LAYOUT_SIZES_H
#define ZD_TESTS_LAYOUT_SIZES_H

#include "tests/layout/fixture.h"

enum { SIZES = 9, MOST_RANKS = 8, KINDS = 4 };

static inline uint64_t sizes_at(size_t i, unsigned n) {
    const uint64_t sizes[SIZES] = {0, 1, n - 1, n, n + 1, 1000003, 63, 64, 65};
    return sizes[i];
}

/* A tensor of the i-th kind: trainable or frozen, of the model's dtype or fp32. */
static inline void sizes_kind(struct model *m, const char *name, uint64_t elements, size_t i) {
    struct tensor t = model_tensor(name, 1, &elements);
    t.frozen = i % 4 == 1 || i % 4 == 2;
    t.dtype = i % 4 >= 2 ? DTYPE_FP32 : DTYPE_NONE;
    fixture_add(m, &t);
}

/* Each size in a unit of its own; all in one unit, backwards; all in one unit, of four kinds mixed;
 * a unit of frozen ones only; a unit of an ignored one and an alias (its tensor comes later); a
 * unit without tensors. */
static inline struct model sizes_model(unsigned n, enum strategy s, enum dtype d, uint32_t k) {
    struct model m = fixture_empty(s, d, k);
    char name[32];
    for (size_t i = 0; i < SIZES; i++) {
        (void)snprintf(name, sizeof name, "unit%zu", i);
        fixture_unit(&m, name);
        (void)snprintf(name, sizeof name, "unit%zu.w", i);
        fixture_tensor(&m, name, sizes_at(i, n));
    }
    fixture_unit(&m, "tied");
    uint64_t shape = sizes_at(SIZES - 1, n);
    struct tensor alias = model_tensor("tied.alias", 1, &shape),
                  own = model_tensor("own", 1, &shape);
    strcpy(alias.alias, "all.w8");
    own.ignored = true;
    fixture_add(&m, &alias);
    fixture_add(&m, &own);
    fixture_unit(&m, "all");
    for (size_t i = SIZES; i-- > 0;) {
        (void)snprintf(name, sizeof name, "all.w%zu", i);
        fixture_tensor(&m, name, sizes_at(i, n));
    }
    fixture_unit(&m, "mixed");
    for (size_t i = 0; i < KINDS * SIZES; i++) {
        uint64_t elements = sizes_at(i / KINDS, n);
        (void)snprintf(name, sizeof name, "mixed.w%zu", i);
        sizes_kind(&m, name, elements > 1000 ? 100003 + i : elements, i % KINDS);
    }
    fixture_unit(&m, "frozen");
    sizes_kind(&m, "frozen.w", 77, 1);
    fixture_unit(&m, "none");
    fixture_plans(&m);
    fixture_good(&m);
    return m;
}

/* Strategies and groups that the tests go through, N = 1 to 8. */
static const struct sizes_case {
    enum strategy strategy;
    unsigned world, shard; /* 0: any */
} sizes_cases[] = {
    {STRATEGY_DDP, 0, 0},          {STRATEGY_ZERO1, 0, 0},        {STRATEGY_ZERO2, 0, 0},
    {STRATEGY_ZERO3, 0, 0},        {STRATEGY_HYBRID_SHARD, 4, 2}, {STRATEGY_HYBRID_SHARD, 8, 2},
    {STRATEGY_HYBRID_SHARD, 8, 4}, {STRATEGY_HYBRID_ZERO2, 4, 2}, {STRATEGY_HYBRID_ZERO2, 8, 2},
    {STRATEGY_HYBRID_ZERO2, 8, 4}, {STRATEGY_HYBRID_SHARD, 0, 1}, {STRATEGY_HYBRID_ZERO2, 0, 1},
    {STRATEGY_HYBRID_SHARD, 0, 0}, {STRATEGY_HYBRID_ZERO2, 0, 0}, {STRATEGY_HYBRID_SHARD, 6, 3},
};
enum { SIZES_CASES = sizeof sizes_cases / sizeof sizes_cases[0] };

typedef void sizes_check(enum strategy s, unsigned world, unsigned shard);

static inline void sizes_each(sizes_check *check) {
    for (size_t i = 0; i < SIZES_CASES; i++) {
        const struct sizes_case *c = &sizes_cases[i];
        for (unsigned n = c->world ? c->world : 1; n <= (c->world ? c->world : MOST_RANKS); n++) {
            check(c->strategy, n, c->shard);
        }
    }
}

#endif
