/* The model's checks and its message. */
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "tests/base/suite.h"
#include "fake.h"

static struct err e;

static int make(const struct zerod_model *m) {
    struct packed_model p;
    int rc = packed_model_make(m, &p, &e);
    packed_model_free(&p);
    return rc;
}

static void refused(const struct zerod_model *m, int code, const char *part) {
    ck_assert_int_eq(make(m), -code);
    ck_assert_msg(strstr(e.text, part) != NULL, "'%s' lacks '%s'", e.text, part);
}

static Zerod__V1__Model *through_the_wire(const struct zerod_model *m) {
    struct packed_model p;
    ck_assert_msg(packed_model_make(m, &p, &e) == 0, "%s", e.text);
    size_t n = zerod__v1__model__get_packed_size(&p.model);
    uint8_t *bytes = malloc(n);
    zerod__v1__model__pack(&p.model, bytes);
    packed_model_free(&p);
    Zerod__V1__Model *u = zerod__v1__model__unpack(NULL, n, bytes);
    free(bytes);
    ck_assert_ptr_nonnull(u);
    return u;
}

START_TEST(the_message_has_all) {
    Zerod__V1__Model *u = through_the_wire(fake_model());
    ck_assert_uint_eq(u->n_units, 3);
    ck_assert_str_eq(u->units[0]->tensors[1]->name, "a.bias");
    ck_assert_uint_eq(u->units[0]->tensors[0]->shape[1], 3);
    ck_assert_uint_eq(u->units[2]->tensors[0]->n_shape, 0);
    ck_assert(u->units[1]->tensors[0]->weight_decay_multiplier == 1);
    ck_assert_uint_eq(u->n_plans, 2);
    ck_assert_uint_eq(u->plans[0]->n_ops, 7);
    ck_assert_uint_eq(u->plans[0]->ops[5]->unit, 1);
    ck_assert_int_eq(u->plans[0]->ops[5]->kind, ZEROD__V1__COLLECTIVE__COLLECTIVE_REDUCE);
    ck_assert_int_eq(u->strategy, ZEROD__V1__STRATEGY__STRATEGY_ZERO3);
    ck_assert_uint_eq(u->micro_batches, 2);
    ck_assert(u->epsilon == 1e-8 && u->beta2 == 0.95);
    zerod__v1__model__free_unpacked(u, NULL);
}
END_TEST

START_TEST(the_message_has_what_is_rare) {
    struct zerod_model m = *fake_model();
    struct zerod_unit units[3];
    const struct zerod_tensor t[] = {
        {.name = "kept", .frozen = true, .lr_multiplier = 0.5f, .dtype = ZEROD_FP32},
        {.name = "own", .ignored = true},
        {.name = "tied", .alias = "a.weight"},
        {.name = "expert", .absent_ok = true, .init = {ZEROD_NORMAL, 3, 0.5, 0.25}},
    };
    memcpy(units, m.units, sizeof units);
    units[2] = (struct zerod_unit){"c", 4, t, 2};
    m.units = units;
    m.strategy = "hybrid_zero2";
    m.shard_size = 4;
    m.wire_dtype = ZEROD_BF16;
    m.kept_dtype = ZEROD_BF16;
    m.optimizer = ZEROD_SGD;
    m.momentum = 0.9;
    m.nesterov = true;
    m.clip_value = 2;
    m.gradient_divisor = 3;
    m.scaling = (struct zerod_scaling){true, 1024, 4, 2, 10, 3};
    Zerod__V1__Model *u = through_the_wire(&m);
    const Zerod__V1__Unit *c = u->units[2];
    ck_assert_uint_eq(c->contributions, 2);
    ck_assert(c->tensors[0]->frozen && c->tensors[0]->lr_multiplier == 0.5f);
    ck_assert_int_eq(c->tensors[0]->dtype, ZEROD__V1__DTYPE__DTYPE_FP32);
    ck_assert(c->tensors[1]->ignored && !c->tensors[1]->init);
    ck_assert_str_eq(c->tensors[2]->alias, "a.weight");
    ck_assert(c->tensors[3]->absent_ok);
    ck_assert_int_eq(c->tensors[3]->init->kind, ZEROD__V1__INIT_KIND__INIT_NORMAL);
    ck_assert_uint_eq(c->tensors[3]->init->seed, 3);
    ck_assert(c->tensors[3]->init->a == 0.5 && c->tensors[3]->init->b == 0.25);
    ck_assert_int_eq(u->strategy, ZEROD__V1__STRATEGY__STRATEGY_HYBRID_ZERO2);
    ck_assert_uint_eq(u->shard_size, 4);
    ck_assert_int_eq(u->wire_dtype, ZEROD__V1__DTYPE__DTYPE_BF16);
    ck_assert_int_eq(u->kept_dtype, ZEROD__V1__DTYPE__DTYPE_BF16);
    ck_assert_int_eq(u->optimizer, ZEROD__V1__OPTIMIZER__OPTIMIZER_SGD);
    ck_assert(u->momentum == 0.9 && u->nesterov && u->clip_value == 2 && u->gradient_divisor == 3);
    ck_assert(u->scaling->dynamic && u->scaling->start == 1024 && u->scaling->factor == 4);
    ck_assert(u->scaling->floor == 2);
    ck_assert_uint_eq(u->scaling->window, 10);
    ck_assert_uint_eq(u->scaling->hysteresis, 3);
    zerod__v1__model__free_unpacked(u, NULL);
}
END_TEST

START_TEST(units_are_checked) {
    struct zerod_model m = *fake_model();
    refused(NULL, ST_INVALID_ARGUMENT, "model is NULL");
    m.unit_count = 0;
    refused(&m, ST_INVALID_ARGUMENT, "no units");
    m.unit_count = SIZE_MAX;
    refused(&m, ST_RESOURCE_EXHAUSTED, "65536");
    m = *fake_model();
    m.units = NULL;
    refused(&m, ST_INVALID_ARGUMENT, "units are NULL");

    struct zerod_unit units[3];
    memcpy(units, fake_model()->units, sizeof units);
    m.units = units;
    units[1].name = NULL;
    refused(&m, ST_INVALID_ARGUMENT, "unit 1 has no name");
    char name[200];
    memset(name, 'x', sizeof name);
    name[128] = '\0';
    units[1].name = name;
    refused(&m, ST_INVALID_ARGUMENT, "longer than 127 bytes");
    name[127] = '\0';
    ck_assert_int_eq(make(&m), 0);
    units[1].tensor_count = SIZE_MAX;
    refused(&m, ST_RESOURCE_EXHAUSTED, "1048576");
    units[1].tensor_count = 1;
    units[1].tensors = NULL;
    refused(&m, ST_INVALID_ARGUMENT, "are NULL");
}
END_TEST

START_TEST(tensors_are_checked) {
    struct zerod_model m = *fake_model();
    uint64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct zerod_tensor t = {.name = "t", .dims = 9, .shape = shape};
    struct zerod_unit units[3];
    memcpy(units, fake_model()->units, sizeof units);
    units[2].tensors = &t;
    m.units = units;
    refused(&m, ST_INVALID_ARGUMENT, "9 dimensions, the limit is 8");
    t.dims = 8;
    ck_assert_int_eq(make(&m), 0);
    t.dtype = (enum zerod_dtype)4;
    refused(&m, ST_INVALID_ARGUMENT, "dtype 4 of t");
    t.dtype = ZEROD_FP16;
    t.init.kind = (enum zerod_init_kind)5;
    refused(&m, ST_INVALID_ARGUMENT, "initialiser 5");
    t.init.kind = ZEROD_UNIFORM;
    char name[129];
    memset(name, 'x', 128);
    name[128] = '\0';
    t.alias = name;
    refused(&m, ST_INVALID_ARGUMENT, "alias is longer than 127");
    t.alias = NULL;
    shape[0] = shape[1] = UINT64_C(1) << 40;
    refused(&m, ST_INVALID_ARGUMENT, "tensor 't' has more than");
    shape[7] = 0;
    ck_assert_int_eq(make(&m), 0); /* nothing, however large the rest */
    t.shape = NULL;
    refused(&m, ST_INVALID_ARGUMENT, "no shape");
    t.name = "";
    refused(&m, ST_INVALID_ARGUMENT, "tensor 0 of c has no name");
}
END_TEST

START_TEST(plans_and_numbers_are_checked) {
    struct zerod_model m = *fake_model();
    struct zerod_op op = {ZEROD_GATHER, 3};
    struct zerod_plan plan = {"train", 1, &op};
    m.plans = &plan;
    m.plan_count = 1;
    refused(&m, ST_INVALID_ARGUMENT, "operation 0 is on unit 3, the model has 3");
    op = (struct zerod_op){(enum zerod_collective)3, 0};
    refused(&m, ST_INVALID_ARGUMENT, "neither gather nor reduce");
    plan.ops = NULL;
    refused(&m, ST_INVALID_ARGUMENT, "operations of plan 'train' are NULL");
    plan.op_count = SIZE_MAX;
    refused(&m, ST_RESOURCE_EXHAUSTED, "operations in a plan");
    m.plan_count = 0;
    refused(&m, ST_INVALID_ARGUMENT, "no plans");
    m = *fake_model();
    m.strategy = "zero9";
    refused(&m, ST_INVALID_ARGUMENT, "unknown strategy 'zero9'");
    m.strategy = NULL;
    ck_assert_int_eq(make(&m), 0);
    m.param_dtype = (enum zerod_dtype)7;
    refused(&m, ST_INVALID_ARGUMENT, "dtype 7 of param_dtype");
    m.param_dtype = ZEROD_BF16;
    m.wire_dtype = ZEROD_FP16;
    refused(&m, ST_INVALID_ARGUMENT, "dtype 3 of wire_dtype: must be fp32 (1) or bf16 (2)");
    m.wire_dtype = ZEROD_BF16;
    m.kept_dtype = ZEROD_FP16;
    refused(&m, ST_INVALID_ARGUMENT, "dtype 3 of kept_dtype");
    m.kept_dtype = ZEROD_FP32;
    m.optimizer = (enum zerod_optimizer)5;
    refused(&m, ST_INVALID_ARGUMENT, "optimizer 5");
    m.optimizer = ZEROD_LION;
    m.micro_batches = 4097;
    refused(&m, ST_INVALID_ARGUMENT, "4097 micro-batches");
}
END_TEST

int main(void) {
    Suite *s = suite_create("client/model");
    TCase *c = tcase_create("model");
    tcase_add_test(c, the_message_has_all);
    tcase_add_test(c, the_message_has_what_is_rare);
    tcase_add_test(c, units_are_checked);
    tcase_add_test(c, tensors_are_checked);
    tcase_add_test(c, plans_and_numbers_are_checked);
    suite_add_tcase(s, c);
    return run_suite(s);
}
