/* The table against published numbers: the ZeRO paper's table 1 and design §5's formulas. */
#include <math.h>

#include "tests/base/suite.h"
#include "tests/zeroctl/plan_fixture.h"

/* 7B on 8 ranks, GB of ddp, zero1, zero2, zero3. */
static void check_seven(enum dtype kept, const double gigabytes[4]) {
    struct model m = plan_invented(UINT64_C(7000000000), 32, 8, kept);
    struct plan_table t;
    plan_made(&t, &m, 8, 0, 0);
    ck_assert_uint_eq(t.row_count, 4); /* one machine: hybrids are zero2 and zero3 */
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(t.rows[i].states, (uint64_t)(gigabytes[i] * 1e9)); /* to the byte */
        ck_assert_uint_eq(t.rows[i].memory.padding, 0);
    }
    model_free(&m);
}

START_TEST(seven_billion_on_eight_ranks) {
    check_seven(DTYPE_BF16, (const double[]){112, 38.5, 26.25, 14});
    check_seven(DTYPE_FP32, (const double[]){126, 52.5, 28, 15.75});
}
END_TEST

/* arXiv 1910.02054, table 1, the column of 7.5B: zero1, zero2, zero3 at N ranks, rounded as there.
 */
START_TEST(the_zero_papers_table) {
    static const struct {
        unsigned n;
        double gigabytes[3], step; /* of the last printed digit; zero3's has its own */
        double step3;
    } rows[] = {
        {1, {120, 120, 120}, 1, 1},           {4, {52.5, 41.3, 30}, 0.1, 1},
        {16, {35.6, 21.6, 7.5}, 0.1, 0.1},    {64, {31.4, 16.6, 1.88}, 0.1, 0.01},
        {256, {30.4, 15.4, 0.47}, 0.1, 0.01}, {1024, {30.1, 15.1, 0.12}, 0.1, 0.01},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m = plan_invented(UINT64_C(7500000000), 32, rows[i].n, DTYPE_BF16);
        struct plan_table t;
        plan_made(&t, &m, rows[i].n, 0, 0);
        for (size_t s = 0; s < 3; s++) {
            const double step = s == 2 ? rows[i].step3 : rows[i].step;
            const double got = (double)t.rows[1 + s].states / 1e9;
            ck_assert_msg(fabs(got - rows[i].gigabytes[s]) <= step / 2 + 1e-4,
                          "N %u, %s: %.4f GB, the paper has %g", rows[i].n,
                          strategy_name(t.rows[1 + s].strategy), got, rows[i].gigabytes[s]);
        }
        model_free(&m);
    }
}
END_TEST

static const struct plan_row *row(const struct plan_table *t, enum strategy s) {
    for (size_t i = 0; i < t->row_count; i++) {
        if (t->rows[i].strategy == s) {
            return &t->rows[i];
        }
    }
    ck_abort_msg("no row of %s", strategy_name(s));
    return NULL;
}

static void sends(const struct plan_table *t, enum strategy s, double within, double between) {
    const struct plan_row *r = row(t, s);
    ck_assert_double_eq_tol((double)traffic_elements(&r->within), within, 0.5);
    ck_assert_double_eq_tol((double)traffic_elements(&r->between), between, 0.5);
}

/* 16 ranks on machines of 4: of a flat group's 15 readers 3 are on the same machine. */
START_TEST(traffic_by_machine) {
    const double psi = 64 * 16 * 32 * 100.0, each = psi / 16;
    struct model m = plan_invented((uint64_t)psi, 32, 16, DTYPE_FP32);
    struct plan_table t;
    plan_made(&t, &m, 16, 4, 0);
    ck_assert_uint_eq(t.row_count, 6);
    sends(&t, STRATEGY_DDP, 2 * each * 3, 2 * each * 12);
    sends(&t, STRATEGY_ZERO1, 2 * each * 3, 2 * each * 12);
    sends(&t, STRATEGY_ZERO2, 2 * each * 3, 2 * each * 12);
    sends(&t, STRATEGY_ZERO3, 3 * each * 3, 3 * each * 12);
    sends(&t, STRATEGY_HYBRID_ZERO2, 2 * psi * 3 / 4, 2 * psi / 4 * 3 / 4);
    sends(&t, STRATEGY_HYBRID_SHARD, 3 * psi * 3 / 4, 2 * psi / 4 * 3 / 4);
    ck_assert_double_eq_tol(row(&t, STRATEGY_ZERO3)->elements_factor, 1.5, 1e-12);
    ck_assert_double_eq_tol(row(&t, STRATEGY_ZERO3)->bytes_factor, 1, 1e-12); /* bf16 gathers */
    ck_assert_double_eq_tol(row(&t, STRATEGY_ZERO2)->bytes_factor, 0.75, 1e-12);
    ck_assert_uint_eq(traffic_bytes(&row(&t, STRATEGY_HYBRID_SHARD)->between),
                      (uint64_t)(2 * psi / 4 * 3 / 4) * 4);
    model_free(&m);
}
END_TEST

static bool says(const struct plan_lines *l, const char *text) {
    for (size_t i = 0; i < l->count; i++) {
        if (strstr(l->text[i], text)) {
            return true;
        }
    }
    return false;
}

static void advises(double params, uint64_t layers, unsigned world, unsigned shard, double device,
                    const char *text) {
    struct model m = plan_invented((uint64_t)params, layers, world, DTYPE_FP32);
    struct plan_table t;
    plan_made(&t, &m, world, shard, (uint64_t)device);
    ck_assert_msg(says(&t.advice, text), "no \"%s\" in: %s", text, t.advice.text[0]);
    for (size_t i = 0; i < t.row_count; i++) {
        ck_assert(t.rows[i].fits == (device == 0 || t.rows[i].peak <= (uint64_t)device));
    }
    model_free(&m);
}

START_TEST(advice_in_the_fields_order) {
    advises(1e9, 16, 8, 0, 80e9, "zero2 fits: 4.500 GB a rank; so does ddp");
    advises(7e9, 32, 8, 0, 80e9, "zero2 fits: 29.750 GB a rank");
    advises(30e9, 48, 8, 0, 80e9, "zero2 does not fit (125.000 GB), zero3 does: 75.000 GB");
    advises(30e9, 48, 64, 16, 60e9, "across machines hybrid_shard --shard-size 16 fits too");
    advises(30e9, 48, 64, 8, 60e9, "hybrid_shard within machines of 8 ranks does not fit");
    advises(7e9, 32, 64, 8, 80e9, "across machines hybrid_zero2 --shard-size 8 fits too");
    advises(30e9, 48, 8, 0, 72e9, "with one slot of each kind");
    advises(70e9, 80, 8, 0, 80e9, "zero3 fits on 32 ranks");
    advises(400e9, 4, 8, 0, 80e9, "no number of ranks helps");
    advises(400e9, 4, 8, 0, 80e9, "use tensor parallelism");
    advises(400e9, 4, 8, 0, 80e9, "then pipeline parallelism");
    advises(7e9, 1, 8, 0, 80e9, "first cut unit \"layer0\" into its layers");
    advises(7e9, 32, 8, 0, 0, "--device-memory says what fits");
}
END_TEST

START_TEST(one_unit_that_is_most_of_the_model) {
    struct model m = plan_invented(UINT64_C(7000000000), 1, 8, DTYPE_FP32);
    struct plan_table t;
    plan_made(&t, &m, 8, 0, 0);
    ck_assert_uint_eq(t.warnings.count, 1);
    ck_assert(says(&t.warnings, "unit \"layer0\" holds 100.0 % of the model"));
    ck_assert(says(&t.warnings, "predicted peak of a rank 99.750 GB")); /* 15.75 + 28 + 56 */
    ck_assert(says(&t.warnings, "\"layer0.weight\""));
    model_free(&m);
    m = plan_invented(UINT64_C(7000000000), 3, 8, DTYPE_FP32);
    plan_made(&t, &m, 8, 0, 0);
    ck_assert_uint_eq(t.warnings.count, 0);
    model_free(&m);
    m = plan_invented(1000, 1, 8, DTYPE_FP32); /* too small to matter */
    plan_made(&t, &m, 8, 0, 0);
    ck_assert_uint_eq(t.warnings.count, 0);
    model_free(&m);
}
END_TEST

START_TEST(large_worlds) {
    struct model m = plan_invented(UINT64_C(1000000000000), 128, 1024, DTYPE_BF16);
    struct plan_table t;
    plan_made(&t, &m, 1024, 8, 0);
    ck_assert_double_eq_tol((double)row(&t, STRATEGY_ZERO3)->states / 1e9, 15.6, 0.05);
    ck_assert_double_eq_tol((double)row(&t, STRATEGY_ZERO1)->states / 1e9, 4011, 1);
    plan_made(&t, &m, LAYOUT_PLAN_RANKS, 8, 0);
    model_free(&m);
}
END_TEST

START_TEST(wrong_requests) {
    struct model m = plan_invented(1000, 1, 8, DTYPE_FP32);
    struct plan_table t;
    struct plan_request r = {.model = &m, .world = 8, .shard_size = 3, .slots = {1, 1}};
    struct err e;
    ck_assert_int_eq(plan_table_init(&t, &r, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "shard size 3 does not divide the world size 8");
    r.shard_size = r.world = 0;
    ck_assert_int_eq(plan_table_init(&t, &r, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(plan_model_invent(&m, 5, 6, 1, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(plan_model_invent(&m, UINT64_MAX, 65537, 1, &e), -ST_INVALID_ARGUMENT);
    model_free(&m);
}
END_TEST

/* A registered model: its strategy is marked, a hybrid's row is there even when S = N. */
START_TEST(a_strategy_is_chosen) {
    struct model m = plan_invented(1000000, 4, 4, DTYPE_FP32);
    struct plan_table t;
    m.strategy = STRATEGY_HYBRID_SHARD;
    plan_made(&t, &m, 4, 0, 0);
    ck_assert_uint_eq(t.row_count, 5);
    ck_assert(t.rows[4].chosen && t.rows[4].peak == t.rows[3].peak && !t.rows[3].chosen);
    cJSON *json = plan_json(&t, NULL);
    const cJSON *rows = cJSON_GetObjectItem(json, "strategies");
    const cJSON *ranks = cJSON_GetObjectItem(cJSON_GetArrayItem(rows, 4), "ranks");
    ck_assert_int_eq(cJSON_GetArraySize(ranks), 4);
    cJSON_Delete(json);
    model_free(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("zeroctl/plan_table");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, seven_billion_on_eight_ranks);
    tcase_add_test(t, the_zero_papers_table);
    tcase_add_test(t, traffic_by_machine);
    tcase_add_test(t, advice_in_the_fields_order);
    tcase_add_test(t, one_unit_that_is_most_of_the_model);
    tcase_add_test(t, large_worlds);
    tcase_add_test(t, wrong_requests);
    tcase_add_test(t, a_strategy_is_chosen);
    suite_add_tcase(s, t);
    return run_suite(s);
}
