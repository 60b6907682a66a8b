/* What a daemon may answer to a registration: places of frozen, ignored and tied tensors, and what
 * cannot be true. */
#include <string.h>

#include "client/client.h"
#include "tests/base/suite.h"

enum { UNITS = 2, TENSORS = 3 };
#define NOWHERE ZEROD_NOWHERE

/* Unit "a": w[100] bf16, frozen[10] fp32, own (ignored); unit "b": v[64], tied (alias of w), e. */
static const uint64_t w = 100, frozen = 10, own = 5, v = 64, e1 = 1;
static const struct zerod_tensor tensors[UNITS][TENSORS] = {
    {{.name = "w", .dims = 1, .shape = &w},
     {.name = "frozen", .dims = 1, .shape = &frozen, .frozen = true, .dtype = ZEROD_FP32},
     {.name = "own", .dims = 1, .shape = &own, .ignored = true}},
    {{.name = "v", .dims = 1, .shape = &v},
     {.name = "tied", .dims = 1, .shape = &w, .alias = "w"},
     {.name = "e", .dims = 1, .shape = &e1, .absent_ok = true}},
};
static const struct zerod_op ops[] = {
    {ZEROD_GATHER, 0}, {ZEROD_GATHER, 1}, {ZEROD_REDUCE, 1}, {ZEROD_REDUCE, 0}, {ZEROD_REDUCE, 0}};
static const struct zerod_plan plan = {"train", 5, ops};
static struct zerod_unit units[UNITS];
static struct zerod_model model;
static Zerod__V1__Registered answer;
static Zerod__V1__UnitPlace places[UNITS], *place_list[UNITS];
static uint64_t offsets[UNITS][3][TENSORS]; /* param, grad, load */
static struct zerod z;
static struct err e;

static void set(unsigned unit, unsigned tensor, uint64_t param, uint64_t grad, uint64_t load) {
    offsets[unit][0][tensor] = param;
    offsets[unit][1][tensor] = grad;
    offsets[unit][2][tensor] = load;
}

static void setup(void) {
    zerod__v1__registered__init(&answer);
    for (unsigned u = 0; u < UNITS; u++) {
        units[u] = (struct zerod_unit){u ? "b" : "a", TENSORS, tensors[u], u ? 1 : 2};
        zerod__v1__unit_place__init(&places[u]);
        place_list[u] = &places[u];
        places[u].n_param_offsets = places[u].n_grad_offsets = places[u].n_load_offsets = TENSORS;
        places[u].param_offsets = offsets[u][0];
        places[u].grad_offsets = offsets[u][1];
        places[u].load_offsets = offsets[u][2];
    }
    model =
        (struct zerod_model){.unit_count = UNITS, .units = units, .plan_count = 1, .plans = &plan};
    places[0].param_bytes = 256 + 256; /* w in bf16, padded; frozen in fp32 */
    places[0].grad_bytes = 512;
    places[0].load_bytes = 512 + 256;
    places[1].param_bytes = 256;
    places[1].grad_bytes = 512;
    places[1].load_bytes = 512;
    set(0, 0, 0, 0, 0);
    set(0, 1, 256, NOWHERE, 512);
    set(0, 2, NOWHERE, NOWHERE, NOWHERE);
    set(1, 0, 0, 0, 0);
    set(1, 1, 0, 0, 0);
    set(1, 2, 128, 256, 256);
    answer.rank = 1;
    answer.world_size = 2;
    answer.strategy = ZEROD__V1__STRATEGY__STRATEGY_ZERO1;
    answer.param_dtype = ZEROD__V1__DTYPE__DTYPE_BF16;
    answer.wire_dtype = ZEROD__V1__DTYPE__DTYPE_FP32;
    answer.param_bytes = 768;
    answer.grad_bytes = 2048;
    answer.grad_slots = 2;
    answer.n_places = UNITS;
    answer.places = place_list;
    memset(&z, 0, sizeof z);
    z.registered = &answer;
}

START_TEST(places_are_kept) {
    ck_assert_msg(registered_check(&model, &answer, &e) == 0, "%s", e.text);
    registered_keep(&z, &model);
    ck_assert_uint_eq(zerod_rank(&z), 1);
    ck_assert_str_eq(zerod_strategy(&z), "zero1");
    ck_assert_int_eq(zerod_param_dtype(&z), ZEROD_BF16);
    ck_assert_int_eq(zerod_wire_dtype(&z), ZEROD_FP32);
    ck_assert_uint_eq(zerod_param_offset(&z, 0, 1), 256);
    ck_assert_uint_eq(zerod_grad_offset(&z, 0, 1), NOWHERE);
    ck_assert_uint_eq(zerod_initial_offset(&z, 0, 1), 512);
    ck_assert_uint_eq(zerod_param_offset(&z, 0, 2), NOWHERE);
    ck_assert_uint_eq(zerod_param_offset(&z, 1, 1), zerod_param_offset(&z, 0, 0));
    ck_assert_uint_eq(z.lending.units[0].contributions, 2);
    ck_assert_uint_eq(z.lending.reduces, 3);
    ck_assert(!z.lending.units[1].may_be_absent); /* "v" may not */
    lending_free(&z.lending);
}
END_TEST

static void refused(const char *part) {
    ck_assert_int_eq(registered_check(&model, &answer, &e), -ST_INTERNAL);
    ck_assert_msg(strstr(e.text, part) != NULL, "'%s' lacks '%s'", e.text, part);
}

START_TEST(lies_are_refused) {
    offsets[0][0][0] = 384; /* 200 bytes of bf16 beyond the end */
    refused("tensor 'w' of 200 bytes at 384, outside its unit's parameters of 512");
    offsets[0][0][0] = 2;
    refused("tensor 'w'");
    setup();
    offsets[0][0][1] = 512;
    refused("tensor 'frozen'");
    setup();
    offsets[1][1][1] = 256; /* the alias's gradient is checked against w's unit: 400 of 512 bytes */
    refused("tensor 'tied' of 400 bytes at 256, outside its unit's gradients of 512");
    setup();
    offsets[0][2][0] = UINT64_MAX - 63;
    refused("initial values");
    setup();
    places[1].n_grad_offsets = 2;
    refused("3, 2 and 3 tensors of unit 'b', it has 3");
    setup();
    answer.param_bytes = 511;
    refused("unit 'a' has 512");
    setup();
    answer.grad_bytes = 767; /* initial values go through the gradients' memory */
    refused("768");
    setup();
    answer.wire_dtype = ZEROD__V1__DTYPE__DTYPE_FP16;
    refused("dtypes 2 and 3");
    setup();
    model.param_dtype = ZEROD_FP32;
    refused("dtypes 2 and 1");
    setup();
    answer.n_places = 1;
    refused("1 units of 2");
    setup();
    answer.rank = 2;
    refused("rank 2 of 2");
}
END_TEST

/* An alias may stand for another unit's tensor only; of nothing it cannot be placed. */
START_TEST(an_alias_of_nothing_is_refused) {
    struct zerod_tensor changed[TENSORS];
    memcpy(changed, tensors[1], sizeof changed);
    changed[1].alias = "nothing";
    units[1].tensors = changed;
    refused("alias of nothing");
}
END_TEST

int main(void) {
    Suite *s = suite_create("client/registered");
    TCase *c = tcase_create("registered");
    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_test(c, places_are_kept);
    tcase_add_test(c, lies_are_refused);
    tcase_add_test(c, an_alias_of_nothing_is_refused);
    suite_add_tcase(s, c);
    return run_suite(s);
}
