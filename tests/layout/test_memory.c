/* layout_memory against the formulas of design §5 (reference.h). */
#include "tests/base/suite.h"
#include "tests/layout/reference.h"

static void add(const struct model *m, size_t u, struct kind k, unsigned n, unsigned rank,
                unsigned shares, uint64_t bytes, uint64_t *line, uint64_t *padding) {
    uint64_t real = real_of(m, u, k, n, rank % shares, shares);
    *line += real * bytes;
    *padding += (padded_of(m, u, k, n) / shares - real) * bytes;
}

static struct memory expected(const struct model *m, unsigned n, unsigned rank, uint64_t optimizer,
                              const struct slots *slots) {
    const struct cut cut = cut_of(m->strategy, n, m->shard_size);
    const bool sharded = gathers_shards(m->strategy);
    struct memory y = {0};
    uint64_t most_params = 0, most_grads = 0, most_load = 0;
    for (size_t u = 0; u < m->unit_count; u++) {
        uint64_t params = 0, grads = 0, load = 0;
        for (size_t i = 0; i < ALL_KINDS; i++) {
            const struct kind k = kinds[i];
            const bool master = sharded && k.dtype == DTYPE_FP32 && !k.frozen;
            add(m, u, k, n, rank, cut.params, master ? 0 : bytes_of(k.dtype), &y.params,
                &y.padding);
            params += padded_of(m, u, k, n) * bytes_of(k.dtype);
            load += padded_of(m, u, k, n) * 4;
            if (!k.frozen) {
                add(m, u, k, n, rank, cut.grads, bytes_of(m->kept_dtype), &y.grads, &y.padding);
                add(m, u, k, n, rank, cut.optimizer, optimizer, &y.optimizer, &y.padding);
                grads += padded_of(m, u, k, n) * bytes_of(m->wire_dtype);
            }
        }
        most_params = params > most_params ? params : most_params;
        most_grads = grads > most_grads ? grads : most_grads;
        most_load = load > most_load ? load : most_load;
    }
    y.gather_slots = sharded ? slots->gather * most_params : 0;
    y.grad_slots = slots->grad * most_grads > most_load ? slots->grad * most_grads : most_load;
    return y;
}

static void same(const struct memory *a, const struct memory *b) {
    ck_assert_uint_eq(a->params, b->params);
    ck_assert_uint_eq(a->grads, b->grads);
    ck_assert_uint_eq(a->optimizer, b->optimizer);
    ck_assert_uint_eq(a->gather_slots, b->gather_slots);
    ck_assert_uint_eq(a->grad_slots, b->grad_slots);
    ck_assert_uint_eq(a->padding, b->padding);
    ck_assert_uint_eq(a->rounding + a->fixed, 0);
}

static const struct {
    enum optimizer kind;
    double momentum;
    uint64_t bytes;
    enum dtype param, wire, kept;
} variants[] = {
    {OPTIMIZER_ADAMW, 0, 12, DTYPE_BF16, DTYPE_FP32, DTYPE_FP32},
    {OPTIMIZER_ADAM, 0, 12, DTYPE_FP32, DTYPE_BF16, DTYPE_FP32},
    {OPTIMIZER_SGD, 0, 4, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16},
    {OPTIMIZER_SGD, 0.9, 8, DTYPE_FP16, DTYPE_FP32, DTYPE_BF16},
    {OPTIMIZER_LION, 0, 8, DTYPE_FP32, DTYPE_FP32, DTYPE_FP32},
};

static void check_variant(size_t v, enum strategy s, unsigned n, unsigned shard) {
    const struct slots slots = {.gather = 3, .grad = 1 + (uint32_t)v % 3};
    struct model m = sizes_model(n, s, DTYPE_BF16, 1);
    struct layout l;
    struct err e;
    m.shard_size = shard;
    m.param_dtype = variants[v].param;
    m.wire_dtype = variants[v].wire;
    m.kept_dtype = variants[v].kept;
    m.optimizer.kind = variants[v].kind;
    m.optimizer.momentum = variants[v].momentum;
    m.scaling = (struct loss_scaling){.dynamic = true};
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, n, &e), 0);
    uint64_t total = 0;
    for (unsigned r = 0; r < n; r++) {
        struct memory want = expected(&m, n, r, variants[v].bytes, &slots);
        struct memory got = layout_memory(&l, r, &slots);
        same(&got, &want);
        uint64_t all = got.params + got.grads + got.optimizer + got.padding;
        ck_assert(r == 0 || all == total); /* the same on every rank */
        total = all;
    }
    layout_free(&l);
    model_free(&m);
}

static void check_case(enum strategy s, unsigned n, unsigned shard) {
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        check_variant(v, s, n, shard);
    }
}

START_TEST(memory) {
    sizes_each(check_case);
}
END_TEST

static struct memory one_tensor(enum strategy s, unsigned shard, enum dtype kept, uint64_t elements,
                                unsigned n) {
    struct model m = fixture_empty(s, DTYPE_BF16, 1);
    struct layout l;
    struct err e;
    m.kept_dtype = kept;
    m.shard_size = shard;
    fixture_unit(&m, "u");
    fixture_tensor(&m, "w", elements);
    fixture_plans(&m);
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, n, &e), 0);
    struct memory y = layout_memory(&l, n - 1, &(struct slots){1, 1});
    layout_free(&l);
    model_free(&m);
    return y;
}

static void in_gigabytes(enum strategy s, unsigned shard, enum dtype kept, double gigabytes) {
    /* 7.5e9 on 64 ranks, at a thousandth more so that 64 * 64 divides it */
    struct memory y = one_tensor(s, shard, kept, UINT64_C(7500000) * 1024, 64);
    ck_assert_double_eq_tol((double)(y.params + y.grads + y.optimizer) / 1.024e9, gigabytes, 1e-9);
    ck_assert_uint_eq(y.padding, 0);
}

/* The row N = 64 of the ZeRO paper's table, its bf16 gradients; then with fp32 ones. */
START_TEST(memory_in_round_numbers) {
    in_gigabytes(STRATEGY_DDP, 0, DTYPE_BF16, 16 * 7.5);
    in_gigabytes(STRATEGY_ZERO1, 0, DTYPE_BF16, 4 * 7.5 + 12 * 7.5 / 64);
    in_gigabytes(STRATEGY_ZERO2, 0, DTYPE_BF16, 2 * 7.5 + 14 * 7.5 / 64);
    in_gigabytes(STRATEGY_ZERO3, 0, DTYPE_BF16, 16 * 7.5 / 64);
    in_gigabytes(STRATEGY_HYBRID_SHARD, 8, DTYPE_BF16, 16 * 7.5 / 8);
    in_gigabytes(STRATEGY_HYBRID_ZERO2, 8, DTYPE_BF16, 2 * 7.5 + 14 * 7.5 / 8);
    in_gigabytes(STRATEGY_DDP, 0, DTYPE_FP32, 18 * 7.5);
    in_gigabytes(STRATEGY_ZERO2, 0, DTYPE_FP32, 2 * 7.5 + 16 * 7.5 / 64);
    in_gigabytes(STRATEGY_ZERO3, 0, DTYPE_FP32, 18 * 7.5 / 64);
}
END_TEST

/* A stronger strategy never needs more, more ranks never need more but for padding, and 1e13
 * elements overflow nowhere. */
START_TEST(monotone_up_to_the_largest) {
    static const enum strategy order[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2,
                                          STRATEGY_ZERO3};
    const uint64_t elements = UINT64_C(10000000000000);
    for (unsigned n = 1; n <= LAYOUT_PLAN_RANKS; n *= 4) {
        uint64_t before = UINT64_MAX;
        for (size_t i = 0; i < 4; i++) {
            struct memory y = one_tensor(order[i], 0, DTYPE_FP32, elements, n);
            uint64_t all = y.params + y.grads + y.optimizer + y.padding;
            ck_assert_uint_le(all, before);
            ck_assert_uint_ge(all, elements * 18 / n);
            ck_assert_uint_le(y.gather_slots, UINT64_C(2) * (elements + UINT64_C(64) * n));
            before = all;
        }
        if (n > 1) {
            struct memory few = one_tensor(STRATEGY_ZERO3, 0, DTYPE_FP32, elements, n / 4);
            ck_assert_uint_le(before, few.params + few.grads + few.optimizer + few.padding);
        }
    }
}
END_TEST

START_TEST(absurd_slots_stop_at_the_top) {
    struct model m = fixture_empty(STRATEGY_ZERO3, DTYPE_FP32, 1);
    struct layout l;
    struct err e;
    fixture_unit(&m, "u");
    fixture_tensor(&m, "w", MODEL_MAX_ELEMENTS);
    fixture_plans(&m);
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 64, &e), 0);
    struct memory y = layout_memory(&l, 0, &(struct slots){.gather = UINT32_MAX, .grad = 1});
    ck_assert_uint_eq(y.gather_slots, UINT64_MAX);
    ck_assert_uint_eq(y.grad_slots, MODEL_MAX_ELEMENTS * 4);
    layout_free(&l);
    model_free(&m);
}
END_TEST

/* Only what the trainer loads needs room for fp32 initial values. */
START_TEST(slots_hold_what_is_loaded) {
    struct model m = fixture_empty(STRATEGY_ZERO2, DTYPE_BF16, 1);
    struct layout l;
    struct err e;
    m.wire_dtype = DTYPE_BF16;
    fixture_unit(&m, "big");
    fixture_tensor(&m, "big.w", 6400);
    fixture_unit(&m, "small");
    fixture_tensor(&m, "small.w", 640);
    fixture_plans(&m);
    m.tensors[0].init.kind = INIT_ZEROS;
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 1, &e), 0);
    ck_assert_uint_eq(layout_memory(&l, 0, &(struct slots){1, 1}).grad_slots, 6400 * 2);
    layout_free(&l);
    m.tensors[0].init.kind = INIT_LOADED;
    ck_assert_int_eq(layout_init(&l, &m, 1, &e), 0);
    ck_assert_uint_eq(layout_memory(&l, 0, &(struct slots){1, 1}).grad_slots, 6400 * 4);
    ck_assert_uint_eq(layout_memory(&l, 0, &(struct slots){1, 3}).grad_slots, 6400 * 6);
    layout_free(&l);
    model_free(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, memory);
    tcase_add_test(t, memory_in_round_numbers);
    tcase_add_test(t, monotone_up_to_the_largest);
    tcase_add_test(t, absurd_slots_stop_at_the_top);
    tcase_add_test(t, slots_hold_what_is_loaded);
    suite_add_tcase(s, t);
    return run_suite(s);
}
