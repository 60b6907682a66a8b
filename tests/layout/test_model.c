/* model_check on tensors and numbers; names and plans have their own tests. */
#include <math.h>

#include "tests/base/suite.h"
#include "tests/layout/fixture.h"

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

static int add(struct model *m, const char *name, size_t dims, const uint64_t *shape,
               struct err *e) {
    const struct tensor t = model_tensor(name, dims, shape);
    return model_add_tensor(m, &t, e);
}

START_TEST(names) {
    struct model m = fixture_empty(STRATEGY_DDP, DTYPE_FP32, 1);
    struct err e;
    char name[MODEL_NAME + 1];
    memset(name, 'a', sizeof name);
    name[MODEL_NAME] = 0; /* 128 letters */
    ck_assert_int_eq(model_add_unit(&m, name, 1, &e), -ST_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(e.text, "is over 127 bytes"));
    ck_assert_int_eq(add(&m, name, 0, NULL, &e), -ST_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(e.text, "is over 127 bytes"));
    name[MODEL_NAME - 1] = 0;
    ck_assert_int_eq(model_add_unit(&m, name, 1, &e), 0);
    ck_assert_str_eq(m.units[0].name, name);
    ck_assert_int_eq(model_add_unit(&m, "", 1, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "a unit has an empty name");
    ck_assert_int_eq(add(&m, "", 0, NULL, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(add(&m, "a\x1b[2J", 0, NULL, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "a tensor name has a control character at byte 1");
    struct tensor t = model_tensor("w", 0, NULL);
    strcpy(t.alias, "\n");
    ck_assert_int_eq(model_add_tensor(&m, &t, &e), -ST_INVALID_ARGUMENT);
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
    ck_assert_int_eq(add(&m, "w", 0, NULL, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "tensor \"w\" comes before any unit");
    ck_assert_int_eq(model_add_op(&m, PLAN_GATHER, 0, &e), -ST_INVALID_ARGUMENT);
    fixture_unit(&m, "u");
    ck_assert_int_eq(add(&m, "w", 9, shape, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "tensor \"w\" has more dimensions than the limit of 8");
    ck_assert_int_eq(add(&m, "w", SIZE_MAX, shape, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(add(&m, "w", 8, shape, &e), 0);
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
        if (model_add_unit(&m, name, 1, &e)) {
            ck_abort_msg("%s", e.text);
        }
    }
    ck_assert_int_eq(model_add_unit(&m, "one more", 1, &e), -ST_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(e.text, "too many units: the limit is 65536");
    model_free(&m);
}
END_TEST

START_TEST(defaults) {
    struct model m = {0};
    model_defaults(&m);
    ck_assert(m.param_dtype == DTYPE_FP32 && m.wire_dtype == DTYPE_FP32);
    ck_assert(m.kept_dtype == DTYPE_FP32 && m.micro_batches == 1);
    ck_assert(m.optimizer.kind == OPTIMIZER_ADAMW && !m.scaling.dynamic);
    const struct tensor t = model_tensor("w", 0, NULL);
    ck_assert(t.decay_multiplier == 1 && t.lr_multiplier == 1 && !t.frozen && !t.ignored);
    ck_assert(t.dtype == DTYPE_NONE && t.init.kind == INIT_LOADED && !t.alias[0]);
}
END_TEST

START_TEST(strategies) {
    static const char *const known[] = {"ddp",   "zero1",        "zero2",
                                        "zero3", "hybrid_shard", "hybrid_zero2"};
    struct model m = fixture_model();
    for (int i = 0; i < 6; i++) {
        m.strategy = (enum strategy)(STRATEGY_DDP + i);
        ck_assert_str_eq(strategy_name(m.strategy), known[i]);
        ck_assert_int_eq(strategy_parse(known[i]), m.strategy);
        fixture_good(&m);
    }
    m.strategy = STRATEGY_NONE;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "unknown strategy (number 0): use ddp, zero1, zero2, zero3, hybrid_shard or "
                    "hybrid_zero2");
    m.strategy = (enum strategy)77;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "unknown strategy (number 77): use ddp, zero1, zero2, zero3, hybrid_shard or "
                    "hybrid_zero2");
    model_free(&m);
    ck_assert_int_eq(strategy_parse("full_shard"), STRATEGY_ZERO3);
    ck_assert_int_eq(strategy_parse("shard_grad_op"), STRATEGY_ZERO2);
    ck_assert_int_eq(strategy_parse("no_shard"), STRATEGY_DDP);
    ck_assert_int_eq(strategy_parse("_hybrid_shard_zero2"), STRATEGY_HYBRID_ZERO2);
    ck_assert_int_eq(strategy_parse("none"), STRATEGY_NONE);
    ck_assert_int_eq(strategy_parse("Zero3"), STRATEGY_NONE);
    ck_assert_str_eq(strategy_name((enum strategy)77), "unknown");
}
END_TEST

START_TEST(dtypes) {
    ck_assert_int_eq(dtype_parse("bf16"), DTYPE_BF16);
    ck_assert_int_eq(dtype_parse("fp32"), DTYPE_FP32);
    ck_assert_int_eq(dtype_parse("fp16"), DTYPE_FP16);
    ck_assert_int_eq(dtype_parse("none"), DTYPE_NONE);
    ck_assert_str_eq(dtype_name(DTYPE_FP16), "fp16");
    ck_assert_uint_eq(dtype_bytes(DTYPE_BF16), 2);
    ck_assert_uint_eq(dtype_bytes(DTYPE_FP16), 2);
    ck_assert_uint_eq(dtype_bytes(DTYPE_FP32), 4);
    struct model m = fixture_model();
    m.param_dtype = DTYPE_NONE;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "unknown dtype of parameters (number 0): use fp32, bf16 or fp16");
    m.param_dtype = DTYPE_BF16;
    m.wire_dtype = DTYPE_FP16;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "dtype of gradients on the wire is fp16 (number 3): use fp32 or bf16");
    m.wire_dtype = DTYPE_BF16;
    m.kept_dtype = DTYPE_NONE;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "dtype of kept gradients is none (number 0): use fp32 or bf16");
    m.kept_dtype = DTYPE_BF16;
    m.tensors[3].dtype = (enum dtype)4;
    fixture_refused(&m, ST_INVALID_ARGUMENT, "tensor \"head.bias\": unknown dtype (number 4)");
    m.tensors[3].dtype = DTYPE_FP32;
    fixture_good(&m);
    model_free(&m);
}
END_TEST

#define LOST                                                                                       \
    " is gathered as fp16 and there is no loss scaling: its small gradients would be lost; ask "   \
    "for dynamic loss scaling or use bf16"

START_TEST(fp16_needs_loss_scaling) {
    struct model m = fixture_model();
    m.param_dtype = DTYPE_FP16;
    fixture_refused(&m, ST_INVALID_ARGUMENT, "tensor \"embedding.weight\"" LOST);
    m.scaling = (struct loss_scaling){.dynamic = true};
    fixture_good(&m);
    ck_assert_double_eq(m.scaling.start, 65536);
    ck_assert_double_eq(m.scaling.factor, 2);
    ck_assert_uint_eq(m.scaling.window, 1000);
    m.scaling = (struct loss_scaling){.start = 128}; /* a constant one */
    fixture_good(&m);
    m.scaling = (struct loss_scaling){.start = -1};
    struct err e;
    ck_assert_int_eq(model_check(&m, &e), -ST_INVALID_ARGUMENT);
    m.scaling = (struct loss_scaling){0};
    m.param_dtype = DTYPE_BF16;
    m.tensors[2].dtype = DTYPE_FP16;
    fixture_refused(&m, ST_INVALID_ARGUMENT, "tensor \"head.weight\"" LOST);
    m.tensors[2].frozen = true; /* no gradient to lose */
    fixture_good(&m);
    model_free(&m);
}
END_TEST

START_TEST(numbers) {
    struct model m = fixture_model();
    struct err e;
    m.micro_batches = 0;
    fixture_refused(&m, ST_INVALID_ARGUMENT, "0 micro-batches: must be 1 to 4096");
    m.micro_batches = 4097;
    fixture_refused(&m, ST_INVALID_ARGUMENT, "4097 micro-batches: must be 1 to 4096");
    m.micro_batches = 1;
    m.optimizer.beta1 = 1;
    ck_assert_int_eq(model_check(&m, &e), -ST_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(e.text, "beta1"));
    m.optimizer.beta1 = 0;
    m.gradient_divisor = -2;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "gradient divisor -2: must be finite and above 0, or 0 for the mean");
    m.gradient_divisor = 64;
    m.units[1].contributions = 0;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "unit \"head\" has 0 contributions: must be at least 1");
    m.units[1].contributions = 1;
    m.tensors[1].decay_multiplier = NAN;
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"embedding.scale\": weight decay multiplier nan must be finite and at least 0");
    m.tensors[1].decay_multiplier = 2;
    m.tensors[1].lr_multiplier = -1;
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"embedding.scale\": learning rate multiplier -1 must be finite and at least 0");
    m.tensors[1].lr_multiplier = 0;
    fixture_good(&m);
    model_free(&m);
}
END_TEST

START_TEST(initialisers) {
    struct model m = fixture_model();
    struct initializer *i = &m.tensors[2].init;
    *i = (struct initializer){.kind = INIT_CONSTANT, .a = INFINITY};
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "tensor \"head.weight\": first value inf must be finite");
    *i = (struct initializer){.kind = INIT_NORMAL, .b = -0.5};
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"head.weight\": first values of mean 0 and standard deviation -0.5: both must "
        "be finite, the second at least 0");
    *i = (struct initializer){.kind = INIT_UNIFORM, .a = 1, .b = 0.5};
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"head.weight\": first values from 1 to 0.5: both must be finite and in order");
    *i = (struct initializer){.kind = (enum init_kind)9};
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "tensor \"head.weight\": unknown initialiser (number 9)");
    *i = (struct initializer){.kind = INIT_UNIFORM, .a = -1, .b = 1};
    fixture_good(&m);
    ck_assert(model_unit_is_loaded(&m, 1));
    m.tensors[3].init.kind = INIT_ZEROS;
    ck_assert(!model_unit_is_loaded(&m, 1));
    m.tensors[3].init.kind = INIT_LOADED;
    m.tensors[3].ignored = true;
    ck_assert(!model_unit_is_loaded(&m, 1));
    model_free(&m);
}
END_TEST

START_TEST(absent) {
    struct model m = fixture_model();
    ck_assert(!model_unit_may_be_absent(&m, 1));
    m.tensors[2].absent_ok = true;
    ck_assert(!model_unit_may_be_absent(&m, 1)); /* its bias may not */
    m.tensors[3].frozen = true;
    ck_assert(model_unit_may_be_absent(&m, 1));
    m.tensors[2].frozen = true;
    ck_assert(!model_unit_may_be_absent(&m, 1)); /* nothing to be absent */
    model_free(&m);
}
END_TEST

START_TEST(shapes) {
    struct model m = fixture_model();
    struct tensor *t = &m.tensors[2];
    t->shape[0] = t->shape[1] = UINT64_C(1) << 40;
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
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

int main(void) {
    Suite *s = suite_create("model");
    TCase *t = tcase_create("all");
    tcase_add_test(t, good_model);
    tcase_add_test(t, names);
    tcase_add_test(t, order_and_limits_of_building);
    tcase_add_test(t, defaults);
    tcase_add_test(t, strategies);
    tcase_add_test(t, dtypes);
    tcase_add_test(t, fp16_needs_loss_scaling);
    tcase_add_test(t, numbers);
    tcase_add_test(t, initialisers);
    tcase_add_test(t, absent);
    tcase_add_test(t, shapes);
    suite_add_tcase(s, t);
    return run_suite(s);
}
