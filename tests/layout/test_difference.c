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
    ck_assert_int_eq(model_add_unit(&b, "more", 1, &e), 0);
    differ("number of units: 2 on rank 0, 3 on rank 3");
    b.unit_count--;
    strcpy(b.units[1].name, "tail");
    differ("name of unit 1: \"head\" on rank 0, \"tail\" on rank 3");
    strcpy(b.units[1].name, "head");
    b.units[0].contributions = 2;
    differ("contributions to unit \"embedding\": 1 on rank 0, 2 on rank 3");
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
    fixture_tensor(&b, "head.more", 1);
    differ("number of tensors in unit \"head\": 2 on rank 0, 3 on rank 3");
}
END_TEST

START_TEST(attributes) {
    struct tensor *t = &b.tensors[1], same = *t;
    t->lr_multiplier = 0.5f;
    differ("learning rate multiplier of tensor \"embedding.scale\": 1 on rank 0, 0.5 on rank 3");
    *t = same;
    t->frozen = true;
    differ("frozen flag of tensor \"embedding.scale\": not set on rank 0, set on rank 3");
    *t = same;
    t->ignored = true;
    differ("ignored flag of tensor \"embedding.scale\": not set on rank 0, set on rank 3");
    *t = same;
    t->absent_ok = true;
    differ("absent_ok flag of tensor \"embedding.scale\": not set on rank 0, set on rank 3");
    *t = same;
    strcpy(t->alias, "head.bias");
    differ("alias of tensor \"embedding.scale\": \"\" on rank 0, \"head.bias\" on rank 3");
    *t = same;
    t->dtype = DTYPE_FP32;
    differ("dtype of tensor \"embedding.scale\": \"none\" on rank 0, \"fp32\" on rank 3");
}
END_TEST

START_TEST(initialisers) {
    struct initializer *x = &a.tensors[1].init, *y = &b.tensors[1].init;
    struct err e;
    y->seed = 5; /* of values that are loaded: means nothing */
    ck_assert_int_eq(model_difference(&a, 0, &b, 3, &e), 0);
    y->kind = INIT_ZEROS;
    differ("initialiser of tensor \"embedding.scale\": \"loaded\" on rank 0, \"zeros\" on rank 3");
    *x = *y = (struct initializer){.kind = INIT_CONSTANT, .a = 1};
    y->seed = 5;
    ck_assert_int_eq(model_difference(&a, 0, &b, 3, &e), 0);
    y->a = 2;
    differ("initialiser's a of tensor \"embedding.scale\": 1 on rank 0, 2 on rank 3");
    *x = *y = (struct initializer){.kind = INIT_NORMAL, .b = 0.5, .seed = 7};
    y->b = 1;
    differ("initialiser's b of tensor \"embedding.scale\": 0.5 on rank 0, 1 on rank 3");
    *y = *x;
    y->seed = 8;
    differ("initialiser's seed of tensor \"embedding.scale\": 7 on rank 0, 8 on rank 3");
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

START_TEST(optimizers) {
    struct optimizer_options *o = &b.optimizer, same = *o;
    o->beta1 = 0.5;
    differ("beta1: 0.90000000000000002 on rank 0, 0.5 on rank 3");
    *o = same;
    o->beta2 = 0.5;
    differ("beta2: 0.999 on rank 0, 0.5 on rank 3");
    *o = same;
    o->epsilon = 0.25;
    differ("epsilon: 1e-08 on rank 0, 0.25 on rank 3");
    *o = same;
    o->weight_decay = 0.10000000000000002; /* the next double: must show */
    differ("weight decay: 0.10000000000000001 on rank 0, 0.10000000000000002 on rank 3");
    *o = same;
    o->clip_value = 1;
    differ("clip value: 0 on rank 0, 1 on rank 3");
    *o = same;
    o->momentum = 0.5;
    differ("momentum: 0 on rank 0, 0.5 on rank 3");
    *o = same;
    o->nesterov = true;
    differ("nesterov: not set on rank 0, set on rank 3");
    o->kind = OPTIMIZER_SGD;
    differ("optimizer: \"adamw\" on rank 0, \"sgd\" on rank 3");
}
END_TEST

START_TEST(numbers) {
    b.param_dtype = DTYPE_FP32;
    differ("dtype of parameters: \"bf16\" on rank 0, \"fp32\" on rank 3");
    b.param_dtype = DTYPE_BF16;
    b.wire_dtype = DTYPE_BF16;
    differ("dtype of gradients on the wire: \"fp32\" on rank 0, \"bf16\" on rank 3");
    b.wire_dtype = DTYPE_FP32;
    b.kept_dtype = DTYPE_BF16;
    differ("dtype of kept gradients: \"fp32\" on rank 0, \"bf16\" on rank 3");
    b.kept_dtype = DTYPE_FP32;
    b.strategy = STRATEGY_DDP;
    differ("strategy: \"zero3\" on rank 0, \"ddp\" on rank 3");
    b.strategy = STRATEGY_ZERO3;
    b.shard_size = 2; /* not a hybrid's: means nothing */
    struct err e;
    ck_assert_int_eq(model_difference(&a, 0, &b, 3, &e), 0);
    a.strategy = b.strategy = STRATEGY_HYBRID_ZERO2;
    differ("shard size: 0 on rank 0, 2 on rank 3");
    b.shard_size = 0;
    b.micro_batches = 4;
    differ("number of micro-batches: 2 on rank 0, 4 on rank 3");
    b.micro_batches = 2;
    b.gradient_divisor = 8;
    differ("gradient divisor: 0 on rank 0, 8 on rank 3");
}
END_TEST

START_TEST(scaling) {
    struct err e;
    b.scaling.start = 8;
    differ("loss scale at the start: 1 on rank 0, 8 on rank 3");
    a.scaling = (struct loss_scaling){.dynamic = true};
    ck_assert_int_eq(model_check(&a, &e), 0);
    differ("dynamic loss scaling: set on rank 0, not set on rank 3");
    b.scaling = a.scaling;
    b.scaling.factor = 4;
    differ("loss scale factor: 2 on rank 0, 4 on rank 3");
    b.scaling = a.scaling;
    b.scaling.floor = 2;
    differ("loss scale floor: 1 on rank 0, 2 on rank 3");
    b.scaling = a.scaling;
    b.scaling.window = 7;
    differ("loss scale window: 1000 on rank 0, 7 on rank 3");
    b.scaling = a.scaling;
    b.scaling.hysteresis = 1;
    differ("loss scale hysteresis: 2 on rank 0, 1 on rank 3");
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
    tcase_add_test(t, attributes);
    tcase_add_test(t, initialisers);
    tcase_add_test(t, optimizers);
    tcase_add_test(t, numbers);
    tcase_add_test(t, scaling);
    suite_add_tcase(s, t);
    return run_suite(s);
}
