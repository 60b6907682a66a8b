/* layout_traffic against the formulas of design §5 (reference.h). */
#include "tests/base/suite.h"
#include "tests/layout/reference.h"

/* The model's padded elements of one kind. */
static uint64_t psi(const struct model *m, struct kind k, unsigned n) {
    uint64_t sum = 0;
    for (size_t u = 0; u < m->unit_count; u++) {
        sum += padded_of(m, u, k, n);
    }
    return sum;
}

/* One kind's part of design §5's table: G gathers a micro-batch, K micro-batches. */
static void add_kind(const struct model *m, struct kind k, unsigned n, uint64_t g,
                     struct traffic by[2]) {
    const uint64_t p = psi(m, k, n), K = m->micro_batches, b = bytes_of(k.dtype);
    const uint64_t S = m->shard_size ? m->shard_size : n, R = n / S;
    const uint64_t wire = bytes_of(m->wire_dtype), kept = bytes_of(m->kept_dtype);
    uint64_t gather = 0, scatter = 0, outer_gather = 0, outer_scatter = 0, all = 0;
    switch (m->strategy) {
    case STRATEGY_DDP:
        all = k.frozen ? 0 : 2 * (p / n) * (n - 1);
        break;
    case STRATEGY_ZERO1:
        outer_scatter = outer_gather = k.frozen ? 0 : p / n * (n - 1);
        break;
    case STRATEGY_ZERO2:
        gather = k.frozen ? 0 : p / n * (n - 1);
        scatter = k.frozen ? 0 : K * (p / n * (n - 1));
        break;
    case STRATEGY_ZERO3:
        gather = g * K * (p / n * (n - 1));
        scatter = k.frozen ? 0 : K * (p / n * (n - 1));
        break;
    case STRATEGY_HYBRID_SHARD:
        gather = g * K * (p / S * (S - 1));
        scatter = k.frozen ? 0 : K * (p / S * (S - 1));
        all = k.frozen ? 0 : 2 * (p / S / R) * (R - 1);
        break;
    case STRATEGY_HYBRID_ZERO2:
        gather = k.frozen ? 0 : p / S * (S - 1);
        scatter = k.frozen ? 0 : K * (p / S * (S - 1));
        all = k.frozen ? 0 : 2 * (p / S / R) * (R - 1);
        break;
    case STRATEGY_NONE:
        break;
    }
    by[0].all_gather_elements += gather;
    by[0].all_gather_bytes += gather * b;
    by[0].reduce_scatter_elements += scatter;
    by[0].reduce_scatter_bytes += scatter * wire;
    by[1].all_gather_elements += outer_gather;
    by[1].all_gather_bytes += outer_gather * b;
    by[1].reduce_scatter_elements += outer_scatter;
    by[1].reduce_scatter_bytes += outer_scatter * kept;
    by[1].all_reduce_elements += all;
    by[1].all_reduce_bytes += all * kept;
}

static void same(const struct traffic *a, const struct traffic *b) {
    ck_assert_uint_eq(a->all_gather_elements, b->all_gather_elements);
    ck_assert_uint_eq(a->all_gather_bytes, b->all_gather_bytes);
    ck_assert_uint_eq(a->reduce_scatter_elements, b->reduce_scatter_elements);
    ck_assert_uint_eq(a->reduce_scatter_bytes, b->reduce_scatter_bytes);
    ck_assert_uint_eq(a->all_reduce_elements, b->all_reduce_elements);
    ck_assert_uint_eq(a->all_reduce_bytes, b->all_reduce_bytes);
}

static uint64_t bytes(const struct traffic *t) {
    return t->all_gather_bytes + t->reduce_scatter_bytes + t->all_reduce_bytes;
}

static void check(const struct model *m, unsigned n) {
    struct traffic want[2] = {{0}, {0}}, got[2], ddp;
    struct layout l;
    struct err e;
    ck_assert_int_eq(layout_init(&l, m, n, &e), 0);
    for (size_t i = 0; i < ALL_KINDS; i++) {
        add_kind(m, kinds[i], n, 2, want); /* the fixture's plan gathers each unit twice */
    }
    layout_traffic_by_group(&l, got);
    same(&got[0], &want[0]);
    same(&got[1], &want[1]);
    struct traffic both = layout_traffic(&l);
    ck_assert_uint_eq(bytes(&both), bytes(&want[0]) + bytes(&want[1]));
    ck_assert_uint_eq(both.all_gather_elements,
                      want[0].all_gather_elements + want[1].all_gather_elements);
    struct model as_ddp = *m;
    struct traffic ddp_want[2] = {{0}, {0}};
    as_ddp.strategy = STRATEGY_DDP;
    for (size_t i = 0; i < ALL_KINDS; i++) {
        add_kind(&as_ddp, kinds[i], n, 2, ddp_want);
    }
    ddp = layout_traffic_ddp(&l);
    same(&ddp, &ddp_want[1]);
    layout_free(&l);
}

static void check_case(enum strategy s, unsigned n, unsigned shard) {
    for (uint32_t k = 1; k <= 128; k = k == 1 ? 4 : 32 * k) {
        struct model m = sizes_model(n, s, k == 1 ? DTYPE_BF16 : DTYPE_FP32, k);
        m.shard_size = shard;
        check(&m, n);
        m.wire_dtype = DTYPE_BF16;
        check(&m, n);
        m.kept_dtype = DTYPE_BF16;
        check(&m, n);
        model_free(&m);
    }
}

START_TEST(traffic) {
    sizes_each(check_case);
}
END_TEST

/* The table of design §5 in its own words: elements of one micro-batch, each unit gathered once a
 * pass. */
START_TEST(two_psi_and_three_psi) {
    const uint64_t elements = 64 * 16 * 1000;
    static const struct {
        enum strategy s;
        unsigned times, between; /* Psi (S-1)/S within, (Psi/S) (R-1)/R between */
    } rows[] = {{STRATEGY_DDP, 2, 0},          {STRATEGY_ZERO1, 2, 0},
                {STRATEGY_ZERO2, 2, 0},        {STRATEGY_ZERO3, 3, 0},
                {STRATEGY_HYBRID_SHARD, 3, 2}, {STRATEGY_HYBRID_ZERO2, 2, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model m = fixture_empty(rows[i].s, DTYPE_FP32, 1);
        struct traffic by[2];
        struct layout l;
        struct err e;
        m.shard_size = 4;
        fixture_unit(&m, "u");
        fixture_tensor(&m, "w", elements);
        fixture_plans(&m);
        fixture_good(&m);
        ck_assert_int_eq(layout_init(&l, &m, 16, &e), 0);
        layout_traffic_by_group(&l, by);
        const bool hybrid = rows[i].between;
        const uint64_t within = hybrid ? elements / 4 * 3 : elements / 16 * 15;
        const uint64_t between = elements / 4 / 4 * 3 * rows[i].between;
        ck_assert_uint_eq(bytes(&by[0]) + bytes(&by[1]), 4 * (rows[i].times * within + between));
        ck_assert(!hybrid || bytes(&by[1]) == 4 * between);
        layout_free(&l);
        model_free(&m);
    }
}
END_TEST

/* Units gathered unequally often, and twice reduced: the prediction is the sum over the plan. */
START_TEST(traffic_follows_the_plan) {
    struct model m = fixture_model(); /* zero3, bf16, two micro-batches */
    struct layout l;
    struct err e;
    m.plan_count = 1; /* drop eval, it is the last */
    m.units[0].contributions = 2;
    ck_assert_int_eq(model_add_op(&m, PLAN_GATHER, 1, &e), 0);
    ck_assert_int_eq(model_add_op(&m, PLAN_GATHER, 1, &e), 0);
    ck_assert_int_eq(model_add_op(&m, PLAN_REDUCE, 0, &e), 0);
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 2, &e), 0);
    ck_assert_uint_eq(l.ranges[0].padded, 384); /* 256 + 1 -> 320 -> 3 * 128 */
    ck_assert_uint_eq(l.ranges[1].padded, 256); /* 105 -> 128, + 10 -> 192 -> 2 * 128 */
    struct traffic t = layout_traffic(&l);
    ck_assert_uint_eq(t.all_gather_elements, 2 * (2 * 192 + 4 * 128));
    ck_assert_uint_eq(t.reduce_scatter_elements, 2 * (2 * 192 + 128));
    layout_free(&l);
    m.plan_count = 2;
    model_free(&m);
}
END_TEST

START_TEST(absurd_products_stop_at_the_top) {
    struct model m = fixture_empty(STRATEGY_ZERO3, DTYPE_FP32, MODEL_MAX_MICRO_BATCHES);
    struct layout l;
    struct err e;
    fixture_unit(&m, "u");
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
    layout_free(&l);
    model_free(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("traffic");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, traffic);
    tcase_add_test(t, two_psi_and_three_psi);
    tcase_add_test(t, traffic_follows_the_plan);
    tcase_add_test(t, absurd_products_stop_at_the_top);
    suite_add_tcase(s, t);
    return run_suite(s);
}
