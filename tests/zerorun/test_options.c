/* zerorun's command line: what is taken, and that each refusal names what was wrong. */
#include <string.h>

#include "client/zerorun/options.h"
#include "tests/base/suite.h"

enum { WORDS = 24 };

static int parse(struct options *o, struct err *e, const char *const *words) {
    static char copies[WORDS][128];
    static char *argv[WORDS + 1];
    int argc = 0;
    for (; words[argc]; argc++) {
        strcpy(copies[argc], words[argc]);
        argv[argc] = copies[argc];
    }
    argv[argc] = NULL;
    return options_parse(o, argc, argv, e);
}

#define PARSE(...) parse(&o, &e, (const char *const[]){"zerorun", __VA_ARGS__, NULL})

static void refused(int rc, const struct err *e, int code, const char *part) {
    ck_assert_int_eq(rc, -code);
    ck_assert_msg(strstr(e->text, part) != NULL, "\"%s\" lacks \"%s\"", e->text, part);
}

START_TEST(test_defaults) {
    struct options o;
    struct err e;
    ck_assert_int_eq(PARSE("--", "gpt", "--steps", "3"), 0);
    ck_assert_uint_eq(o.ranks, 4);
    ck_assert_str_eq(o.strategy, "zero3");
    ck_assert_ptr_null(o.param_dtype); /* the trainer's choice */
    ck_assert_ptr_null(o.wire_dtype);
    ck_assert_ptr_null(o.kept_grad);
    ck_assert_uint_eq(o.shard_size, 0);
    ck_assert_uint_eq(o.max_skips, 50);
    ck_assert(!o.dry_run && !o.no_overlap);
    ck_assert_uint_eq(o.gather_slots, 2);
    ck_assert_uint_eq(o.max_restarts, 3);
    ck_assert_ptr_null(o.json);
    ck_assert_str_eq(o.trainer[0], "gpt");
    ck_assert_str_eq(o.trainer[2], "3");
    ck_assert_ptr_null(o.trainer[3]);
}
END_TEST

START_TEST(test_all_strategies) {
    static const char *const names[] = {"ddp",        "zero1",        "zero2",       "zero3",
                                        "full_shard", "hybrid_shard", "hybrid_zero2"};
    struct options o;
    struct err e;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ck_assert_int_eq(PARSE("--strategy", names[i], "--", "x"), 0);
        ck_assert_str_eq(o.strategy, strcmp(names[i], "full_shard") ? names[i] : "zero3");
    }
    ck_assert_int_eq(PARSE("--reshard-after-forward", "false", "--", "x"), 0);
    ck_assert_str_eq(o.strategy, "zero2");
    ck_assert_int_eq(PARSE("--strategy", "hybrid_shard", "--shard-size", "2",
                           "--reshard-after-forward=false", "--", "x"),
                     0);
    ck_assert_str_eq(o.strategy, "hybrid_zero2");
    ck_assert_int_eq(PARSE("--strategy", "ddp", "--reshard-after-forward=false", "--", "x"), 0);
    ck_assert_str_eq(o.strategy, "ddp");
    ck_assert_int_eq(PARSE("--strategy", "hybrid_zero2", "--shard-size", "2", "--param-dtype",
                           "fp16", "--wire-dtype", "bf16", "--kept-grad", "bf16", "--max-skips",
                           "3", "--dry-run", "--no-overlap", "--", "x"),
                     0);
    ck_assert_uint_eq(o.shard_size, 2);
    ck_assert_str_eq(o.param_dtype, "fp16");
    ck_assert_str_eq(o.wire_dtype, "bf16");
    ck_assert_str_eq(o.kept_grad, "bf16");
    ck_assert_uint_eq(o.max_skips, 3);
    ck_assert(o.dry_run && o.no_overlap);
}
END_TEST

START_TEST(test_refusals) {
    struct options o;
    struct err e;
    refused(PARSE("-n", "0", "--", "x"), &e, ST_OUT_OF_RANGE, "1 to 64");
    refused(PARSE("-n", "65", "--", "x"), &e, ST_OUT_OF_RANGE, "65");
    refused(PARSE("--strategy", "zero9", "--", "x"), &e, ST_INVALID_ARGUMENT, "zero9");
    refused(PARSE("--shard-size", "2", "--", "x"), &e, ST_INVALID_ARGUMENT, "not zero3");
    refused(PARSE("--strategy", "hybrid_shard", "--shard-size", "3", "--", "x"), &e,
            ST_INVALID_ARGUMENT, "must divide the 4 ranks");
    refused(PARSE("--wire-dtype", "fp16", "--", "x"), &e, ST_INVALID_ARGUMENT, "fp16");
    refused(PARSE("--kept-grad", "fp16", "--", "x"), &e, ST_INVALID_ARGUMENT, "fp16");
    refused(PARSE("--param-dtype", "fp8", "--", "x"), &e, ST_INVALID_ARGUMENT, "fp8");
    refused(PARSE("x"), &e, ST_INVALID_ARGUMENT, "after \"--\"");
    refused(PARSE("-n", "2"), &e, ST_INVALID_ARGUMENT, "no trainer");
    refused(PARSE("-n", "2", "--"), &e, ST_INVALID_ARGUMENT, "no trainer");
    refused(PARSE("--", ""), &e, ST_INVALID_ARGUMENT, "empty");
}
END_TEST

START_TEST(test_help_needs_no_trainer) {
    struct options o;
    struct err e;
    ck_assert_int_eq(PARSE("--help"), 0);
    ck_assert(o.help);
    ck_assert_int_eq(PARSE("--version"), 0);
    ck_assert(o.version && !o.help);
}
END_TEST

START_TEST(test_observers) {
    struct options o;
    struct err e;
    ck_assert_int_eq(PARSE("--", "x"), 0);
    ck_assert(!o.observed);
    ck_assert_int_eq(PARSE("--observers", "0", "--", "x"), 0); /* root's group is one too */
    ck_assert(o.observed && o.observers == 0);
    refused(PARSE("--observers", "staff", "--", "x"), &e, ST_INVALID_ARGUMENT, "staff");
    refused(PARSE("--observers", "4294967295", "--", "x"), &e, ST_OUT_OF_RANGE, "4294967295");
}
END_TEST

START_TEST(test_drill) {
    struct options o;
    struct err e;
    ck_assert_int_eq(PARSE("--drill", "kill-trainer:rank=3,step=1", "--", "x"), 0);
    ck_assert_str_eq(o.drill, "kill-trainer:rank=3,step=1");
    refused(PARSE("-n", "3", "--drill", "kill-trainer:rank=3,step=1", "--", "x"), &e,
            ST_INVALID_ARGUMENT, "0 to 2");
}
END_TEST

int main(void) {
    Suite *s = suite_create("zerorun/options");
    TCase *t = tcase_create("options");
    tcase_add_test(t, test_defaults);
    tcase_add_test(t, test_all_strategies);
    tcase_add_test(t, test_refusals);
    tcase_add_test(t, test_help_needs_no_trainer);
    tcase_add_test(t, test_observers);
    tcase_add_test(t, test_drill);
    suite_add_tcase(s, t);
    return run_suite(s);
}
