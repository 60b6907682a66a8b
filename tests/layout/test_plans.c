/* model_check on plans. */
#include "tests/base/suite.h"
#include "tests/layout/fixture.h"

START_TEST(operations) {
    struct model m = fixture_model();
    struct plan *train = &m.plans[0], *eval = &m.plans[1];
    train->ops[0].unit = 2;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "plan \"train\" position 0: there is no unit 2, the model has 2");
    train->ops[0].unit = 0;
    eval->ops[1].kind = PLAN_REDUCE;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "plan \"eval\" position 1 reduces unit \"head\": only the plan \"train\" may "
                    "reduce");
    eval->ops[1].kind = PLAN_GATHER;
    train->ops[5].unit = 1; /* reduces head twice */
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "plan \"train\" position 5 reduces unit \"head\" again, but it has 1 "
                    "contribution");
    train->ops[5].unit = 0;
    train->ops[5].kind = PLAN_GATHER;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "plan \"train\" reduces unit \"embedding\" 0 times, but it has 1 contribution");
    train->ops[5].kind = PLAN_REDUCE;
    train->ops[0].kind = PLAN_REDUCE;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "plan \"train\" position 0 reduces unit \"embedding\", which was not gathered "
                    "before");
    train->ops[0].kind = PLAN_GATHER;
    fixture_good(&m);
    model_free(&m);
}
END_TEST

START_TEST(contributions) {
    struct model m = fixture_model();
    struct err e;
    m.units[0].contributions = 2;
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "plan \"train\" reduces unit \"embedding\" 1 times, but it has 2 contributions");
    m.plan_count = 1;
    ck_assert_int_eq(model_add_op(&m, PLAN_REDUCE, 0, &e), 0);
    fixture_good(&m);
    ck_assert_int_eq(model_add_op(&m, PLAN_REDUCE, 0, &e), 0);
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "plan \"train\" position 7 reduces unit \"embedding\" again, but it has 2 "
                    "contributions");
    m.plan_count = 2;
    model_free(&m);
}
END_TEST

START_TEST(units_without_gradients) {
    struct model m = fixture_model();
    m.tensors[0].frozen = true;
    m.tensors[1].ignored = true;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "plan \"train\" position 5 reduces unit \"embedding\", which has no trainable "
                    "tensor");
    m.plans[0].count = 5;
    fixture_good(&m);
    model_free(&m);
}
END_TEST

START_TEST(names) {
    struct model m = fixture_model();
    strcpy(m.plans[1].name, "train");
    fixture_refused(&m, ST_INVALID_ARGUMENT, "two plans are named \"train\"");
    strcpy(m.plans[1].name, "other");
    strcpy(m.plans[0].name, "practise");
    fixture_refused(&m, ST_INVALID_ARGUMENT, "the model has no plan \"train\"");
    model_free(&m);
    m = fixture_empty(STRATEGY_DDP, DTYPE_FP32, 1);
    fixture_refused(&m, ST_INVALID_ARGUMENT, "the model has no unit");
    model_free(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plans");
    TCase *t = tcase_create("all");
    tcase_add_test(t, operations);
    tcase_add_test(t, contributions);
    tcase_add_test(t, units_without_gradients);
    tcase_add_test(t, names);
    suite_add_tcase(s, t);
    return run_suite(s);
}
