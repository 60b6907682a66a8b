#include "tests/base/suite.h"
#include "tests/layout/fixture.h"

static struct model a, b;

static void setup(void) {
    a = fixture_model();
    b = fixture_model();
    fixture_good(&a);
    fixture_good(&b);
}

static void teardown(void) {
    model_free(&a);
    model_free(&b);
}

static void differ(const char *text) {
    char whole[ERR_TEXT];
    struct err e = {0};
    (void)snprintf(whole, sizeof whole, "ranks 0 and 3 registered different models: %s", text);
    ck_assert_int_eq(model_difference(&a, 0, &b, 3, &e), -ST_FAILED_PRECONDITION);
    ck_assert_str_eq(e.text, whole);
    ck_assert_int_eq(model_difference(&b, 3, &a, 0, &e), -ST_FAILED_PRECONDITION);
}

START_TEST(equal_models) {
    struct err e;
    ck_assert_int_eq(model_difference(&a, 0, &b, 1, &e), 0);
    ck_assert_int_eq(model_difference(&a, 0, &a, 1, &e), 0);
}
END_TEST

START_TEST(units) {
    struct err e;
    ck_assert_int_eq(model_add_unit(&b, "more", &e), 0);
    differ("number of units: 2 on rank 0, 3 on rank 3");
    b.unit_count--;
    strcpy(b.units[1].name, "tail");
    differ("name of unit 1: \"head\" on rank 0, \"tail\" on rank 3");
}
END_TEST

START_TEST(tensors) {
    strcpy(b.tensors[3].name, "head.scale");
    differ("name of tensor 1 in unit \"head\": \"head.bias\" on rank 0, \"head.scale\" on rank 3");
    strcpy(b.tensors[3].name, "head.bias");
    b.tensors[2].shape[1] = 6;
    differ("shape of tensor \"head.weight\": [3, 5, 7] on rank 0, [3, 6, 7] on rank 3");
    b.tensors[2].dims = 1;
    differ("shape of tensor \"head.weight\": [3, 5, 7] on rank 0, [3] on rank 3");
    b.tensors[2].dims = 3;
    b.tensors[2].shape[1] = 5;
    b.tensors[1].decay_multiplier = 0.5f;
    differ("weight decay multiplier of tensor \"embedding.scale\": 0 on rank 0, 0.5 on rank 3");
    b.tensors[1].decay_multiplier = 0;
    struct err e;
    ck_assert_int_eq(model_add_tensor(&b, "head.more", 0, NULL, 1, &e), 0);
    differ("number of tensors in unit \"head\": 2 on rank 0, 3 on rank 3");
}
END_TEST

START_TEST(plans) {
    struct err e;
    b.plans[0].ops[3].kind = PLAN_GATHER;
    differ("plan \"train\" position 3: reduce of unit \"head\" on rank 0, gather of unit \"head\" "
           "on rank 3");
    b.plans[0].ops[3].kind = PLAN_REDUCE;
    b.plans[1].ops[0].unit = 1;
    differ("plan \"eval\" position 0: gather of unit \"embedding\" on rank 0, gather of unit "
           "\"head\" on rank 3");
    b.plans[1].ops[0].unit = 0;
    b.plans[1].count = 1;
    differ("number of operations in plan \"eval\": 2 on rank 0, 1 on rank 3");
    b.plans[1].count = 2;
    strcpy(b.plans[1].name, "test");
    differ("name of plan 1: \"eval\" on rank 0, \"test\" on rank 3");
    strcpy(b.plans[1].name, "eval");
    ck_assert_int_eq(model_add_plan(&b, "more", &e), 0);
    differ("number of plans: 2 on rank 0, 3 on rank 3");
}
END_TEST

START_TEST(numbers) {
    b.adamw.beta1 = 0.5;
    differ("beta1: 0.90000000000000002 on rank 0, 0.5 on rank 3");
    b.adamw.beta1 = 0.9;
    b.adamw.beta2 = 0.5;
    differ("beta2: 0.999 on rank 0, 0.5 on rank 3");
    b.adamw.beta2 = 0.999;
    b.adamw.epsilon = 0.25;
    differ("epsilon: 1e-08 on rank 0, 0.25 on rank 3");
    b.adamw.epsilon = 1e-8;
    b.adamw.weight_decay = 0.10000000000000002; /* the next double: must show */
    differ("weight decay: 0.10000000000000001 on rank 0, 0.10000000000000002 on rank 3");
    b.adamw.weight_decay = 0.1;
    b.param_dtype = DTYPE_FP32;
    differ("dtype of parameters: \"bf16\" on rank 0, \"fp32\" on rank 3");
    b.param_dtype = DTYPE_BF16;
    b.strategy = STRATEGY_DDP;
    differ("strategy: \"zero3\" on rank 0, \"ddp\" on rank 3");
    b.strategy = STRATEGY_ZERO3;
    b.micro_batches = 4;
    differ("number of micro-batches: 2 on rank 0, 4 on rank 3");
}
END_TEST

int main(void) {
    Suite *s = suite_create("difference");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, equal_models);
    tcase_add_test(t, units);
    tcase_add_test(t, tensors);
    tcase_add_test(t, plans);
    tcase_add_test(t, numbers);
    suite_add_tcase(s, t);
    return run_suite(s);
}
