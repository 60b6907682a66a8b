/* Messages to structs and back: what is kept, and what a peer's nonsense is answered with. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "process/convert.h"
#include "tests/base/suite.h"

/* A model message of one unit with one tensor, built on static storage. */
static struct {
    Zerod__V1__Model model;
    Zerod__V1__Unit unit, *units[1];
    Zerod__V1__Tensor tensor, *tensors[1];
    Zerod__V1__Plan plan, *plans[1];
    Zerod__V1__PlanOp ops[3], *op_list[3];
    uint64_t shape[9];
} m;

static void setup(void) {
    memset(&m, 0, sizeof m);
    zerod__v1__model__init(&m.model);
    zerod__v1__unit__init(&m.unit);
    zerod__v1__tensor__init(&m.tensor);
    zerod__v1__plan__init(&m.plan);
    for (int i = 0; i < 3; i++) {
        zerod__v1__plan_op__init(&m.ops[i]);
        m.ops[i].kind =
            i ? ZEROD__V1__COLLECTIVE__COLLECTIVE_REDUCE : ZEROD__V1__COLLECTIVE__COLLECTIVE_GATHER;
        m.op_list[i] = &m.ops[i];
    }
    for (int i = 0; i < 9; i++) {
        m.shape[i] = 2;
    }
    m.units[0] = &m.unit;
    m.tensors[0] = &m.tensor;
    m.plans[0] = &m.plan;
    m.tensor.name = (char *)"w";
    m.tensor.shape = m.shape;
    m.tensor.n_shape = 2;
    m.tensor.weight_decay_multiplier = 1;
    m.unit.name = (char *)"u";
    m.unit.tensors = m.tensors;
    m.unit.n_tensors = 1;
    m.plan.name = (char *)"train";
    m.plan.ops = m.op_list;
    m.plan.n_ops = 2;
    m.model.units = m.units;
    m.model.n_units = 1;
    m.model.plans = m.plans;
    m.model.n_plans = 1;
    m.model.beta1 = 0.9;
    m.model.beta2 = 0.95;
    m.model.epsilon = 1e-8;
}

static const struct model_defaults defaults = {.strategy = STRATEGY_ZERO2,
                                               .param_dtype = DTYPE_BF16};

START_TEST(fills_in_what_the_trainer_left_open) {
    struct model out;
    struct err e = {0};
    ck_assert_msg(model_from_message(&m.model, &defaults, &out, &e) == 0, "%s", e.text);
    ck_assert_int_eq(out.strategy, STRATEGY_ZERO2);
    ck_assert_int_eq(out.param_dtype, DTYPE_BF16);
    ck_assert_uint_eq(out.micro_batches, 1);
    ck_assert_int_eq(out.wire_dtype, DTYPE_FP32);
    ck_assert_int_eq(out.kept_dtype, DTYPE_FP32);
    ck_assert_int_eq(out.optimizer.kind, OPTIMIZER_ADAMW);
    ck_assert_uint_eq(out.units[0].contributions, 1);
    ck_assert_float_eq(out.tensors[0].lr_multiplier, 1);
    ck_assert_uint_eq(out.tensors[0].elements, 4);
    Zerod__V1__Model filled = m.model;
    model_fill_message(&out, &filled);
    ck_assert_int_eq(filled.strategy, ZEROD__V1__STRATEGY__STRATEGY_ZERO2);
    ck_assert_int_eq(filled.param_dtype, ZEROD__V1__DTYPE__DTYPE_BF16);
    ck_assert_int_eq(filled.wire_dtype, ZEROD__V1__DTYPE__DTYPE_FP32);
    ck_assert_uint_eq(filled.micro_batches, 1);
    model_free(&out);
}
END_TEST

static const struct model_defaults hybrid = {.strategy = STRATEGY_HYBRID_SHARD,
                                             .shard_size = 2,
                                             .param_dtype = DTYPE_FP16,
                                             .wire_dtype = DTYPE_BF16,
                                             .kept_dtype = DTYPE_BF16};

START_TEST(every_field_arrives) {
    struct model out;
    struct err e = {0};
    Zerod__V1__Initializer init = ZEROD__V1__INITIALIZER__INIT;
    Zerod__V1__LossScaling scaling = ZEROD__V1__LOSS_SCALING__INIT;
    init.kind = ZEROD__V1__INIT_KIND__INIT_UNIFORM;
    init.seed = 5;
    init.a = -1;
    init.b = 2;
    m.tensor.init = &init;
    m.tensor.lr_multiplier = 0.5f;
    m.tensor.absent_ok = true;
    m.tensor.dtype = ZEROD__V1__DTYPE__DTYPE_FP32;
    m.unit.contributions = 2;
    m.op_list[2] = &m.ops[2];
    m.plan.n_ops = 3;
    m.model.optimizer = ZEROD__V1__OPTIMIZER__OPTIMIZER_SGD;
    m.model.momentum = 0.9;
    m.model.nesterov = true;
    m.model.clip_value = 3;
    m.model.gradient_divisor = 7;
    scaling.dynamic = true;
    scaling.start = 1024;
    scaling.window = 10;
    m.model.scaling = &scaling;
    ck_assert_msg(model_from_message(&m.model, &hybrid, &out, &e) == 0, "%s", e.text);
    const struct tensor *t = &out.tensors[0];
    ck_assert_int_eq(t->init.kind, INIT_UNIFORM);
    ck_assert_uint_eq(t->init.seed, 5);
    ck_assert(t->init.a == -1 && t->init.b == 2);
    ck_assert(t->lr_multiplier == 0.5f && t->absent_ok && t->dtype == DTYPE_FP32);
    ck_assert_uint_eq(out.units[0].contributions, 2);
    ck_assert_uint_eq(out.shard_size, 2);
    ck_assert_int_eq(out.wire_dtype, DTYPE_BF16);
    ck_assert_int_eq(out.kept_dtype, DTYPE_BF16);
    ck_assert_int_eq(out.optimizer.kind, OPTIMIZER_SGD);
    ck_assert(out.optimizer.momentum == 0.9 && out.optimizer.nesterov);
    ck_assert(out.optimizer.clip_value == 3 && out.gradient_divisor == 7);
    ck_assert(out.scaling.dynamic && out.scaling.start == 1024 && out.scaling.factor == 2);
    ck_assert_uint_eq(out.scaling.window, 10);
    model_free(&out);
}
END_TEST

START_TEST(frozen_ignored_and_tied_arrive) {
    struct model out;
    struct err e = {0};
    Zerod__V1__Tensor more[3];
    Zerod__V1__Tensor *list[] = {&m.tensor, &more[0], &more[1], &more[2]};
    for (int i = 0; i < 3; i++) {
        more[i] = m.tensor;
    }
    more[0].name = (char *)"frozen";
    more[0].frozen = true;
    more[1].name = (char *)"ignored";
    more[1].ignored = true;
    more[2].name = (char *)"tied";
    more[2].alias = (char *)"w";
    m.unit.tensors = list;
    m.unit.n_tensors = 4;
    ck_assert_msg(model_from_message(&m.model, &defaults, &out, &e) == 0, "%s", e.text);
    ck_assert(out.tensors[1].frozen && out.tensors[2].ignored);
    ck_assert_str_eq(out.tensors[3].alias, "w");
    model_free(&out);
}
END_TEST

static void refused(const char *word, int code) {
    struct model out;
    struct err e = {0};
    ck_assert_int_eq(model_from_message(&m.model, &defaults, &out, &e), -code);
    ck_assert_msg(strstr(e.text, word) != NULL, "'%s' lacks '%s'", e.text, word);
    model_free(&out);
}

START_TEST(another_strategy_is_named) {
    m.model.strategy = ZEROD__V1__STRATEGY__STRATEGY_DDP;
    refused("ddp", ST_FAILED_PRECONDITION);
    m.model.strategy = ZEROD__V1__STRATEGY__STRATEGY_ZERO2;
    m.model.param_dtype = ZEROD__V1__DTYPE__DTYPE_FP32;
    refused("fp32", ST_FAILED_PRECONDITION);
}
END_TEST

/* What the daemon was not started with is the trainer's to choose. */
START_TEST(open_dtypes_are_the_trainers) {
    struct model out;
    struct err e = {0};
    m.model.wire_dtype = ZEROD__V1__DTYPE__DTYPE_BF16;
    ck_assert_msg(model_from_message(&m.model, &defaults, &out, &e) == 0, "%s", e.text);
    ck_assert_int_eq(out.wire_dtype, DTYPE_BF16);
    model_free(&out);
    m.model.wire_dtype = ZEROD__V1__DTYPE__DTYPE_FP16;
    refused("fp16", ST_INVALID_ARGUMENT);
}
END_TEST

START_TEST(nonsense_is_named) {
    m.tensor.n_shape = 9;
    refused("9 dimensions", ST_INVALID_ARGUMENT);
    m.tensor.n_shape = 2;
    m.ops[0].kind = (Zerod__V1__Collective)7;
    refused("kind 7", ST_INVALID_ARGUMENT);
    m.ops[0].kind = ZEROD__V1__COLLECTIVE__COLLECTIVE_GATHER;
    m.model.kept_dtype = (Zerod__V1__Dtype)9;
    refused("kept_dtype 9", ST_INVALID_ARGUMENT);
    m.model.kept_dtype = ZEROD__V1__DTYPE__DTYPE_UNSPECIFIED;
    m.tensor.dtype = (Zerod__V1__Dtype)-1;
    refused("w", ST_INVALID_ARGUMENT);
    m.tensor.dtype = ZEROD__V1__DTYPE__DTYPE_UNSPECIFIED;
    m.model.optimizer = (Zerod__V1__Optimizer)77;
    refused("optimizer", ST_INVALID_ARGUMENT);
    m.model.optimizer = ZEROD__V1__OPTIMIZER__OPTIMIZER_UNSPECIFIED;
    char longest[2 * MODEL_NAME];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    m.tensor.alias = longest;
    refused("alias", ST_INVALID_ARGUMENT);
}
END_TEST

START_TEST(a_vote_survives_the_wire) {
    static const uint8_t cursor[] = {1, 2, 3};
    static const uint64_t sums[] = {4, 5};
    struct vote in = {.fence = {2, 9, 3},
                      .yes = true,
                      .sum_squares = 1.5,
                      .non_finite = true,
                      .scalars = {1e-3, 1.0, 4},
                      .weight = 2,
                      .user_count = 1,
                      .user = {7},
                      .checksum = 9,
                      .checksum_count = 2,
                      .checksums = sums,
                      .shared_cursor_bytes = sizeof cursor,
                      .shared_cursor = cursor};
    struct vote out;
    struct vote_message message;
    struct err e = {0};
    vote_to_message(&in, true, &message);
    ck_assert_int_eq(vote_from_message(&message.vote, &out, &e), 0);
    ck_assert(fence_equal(&in.fence, &out.fence) && out.yes && out.non_finite);
    ck_assert_double_eq(out.sum_squares, 1.5);
    ck_assert_double_eq(out.user[0], 7);
    ck_assert_uint_eq(out.checksums[1], 5);
    ck_assert_uint_eq(out.scalars.micro_batches, 4);
    ck_assert_uint_eq(out.shared_cursor_bytes, 3);
    vote_to_message(&in, false, &message);
    ck_assert_uint_eq(message.vote.shared_cursor.len, 0);
}
END_TEST

START_TEST(bad_votes_are_refused) {
    struct vote in = {.fence = {1, 1, 1}, .yes = true, .weight = 1}, out;
    struct vote_message message;
    struct err e = {0};
    double many[JOB_USER + 1] = {0};
    vote_to_message(&in, false, &message);
    message.vote.n_user = JOB_USER + 1;
    message.vote.user = many;
    ck_assert_int_eq(vote_from_message(&message.vote, &out, &e), -ST_INVALID_ARGUMENT);
    ck_assert_msg(strstr(e.text, "17") != NULL, "%s", e.text);
    vote_to_message(&in, false, &message);
    message.vote.weight = NAN;
    ck_assert_int_eq(vote_from_message(&message.vote, &out, &e), -ST_INVALID_ARGUMENT);
    vote_to_message(&in, false, &message);
    message.vote.fence = NULL;
    ck_assert_int_eq(vote_from_message(&message.vote, &out, &e), -ST_INVALID_ARGUMENT);
    vote_to_message(&in, false, &message);
    message.vote.shared_cursor.len = JOB_CURSOR + 1;
    ck_assert_int_eq(vote_from_message(&message.vote, &out, &e), -ST_INVALID_ARGUMENT);
    struct vote no = {.fence = {1, 1, 1}, .code = ST_ABORTED, .reason = "a reason"};
    vote_to_message(&no, false, &message);
    ck_assert_int_eq(vote_from_message(&message.vote, &out, &e), 0);
    message.vote.code = ST_UNAUTHENTICATED + 1;
    ck_assert_int_eq(vote_from_message(&message.vote, &out, &e), -ST_INVALID_ARGUMENT);
    message.vote.code = ST_OK;
    ck_assert_int_eq(vote_from_message(&message.vote, &out, &e), -ST_INVALID_ARGUMENT);
    vote_to_message(&no, false, &message);
    message.vote.reason = (char *)"";
    ck_assert_int_eq(vote_from_message(&message.vote, &out, &e), -ST_INVALID_ARGUMENT);
}
END_TEST

START_TEST(a_decision_survives_the_wire) {
    struct decision in = {.fence = {1, 4, 2},
                          .outcome = OUTCOME_COMMIT,
                          .t = 4,
                          .skips_in_row = 1,
                          .learning_rate = 1e-3,
                          .scale = {1024, 7, 1},
                          .scalars = {2.5, 0.25f, -1e-4f, -1e-3f, 4.0f, true},
                          .user_count = 2,
                          .user = {1, 2}};
    struct decision out;
    struct decision_message message;
    struct err e = {0};
    decision_to_message(&in, &message);
    ck_assert_int_eq(decision_from_message(&message.decision, &out, &e), 0);
    ck_assert_int_eq(memcmp(&in.scalars, &out.scalars, offsetof(struct step_scalars, first)), 0);
    ck_assert(out.scalars.first && out.scale.scale == 1024);
    ck_assert_uint_eq(out.scale.good, 7);
    ck_assert_uint_eq(out.scale.hysteresis, 1);
    ck_assert_uint_eq(out.t, 4);
    ck_assert_double_eq(out.user[1], 2);
    message.decision.outcome = OUTCOME_ABORT; /* is never announced */
    ck_assert_int_eq(decision_from_message(&message.decision, &out, &e), -ST_INVALID_ARGUMENT);
}
END_TEST

int main(void) {
    Suite *s = suite_create("convert");
    TCase *t = tcase_create("convert");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, fills_in_what_the_trainer_left_open);
    tcase_add_test(t, every_field_arrives);
    tcase_add_test(t, frozen_ignored_and_tied_arrive);
    tcase_add_test(t, open_dtypes_are_the_trainers);
    tcase_add_test(t, another_strategy_is_named);
    tcase_add_test(t, nonsense_is_named);
    tcase_add_test(t, a_vote_survives_the_wire);
    tcase_add_test(t, bad_votes_are_refused);
    tcase_add_test(t, a_decision_survives_the_wire);
    suite_add_tcase(s, t);
    return run_suite(s);
}
