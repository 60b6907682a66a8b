/* model_check on names: one memory, one name; aliases. */
#include "tests/base/suite.h"
#include "tests/layout/fixture.h"

#define SHARED "; if its memory is shared, declare one an alias of the other"

START_TEST(twins) {
    struct model m = fixture_model();
    strcpy(m.tensors[3].name, "embedding.scale");
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"embedding.scale\" is in unit \"embedding\" and in unit \"head\"" SHARED);
    strcpy(m.tensors[3].name, "head.weight");
    fixture_refused(&m, ST_INVALID_ARGUMENT, "unit \"head\" has two tensors \"head.weight\"");
    strcpy(m.tensors[3].name, "embedding"); /* a unit may be called as a tensor is */
    fixture_good(&m);
    strcpy(m.units[1].name, "embedding");
    fixture_refused(&m, ST_INVALID_ARGUMENT, "units 0 and 1 have the same name \"embedding\"");
    model_free(&m);
}
END_TEST

static void make_alias(struct tensor *t, const struct tensor *of) {
    strcpy(t->alias, of->name);
    t->dims = of->dims;
    memcpy(t->shape, of->shape, sizeof t->shape);
}

START_TEST(aliases) {
    struct model m = fixture_model();
    struct tensor *t = &m.tensors[3]; /* head.bias */
    strcpy(t->alias, "embedding.wait");
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "tensor \"head.bias\" is an alias of \"embedding.wait\", and there is no such "
                    "tensor");
    strcpy(t->alias, "embedding.weight");
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"head.bias\" of shape [10] is an alias of \"embedding.weight\" of shape "
        "[16, 16]");
    make_alias(t, &m.tensors[0]);
    fixture_good(&m);
    m.tensors[0].ignored = true;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "tensor \"head.bias\" is an alias of \"embedding.weight\", and that one is "
                    "ignored");
    m.tensors[0].ignored = false;
    t->ignored = true;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "tensor \"head.bias\" is an alias of \"embedding.weight\", and the alias is "
                    "ignored");
    t->ignored = false;
    t->dtype = DTYPE_FP32;
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"head.bias\" of dtype fp32 is an alias of \"embedding.weight\" of dtype "
        "bf16");
    t->dtype = DTYPE_BF16;
    fixture_good(&m);
    make_alias(&m.tensors[1], t);
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "tensor \"embedding.scale\" is an alias of \"head.bias\", which is an alias "
                    "itself");
    make_alias(t, t);
    m.tensors[1].alias[0] = 0;
    fixture_refused(&m, ST_INVALID_ARGUMENT,
                    "tensor \"head.bias\" is an alias of \"head.bias\", which is an alias itself");
    model_free(&m);
}
END_TEST

/* Tied weights are often one name in two modules. */
START_TEST(aliases_may_share_their_tensors_name) {
    struct model m = fixture_model();
    struct tensor *t = &m.tensors[3];
    make_alias(t, &m.tensors[0]);
    strcpy(t->name, "embedding.weight");
    fixture_good(&m);
    fixture_unit(&m, "third");
    fixture_add(&m, &m.tensors[3]);
    fixture_good(&m);
    m.tensors[4].alias[0] = 0; /* a second tensor with that name */
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"embedding.weight\" is in unit \"embedding\" and in unit \"third\"" SHARED);
    strcpy(m.tensors[4].alias, "head.weight"); /* one name, two memories */
    fixture_refused(
        &m, ST_INVALID_ARGUMENT,
        "tensor \"embedding.weight\" is in unit \"embedding\" and in unit \"third\"" SHARED);
    strcpy(m.tensors[4].alias, "embedding.weight");
    fixture_add(&m, &m.tensors[3]);
    fixture_refused(&m, ST_INVALID_ARGUMENT, "unit \"third\" has two tensors \"embedding.weight\"");
    model_free(&m);
}
END_TEST

/* Checks of names must not be quadratic: a peer may register this much. */
START_TEST(many_tensors) {
    struct model m = fixture_empty(STRATEGY_DDP, DTYPE_FP32, 1);
    struct err e;
    char name[32];
    fixture_unit(&m, "u");
    fixture_tensor(&m, "tensor", 1);
    fixture_unit(&m, "v");
    for (int i = 0; i < 100000; i++) {
        uint64_t one = 1;
        (void)snprintf(name, sizeof name, "tensor%d", i);
        struct tensor t = model_tensor(name, 1, &one);
        if (i % 2) {
            strcpy(t.alias, "tensor");
        }
        if (model_add_tensor(&m, &t, &e)) {
            ck_abort_msg("%s", e.text);
        }
    }
    fixture_plans(&m);
    fixture_good(&m);
    strcpy(m.tensors[100000].name, "tensor5");
    fixture_refused(&m, ST_INVALID_ARGUMENT, "unit \"v\" has two tensors \"tensor5\"");
    model_free(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("names");
    TCase *t = tcase_create("all");
    tcase_add_test(t, twins);
    tcase_add_test(t, aliases);
    tcase_add_test(t, aliases_may_share_their_tensors_name);
    tcase_add_test(t, many_tensors);
    suite_add_tcase(s, t);
    return run_suite(s);
}
