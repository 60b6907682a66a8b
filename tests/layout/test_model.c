#include <math.h>
#include <stdlib.h>

#include "tests/base/suite.h"
#include "tests/layout/fixture.h"

static void refused(struct model *m, enum status code, const char *text) {
    struct err e = {0};
    ck_assert_int_eq(model_check(m, &e), -(int)code);
    ck_assert_int_eq(e.code, (int)code);
    ck_assert_str_eq(e.text, text);
}

START_TEST(good_model) {
    struct model m = fixture_model();
    fixture_good(&m);
    ck_assert_uint_eq(m.tensors[0].elements, 256);
    ck_assert_uint_eq(m.tensors[1].elements, 1); /* no dimension: one element */
    ck_assert_uint_eq(m.tensors[2].elements, 105);
    ck_assert_uint_eq(m.units[1].first, 2);
    ck_assert_uint_eq(m.units[1].tensors, 2);
    ck_assert_str_eq(model_plan(&m, "eval")->name, "eval");
    ck_assert_uint_eq(model_plan(&m, "train")->count, 6);
    ck_assert_ptr_null(model_plan(&m, "test"));
    model_free(&m);
    ck_assert_ptr_null(m.units);
}
END_TEST

START_TEST(names) {
    struct model m = fixture_empty(STRATEGY_DDP, DTYPE_FP32, 1);
    struct err e;
    char name[MODEL_NAME + 1];
    memset(name, 'a', sizeof name);
    name[MODEL_NAME] = 0; /* 128 letters */
    ck_assert_int_eq(model_add_unit(&m, name, &e), -ST_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(e.text, "is over 127 bytes"));
    name[MODEL_NAME - 1] = 0;
    ck_assert_int_eq(model_add_unit(&m, name, &e), 0);
    ck_assert_str_eq(m.units[0].name, name);
    ck_assert_int_eq(model_add_unit(&m, "", &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "a unit has an empty name");
    ck_assert_int_eq(model_add_tensor(&m, NULL, 0, NULL, 1, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(model_add_tensor(&m, "a\x1b[2J", 0, NULL, 1, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "a tensor name has a control character at byte 1");
    ck_assert_int_eq(model_add_plan(&m, "", &e), -ST_INVALID_ARGUMENT);
    ck_assert_uint_eq(m.unit_count, 1);
    ck_assert_uint_eq(m.tensor_count, 0);
    ck_assert_uint_eq(m.plan_count, 0);
    model_free(&m);
}
END_TEST

START_TEST(order_and_limits_of_building) {
    struct model m = fixture_empty(STRATEGY_DDP, DTYPE_FP32, 1);
    struct err e;
    uint64_t shape[MODEL_DIMS + 1] = {0};
    char name[16];
    ck_assert_int_eq(model_add_tensor(&m, "w", 0, NULL, 1, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "tensor \"w\" comes before any unit");
    ck_assert_int_eq(model_add_op(&m, PLAN_GATHER, 0, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(model_add_unit(&m, "u", &e), 0);
    ck_assert_int_eq(model_add_tensor(&m, "w", 9, shape, 1, &e), -ST_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(e.text, "tensor \"w\" has 9 dimensions: the limit is 8");
    ck_assert_int_eq(model_add_tensor(&m, "w", 8, shape, 1, &e), 0);
    for (int i = 0; i < MODEL_MAX_PLANS; i++) {
        (void)snprintf(name, sizeof name, "plan%d", i);
        ck_assert_int_eq(model_add_plan(&m, name, &e), 0);
    }
    ck_assert_int_eq(model_add_plan(&m, "one more", &e), -ST_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(e.text, "too many plans: the limit is 8");
    ck_assert_int_eq(model_add_op(&m, PLAN_GATHER, UINT64_C(1) << 32, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(model_add_op(&m, (enum plan_kind)3, 0, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "plan \"plan7\" position 0: operation 3 is neither gather nor reduce");
    model_free(&m);
    m = fixture_empty(STRATEGY_DDP, DTYPE_FP32, 1);
    for (int i = 0; i < MODEL_MAX_UNITS; i++) {
        (void)snprintf(name, sizeof name, "u%d", i);
        if (model_add_unit(&m, name, &e)) {
            ck_abort_msg("%s", e.text);
        }
    }
    ck_assert_int_eq(model_add_unit(&m, "one more", &e), -ST_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(e.text, "too many units: the limit is 65536");
    model_free(&m);
}
END_TEST

START_TEST(strategies) {
    static const struct {
        enum strategy s;
        const char *name;
    } absent[] = {{STRATEGY_ZERO1, "zero1"},
                  {STRATEGY_HYBRID_SHARD, "hybrid_shard"},
                  {STRATEGY_HYBRID_ZERO2, "hybrid_zero2"}};
    struct model m = fixture_model();
    char text[128];
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        m.strategy = absent[i].s;
        (void)snprintf(text, sizeof text,
                       "strategy %s is not built in this version: use ddp, zero2 or zero3",
                       absent[i].name);
        refused(&m, ST_UNIMPLEMENTED, text);
        ck_assert_int_eq(strategy_parse(absent[i].name), absent[i].s);
    }
    m.strategy = STRATEGY_NONE;
    refused(&m, ST_INVALID_ARGUMENT, "unknown strategy (number 0): use ddp, zero2 or zero3");
    m.strategy = (enum strategy)77;
    refused(&m, ST_INVALID_ARGUMENT, "unknown strategy (number 77): use ddp, zero2 or zero3");
    model_free(&m);
    ck_assert_int_eq(strategy_parse("full_shard"), STRATEGY_ZERO3);
    ck_assert_int_eq(strategy_parse("ddp"), STRATEGY_DDP);
    ck_assert_int_eq(strategy_parse("none"), STRATEGY_NONE);
    ck_assert_int_eq(strategy_parse("Zero3"), STRATEGY_NONE);
    ck_assert_str_eq(strategy_name(STRATEGY_ZERO3), "zero3");
    ck_assert_str_eq(strategy_name((enum strategy)77), "unknown");
}
END_TEST

START_TEST(dtypes) {
    ck_assert_int_eq(dtype_parse("bf16"), DTYPE_BF16);
    ck_assert_int_eq(dtype_parse("fp32"), DTYPE_FP32);
    ck_assert_int_eq(dtype_parse("fp16"), DTYPE_NONE);
    ck_assert_str_eq(dtype_name(DTYPE_BF16), "bf16");
    ck_assert_uint_eq(dtype_bytes(DTYPE_BF16), 2);
    ck_assert_uint_eq(dtype_bytes(DTYPE_FP32), 4);
    struct model m = fixture_model();
    m.param_dtype = DTYPE_NONE;
    refused(&m, ST_INVALID_ARGUMENT, "unknown dtype of parameters (number 0): use fp32 or bf16");
    model_free(&m);
}
END_TEST

START_TEST(numbers) {
    struct model m = fixture_model();
    m.micro_batches = 0;
    refused(&m, ST_INVALID_ARGUMENT, "0 micro-batches: must be 1 to 4096");
    m.micro_batches = 4097;
    refused(&m, ST_INVALID_ARGUMENT, "4097 micro-batches: must be 1 to 4096");
    m.micro_batches = 1;
    m.adamw.beta1 = 1;
    refused(&m, ST_INVALID_ARGUMENT, "beta1 1: must be in [0, 1)");
    m.adamw.beta1 = 0;
    m.adamw.beta2 = NAN;
    refused(&m, ST_INVALID_ARGUMENT, "beta2 nan: must be in [0, 1)");
    m.adamw.beta2 = 0.5;
    m.adamw.epsilon = 0;
    refused(&m, ST_INVALID_ARGUMENT, "epsilon 0: must be finite and above 0");
    m.adamw.epsilon = 1;
    m.adamw.weight_decay = INFINITY;
    refused(&m, ST_INVALID_ARGUMENT, "weight decay inf: must be finite and at least 0");
    m.adamw.weight_decay = 0;
    m.tensors[1].decay_multiplier = NAN;
    refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"embedding.scale\": weight decay multiplier nan must be finite and at least 0");
    m.tensors[1].decay_multiplier = 2;
    fixture_good(&m);
    model_free(&m);
}
END_TEST

START_TEST(shapes) {
    struct model m = fixture_model();
    struct tensor *t = &m.tensors[2];
    t->shape[0] = t->shape[1] = UINT64_C(1) << 40;
    refused(&m, ST_INVALID_ARGUMENT,
            "tensor \"head.weight\" of shape [1099511627776, 1099511627776, 7] has more than "
            "17592186044416 elements");
    t->shape[0] = UINT64_C(1) << 32; /* 2^64 + ... would wrap to something small */
    t->shape[1] = UINT64_C(1) << 32;
    t->shape[2] = 1;
    struct err e;
    ck_assert_int_eq(model_check(&m, &e), -ST_INVALID_ARGUMENT);
    t->shape[2] = 0; /* nothing, whatever else */
    fixture_good(&m);
    ck_assert_uint_eq(t->elements, 0);
    model_free(&m);
}
END_TEST

START_TEST(twins) {
    struct model m = fixture_model();
    strcpy(m.tensors[3].name, "embedding.scale");
    refused(&m, ST_INVALID_ARGUMENT,
            "tensor \"embedding.scale\" is in unit \"embedding\" and in unit \"head\"");
    strcpy(m.tensors[3].name, "head.weight");
    refused(&m, ST_INVALID_ARGUMENT, "unit \"head\" has two tensors \"head.weight\"");
    strcpy(m.tensors[3].name, "embedding"); /* a unit may be called as a tensor is */
    fixture_good(&m);
    strcpy(m.units[1].name, "embedding");
    refused(&m, ST_INVALID_ARGUMENT, "units 0 and 1 have the same name \"embedding\"");
    model_free(&m);
}
END_TEST

START_TEST(plans) {
    struct model m = fixture_model();
    struct plan *train = &m.plans[0], *eval = &m.plans[1];
    train->ops[0].unit = 2;
    refused(&m, ST_INVALID_ARGUMENT,
            "plan \"train\" position 0: there is no unit 2, the model has 2");
    train->ops[0].unit = 0;
    eval->ops[1].kind = PLAN_REDUCE;
    refused(&m, ST_INVALID_ARGUMENT,
            "plan \"eval\" position 1 reduces unit \"head\": only the plan \"train\" may reduce");
    eval->ops[1].kind = PLAN_GATHER;
    train->ops[5].unit = 1; /* reduces head twice */
    refused(&m, ST_INVALID_ARGUMENT,
            "plan \"train\" position 5 reduces unit \"head\" a second time");
    train->ops[5].unit = 0;
    train->ops[5].kind = PLAN_GATHER;
    refused(&m, ST_INVALID_ARGUMENT, "plan \"train\" never reduces unit \"embedding\"");
    train->ops[5].kind = PLAN_REDUCE;
    train->ops[0].kind = PLAN_REDUCE;
    refused(&m, ST_INVALID_ARGUMENT,
            "plan \"train\" position 0 reduces unit \"embedding\", which was not gathered before");
    train->ops[0].kind = PLAN_GATHER;
    strcpy(eval->name, "train");
    refused(&m, ST_INVALID_ARGUMENT, "two plans are named \"train\"");
    strcpy(eval->name, "other");
    strcpy(train->name, "practise");
    refused(&m, ST_INVALID_ARGUMENT, "the model has no plan \"train\"");
    model_free(&m);
    m = fixture_empty(STRATEGY_DDP, DTYPE_FP32, 1);
    refused(&m, ST_INVALID_ARGUMENT, "the model has no unit");
    model_free(&m);
}
END_TEST

/* Checks of names must not be quadratic: a peer may register this much. */
START_TEST(many_tensors) {
    struct model m = fixture_empty(STRATEGY_DDP, DTYPE_FP32, 1);
    struct err e;
    char name[32];
    ck_assert_int_eq(model_add_unit(&m, "u", &e), 0);
    for (int i = 0; i < 100000; i++) {
        (void)snprintf(name, sizeof name, "tensor%d", i);
        if (model_add_tensor(&m, name, 0, NULL, 1, &e)) {
            ck_abort_msg("%s", e.text);
        }
    }
    fixture_plans(&m);
    fixture_good(&m);
    strcpy(m.tensors[99999].name, "tensor5");
    refused(&m, ST_INVALID_ARGUMENT, "unit \"u\" has two tensors \"tensor5\"");
    model_free(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("model");
    TCase *t = tcase_create("all");
    tcase_add_test(t, good_model);
    tcase_add_test(t, names);
    tcase_add_test(t, order_and_limits_of_building);
    tcase_add_test(t, strategies);
    tcase_add_test(t, dtypes);
    tcase_add_test(t, numbers);
    tcase_add_test(t, shapes);
    tcase_add_test(t, twins);
    tcase_add_test(t, plans);
    tcase_add_test(t, many_tensors);
    suite_add_tcase(s, t);
    return run_suite(s);
}
