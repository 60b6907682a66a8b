/* Memory and traffic against the formulas of design §5, worked out here from the registered sizes
 * alone: Psi by adding sizes, what a rank holds by walking a unit element block by element block.
 */
#include "tests/base/suite.h"
#include "tests/layout/sizes.h"

static uint64_t up(uint64_t n, uint64_t to) {
    return n % to ? n + to - n % to : n;
}

/* Padded length of unit |u|, from its tensors' sizes. */
static uint64_t padded(const struct model *m, size_t u, unsigned n) {
    uint64_t end = 0;
    for (size_t i = 0; i < m->units[u].tensors; i++) {
        end = up(end, 64) + m->tensors[m->units[u].first + i].shape[0];
    }
    return up(end, 64 * (uint64_t)n);
}

/* Real elements of rank r's part of unit |u|: parts are whole blocks of 64, so count by block. */
static uint64_t real_part(const struct model *m, size_t u, unsigned n, unsigned r) {
    uint64_t blocks = padded(m, u, n) / 64 / n, block = 0, real = 0;
    for (size_t i = 0; i < m->units[u].tensors; i++) {
        uint64_t left = m->tensors[m->units[u].first + i].shape[0];
        for (; left; block++) {
            uint64_t here = left < 64 ? left : 64;
            real += block / blocks == r ? here : 0;
            left -= here;
        }
    }
    return real;
}

struct expected {
    uint64_t whole, whole_pad, part, part_pad, largest;
};

static struct expected sizes_of(const struct model *m, unsigned n, unsigned r) {
    struct expected x = {0};
    for (size_t i = 0; i < m->tensor_count; i++) {
        x.whole += m->tensors[i].shape[0];
    }
    for (size_t u = 0; u < m->unit_count; u++) {
        uint64_t p = padded(m, u, n);
        x.whole_pad += p;
        x.part_pad += p / n;
        x.part += real_part(m, u, n, r);
        x.largest = p > x.largest ? p : x.largest;
    }
    x.whole_pad -= x.whole;
    x.part_pad -= x.part;
    return x;
}

/* Bytes per element of the whole model and of a rank's part. */
struct formula {
    enum strategy strategy;
    enum dtype dtype;
    unsigned params_whole, params_part, grads_whole, grads_part, optimizer_whole, optimizer_part;
    unsigned lent; /* the replica itself is lent: no gather slots */
};

static const struct formula formulas[] = {
    {STRATEGY_DDP, DTYPE_BF16, 2, 0, 4, 0, 12, 0, 1},
    {STRATEGY_DDP, DTYPE_FP32, 4, 0, 4, 0, 12, 0, 1},
    {STRATEGY_ZERO2, DTYPE_BF16, 2, 0, 0, 4, 0, 12, 1},
    {STRATEGY_ZERO2, DTYPE_FP32, 4, 0, 0, 4, 0, 12, 1},
    {STRATEGY_ZERO3, DTYPE_BF16, 0, 2, 0, 4, 0, 12, 0},
    {STRATEGY_ZERO3, DTYPE_FP32, 0, 0, 0, 4, 0, 12, 0}, /* the gather reads the master */
};

static void check_memory(const struct formula *f, unsigned n) {
    struct model m = sizes_model(n, f->strategy, f->dtype, 1);
    const struct slots slots = {.gather = 3, .grad = 5};
    struct layout l;
    struct err e;
    uint64_t held = 0, psi = 0;
    ck_assert_int_eq(layout_init(&l, &m, n, &e), 0);
    for (unsigned r = 0; r < n; r++) {
        struct expected x = sizes_of(&m, n, r);
        struct memory y = layout_memory(&l, r, &slots);
        unsigned whole = f->params_whole + f->grads_whole + f->optimizer_whole;
        unsigned part = f->params_part + f->grads_part + f->optimizer_part;
        ck_assert_uint_eq(y.params, f->params_whole * x.whole + f->params_part * x.part);
        ck_assert_uint_eq(y.grads, f->grads_whole * x.whole + f->grads_part * x.part);
        ck_assert_uint_eq(y.optimizer, f->optimizer_whole * x.whole + f->optimizer_part * x.part);
        ck_assert_uint_eq(y.padding, whole * x.whole_pad + part * x.part_pad);
        ck_assert_uint_eq(y.gather_slots,
                          f->lent ? 0 : 3 * x.largest * (f->dtype == DTYPE_BF16 ? 2 : 4));
        ck_assert_uint_eq(y.grad_slots, 5 * x.largest * 4);
        ck_assert_uint_eq(y.rounding, 0);
        ck_assert_uint_eq(y.fixed, 0);
        held += x.part;
        psi = x.whole;
    }
    ck_assert_uint_eq(held, psi); /* the parts are the model */
    layout_free(&l);
    model_free(&m);
}

START_TEST(memory) {
    for (unsigned n = 1; n <= MOST_RANKS; n++) {
        for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
            check_memory(&formulas[i], n);
        }
    }
}
END_TEST

/* The table of the ZeRO paper with fp32 gradients: 7.5e9 parameters on 64 ranks, no padding. */
START_TEST(memory_in_round_numbers) {
    static const struct {
        enum strategy s;
        double gigabytes;
    } rows[] = {{STRATEGY_DDP, 18 * 7.5},
                {STRATEGY_ZERO2, 2 * 7.5 + 16 * 7.5 / 64},
                {STRATEGY_ZERO3, 18 * 7.5 / 64}};
    for (size_t i = 0; i < 3; i++) {
        struct model m = fixture_empty(rows[i].s, DTYPE_BF16, 1);
        struct layout l;
        struct err e;
        ck_assert_int_eq(model_add_unit(&m, "u", &e), 0);
        fixture_tensor(&m, "w", UINT64_C(7500000) * 1024); /* 64 * 64 divides it */
        fixture_plans(&m);
        fixture_good(&m);
        ck_assert_int_eq(layout_init(&l, &m, 64, &e), 0);
        struct memory y = layout_memory(&l, 63, &(struct slots){1, 1});
        ck_assert_double_eq_tol((double)(y.params + y.grads + y.optimizer) / 1.024e9,
                                rows[i].gigabytes, 1e-9);
        ck_assert_uint_eq(y.padding, 0);
        layout_free(&l);
        model_free(&m);
    }
}
END_TEST

/* The fixture's plan gathers each unit twice a micro-batch. */
static void check_traffic(enum strategy s, enum dtype d, unsigned n, uint32_t k) {
    struct model m = sizes_model(n, s, d, k);
    struct layout l;
    struct err e;
    uint64_t psi = 0, b = d == DTYPE_BF16 ? 2 : 4;
    for (size_t u = 0; u < m.unit_count; u++) {
        psi += padded(&m, u, n);
    }
    uint64_t share = psi / n * (n - 1); /* Psi (N-1)/N, exact: Psi is a multiple of N */
    ck_assert_int_eq(layout_init(&l, &m, n, &e), 0);
    struct traffic t = layout_traffic(&l), ddp = layout_traffic_ddp(&l);
    bool is_ddp = s == STRATEGY_DDP;
    uint64_t gathers = s == STRATEGY_ZERO3 ? 2 * k * share : is_ddp ? 0 : share;
    uint64_t scatters = is_ddp ? 0 : k * share;
    ck_assert_uint_eq(t.all_gather_elements, gathers);
    ck_assert_uint_eq(t.all_gather_bytes, b * gathers);
    ck_assert_uint_eq(t.reduce_scatter_elements, scatters);
    ck_assert_uint_eq(t.reduce_scatter_bytes, 4 * scatters);
    ck_assert_uint_eq(t.all_reduce_elements, is_ddp ? 2 * share : 0);
    ck_assert_uint_eq(t.all_reduce_bytes, is_ddp ? 8 * share : 0);
    ck_assert_uint_eq(ddp.all_reduce_elements, 2 * share);
    ck_assert_uint_eq(ddp.all_reduce_bytes, 8 * share);
    ck_assert_uint_eq(ddp.all_gather_bytes + ddp.reduce_scatter_bytes, 0);
    if (k == 1) { /* the paper's 2 Psi and 3 Psi */
        uint64_t all = t.all_gather_elements + t.reduce_scatter_elements + t.all_reduce_elements;
        ck_assert_uint_eq(all, (s == STRATEGY_ZERO3 ? 3 : 2) * share);
    }
    layout_free(&l);
    model_free(&m);
}

START_TEST(traffic) {
    static const enum strategy strategies[] = {STRATEGY_DDP, STRATEGY_ZERO2, STRATEGY_ZERO3};
    for (unsigned n = 1; n <= MOST_RANKS; n++) {
        for (size_t s = 0; s < 3; s++) {
            check_traffic(strategies[s], DTYPE_BF16, n, 1);
            check_traffic(strategies[s], DTYPE_FP32, n, 4);
        }
    }
}
END_TEST

/* Units gathered unequally often: the prediction is the sum over the plan. */
START_TEST(traffic_follows_the_plan) {
    struct model m = fixture_model(); /* zero3, bf16, two micro-batches */
    struct layout l;
    struct err e;
    m.plan_count = 1; /* drop eval, it is the last */
    ck_assert_int_eq(model_add_op(&m, PLAN_GATHER, 1, &e), 0);
    ck_assert_int_eq(model_add_op(&m, PLAN_GATHER, 1, &e), 0);
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 2, &e), 0);
    ck_assert_uint_eq(l.units[0].padded, 384); /* 256 + 1 -> 320 -> 3 * 128 */
    ck_assert_uint_eq(l.units[1].padded, 256); /* 105 -> 128, + 10 -> 192 -> 2 * 128 */
    struct traffic t = layout_traffic(&l);
    ck_assert_uint_eq(t.all_gather_elements, 2 * (2 * 192 + 4 * 128));
    ck_assert_uint_eq(t.reduce_scatter_elements, 2 * (192 + 128));
    layout_free(&l);
    m.plan_count = 2;
    model_free(&m);
}
END_TEST

START_TEST(absurd_products_stop_at_the_top) {
    struct model m = fixture_empty(STRATEGY_ZERO3, DTYPE_FP32, MODEL_MAX_MICRO_BATCHES);
    struct layout l;
    struct err e;
    ck_assert_int_eq(model_add_unit(&m, "u", &e), 0);
    fixture_tensor(&m, "w", MODEL_MAX_ELEMENTS);
    fixture_plans(&m);
    for (int i = 0; i < 300; i++) {
        m.plan_count = 1;
        ck_assert_int_eq(model_add_op(&m, PLAN_GATHER, 0, &e), 0);
        m.plan_count = 2;
    }
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 64, &e), 0);
    ck_assert_uint_eq(layout_traffic(&l).all_gather_elements, UINT64_MAX);
    ck_assert_uint_eq(layout_traffic(&l).all_gather_bytes, UINT64_MAX);
    struct memory y = layout_memory(&l, 0, &(struct slots){.gather = UINT32_MAX, .grad = 1});
    ck_assert_uint_eq(y.gather_slots, UINT64_MAX);
    layout_free(&l);
    model_free(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("account");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, memory);
    tcase_add_test(t, memory_in_round_numbers);
    tcase_add_test(t, traffic);
    tcase_add_test(t, traffic_follows_the_plan);
    tcase_add_test(t, absurd_products_stop_at_the_top);
    suite_add_tcase(s, t);
    return run_suite(s);
}
