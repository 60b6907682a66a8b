#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "tests/base/suite.h"

static struct {
    uint64_t ranks, slots, pool;
    double lr;
    const char *strategy, *file;
    bool quiet;
} o;

static struct opt options[] = {
    OPT_UNSIGNED('n', "ranks", "N", "4", "ranks", 1, 64, &o.ranks, "How many ranks to start."),
    OPT_UNSIGNED(0, "gather-slots", "K", "2", NULL, 1, UINT64_MAX, &o.slots,
                 "Units that may be gathered at one time, each slot as large as the largest unit "
                 "of the model."),
    OPT_BYTES(0, "pool", "SIZE", "64MiB", 4096, UINT64_C(1) << 40, &o.pool, "Snapshot pool."),
    OPT_REAL(0, "lr", "X", "1e-3", NULL, 0, INFINITY, &o.lr, "Learning rate."),
    OPT_CHOICE('s', "strategy", "S", "zero3", "ddp|zero2|zero3", &o.strategy, "How to shard."),
    OPT_TEXT(0, "file", "FILE", NULL, &o.file, "Where to write."),
    OPT_FLAG('q', "quiet", &o.quiet, "Print less."),
    OPT_END,
};

enum { WORDS = 8 };

/* Splits |line| at spaces and parses it; returns the code, *rest as opt_parse. */
static int parse(const char *line, int *rest, struct err *e) {
    static char text[256];
    char *argv[WORDS] = {"program"};
    int argc = 1;
    (void)snprintf(text, sizeof text, "%s", line);
    for (char *w = strtok(text, " "); w; w = strtok(NULL, " ")) {
        ck_assert_int_lt(argc, WORDS);
        argv[argc++] = w;
    }
    o.file = "unchanged";
    *e = (struct err){0};
    return opt_parse(options, argc, argv, rest, e);
}

static void parses(const char *line, int expected_rest) {
    int rest = -1;
    struct err e;
    ck_assert_msg(parse(line, &rest, &e) == 0, "%s: %s", line, e.text);
    ck_assert_int_eq(rest, expected_rest);
}

static void refuses(const char *line, enum status code, const char *text) {
    int rest;
    struct err e;
    ck_assert_int_eq(parse(line, &rest, &e), -(int)code);
    ck_assert_str_eq(e.text, text);
}

START_TEST(defaults) {
    parses("", 1);
    ck_assert_uint_eq(o.ranks, 4);
    ck_assert_uint_eq(o.slots, 2);
    ck_assert_uint_eq(o.pool, 64 << 20);
    ck_assert_double_eq(o.lr, 1e-3);
    ck_assert_str_eq(o.strategy, "zero3");
    ck_assert_str_eq(o.file, "unchanged");
    ck_assert(!o.quiet);
    ck_assert(!options[0].given);
}
END_TEST

START_TEST(forms) {
    parses("--ranks 8 --lr=0.5 -q -szero2 --file a=b", 8);
    ck_assert_uint_eq(o.ranks, 8);
    ck_assert(options[0].given);
    ck_assert_double_eq(o.lr, 0.5);
    ck_assert(o.quiet);
    ck_assert_str_eq(o.strategy, "zero2");
    ck_assert_str_eq(o.file, "a=b");
    parses("-n 2 --ranks=64 --file= --pool 4KiB", 7); /* the last one counts */
    ck_assert_uint_eq(o.ranks, 64);
    ck_assert_str_eq(o.file, "");
    ck_assert_uint_eq(o.pool, 4096);
    ck_assert(!o.quiet);
    parses("--pool 5000B", 3);
    ck_assert_uint_eq(o.pool, 5000);
    parses("--pool 80GB", 3); /* as zeroctl plan takes it */
    ck_assert_uint_eq(o.pool, UINT64_C(80000000000));
    parses("--pool 1TB", 3);
    ck_assert_uint_eq(o.pool, UINT64_C(1000000000000));
}
END_TEST

START_TEST(ends_of_options) {
    parses("-n 2 -- --ranks 3", 4);
    ck_assert_uint_eq(o.ranks, 2);
    parses("-n 2 train --ranks 3", 3);
    ck_assert_uint_eq(o.ranks, 2);
    parses("-q - x", 2);
    parses("-q --", 3);
    parses("--file -- -q", 4); /* a value is a value, whatever it looks like */
    ck_assert_str_eq(o.file, "--");
}
END_TEST

START_TEST(unknown_options) {
    refuses("--gather-slot 3", ST_INVALID_ARGUMENT,
            "unknown option --gather-slot: did you mean --gather-slots?");
    refuses("--stratgey=ddp", ST_INVALID_ARGUMENT,
            "unknown option --stratgey: did you mean --strategy?");
    refuses("--xyzzy", ST_INVALID_ARGUMENT, "unknown option --xyzzy");
    refuses("-z", ST_INVALID_ARGUMENT, "unknown option -z");
    refuses("--=3", ST_INVALID_ARGUMENT, "unknown option --=3");
    refuses("--rank-but-much-longer-than-any-known-name-of-ours", ST_INVALID_ARGUMENT,
            "unknown option --rank-but-much-longer-than-any-known-name-of-ours");
}
END_TEST

START_TEST(bad_values) {
    refuses("--ranks", ST_INVALID_ARGUMENT, "--ranks needs a value: N");
    refuses("--quiet=yes", ST_INVALID_ARGUMENT, "--quiet takes no value, not \"yes\"");
    refuses("--ranks=", ST_INVALID_ARGUMENT, "--ranks \"\": must be a whole number");
    refuses("--ranks 3x", ST_INVALID_ARGUMENT, "--ranks \"3x\": must be a whole number");
    refuses("--ranks -3", ST_INVALID_ARGUMENT, "--ranks \"-3\": must be a whole number");
    refuses("--ranks 1KiB", ST_INVALID_ARGUMENT, "--ranks \"1KiB\": must be a whole number");
    refuses("--pool 3kb", ST_INVALID_ARGUMENT,
            "--pool \"3kb\": must be a size like 64KiB, 2GiB or 80GB");
    refuses("--pool 18446744073709552TB", ST_OUT_OF_RANGE,
            "--pool 18446744073709552TB: must be 4 KiB to 1 TiB");
    refuses("--lr abc", ST_INVALID_ARGUMENT, "--lr \"abc\": must be a number");
    refuses("--lr nan", ST_INVALID_ARGUMENT, "--lr \"nan\": must be a number");
    refuses("--lr inf", ST_INVALID_ARGUMENT, "--lr \"inf\": must be a number");
    refuses("--strategy zero", ST_INVALID_ARGUMENT,
            "--strategy \"zero\": must be one of ddp|zero2|zero3");
    refuses("--strategy ddp|zero2", ST_INVALID_ARGUMENT,
            "--strategy \"ddp|zero2\": must be one of ddp|zero2|zero3");
}
END_TEST

START_TEST(out_of_range) {
    refuses("--ranks 0", ST_OUT_OF_RANGE, "--ranks 0: must be 1 to 64 ranks");
    refuses("--ranks 65", ST_OUT_OF_RANGE, "--ranks 65: must be 1 to 64 ranks");
    refuses("--gather-slots 0", ST_OUT_OF_RANGE, "--gather-slots 0: must be at least 1");
    refuses("--pool 4095", ST_OUT_OF_RANGE, "--pool 4095: must be 4 KiB to 1 TiB");
    refuses("--ranks 18446744073709551617", ST_OUT_OF_RANGE,
            "--ranks 18446744073709551617: must be 1 to 64 ranks");
    refuses("--pool 18014398509481985KiB", ST_OUT_OF_RANGE,
            "--pool 18014398509481985KiB: must be 4 KiB to 1 TiB");
    refuses("--gather-slots 99999999999999999999", ST_OUT_OF_RANGE,
            "--gather-slots 99999999999999999999: must be at least 1");
    refuses("--lr -1", ST_OUT_OF_RANGE, "--lr -1: must be at least 0");
    parses("--gather-slots 18446744073709551615", 3);
    ck_assert_uint_eq(o.slots, UINT64_MAX);
    refuses("--gather-slots 18446744073709551616", ST_OUT_OF_RANGE,
            "--gather-slots 18446744073709551616: must be at least 1");
}
END_TEST

START_TEST(needed_ones_are_named) {
    static const char *const names[] = {"ranks", "file", NULL};
    char *argv[] = {"program", "extra"};
    int rest = 0;
    struct err e;
    ck_assert_int_eq(parse("--ranks 3", &rest, &e), 0);
    ck_assert(opt_given(options, "ranks") && !opt_given(options, "file"));
    ck_assert_int_eq(opt_need(options, names, 2, argv, 2, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "--file is needed");
    ck_assert_int_eq(parse("--ranks 3 --file x", &rest, &e), 0);
    ck_assert_int_eq(opt_need(options, names, 2, argv, 2, &e), 0);
    ck_assert_int_eq(opt_need(options, names, 2, argv, 1, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "'extra' is not an option");
}
END_TEST

START_TEST(help) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    opt_help(options, f);
    (void)fclose(f);
    ck_assert_str_eq(
        text,
        "  -n, --ranks N               How many ranks to start. (1 to 64 ranks; default 4)\n"
        "      --gather-slots K        Units that may be gathered at one time, each slot as large\n"
        "                              as the largest unit of the model. (at least 1; default 2)\n"
        "      --pool SIZE             Snapshot pool. (4 KiB to 1 TiB; default 64MiB)\n"
        "      --lr X                  Learning rate. (at least 0; default 1e-3)\n"
        "  -s, --strategy S            How to shard. (ddp|zero2|zero3; default zero3)\n"
        "      --file FILE             Where to write.\n"
        "  -q, --quiet                 Print less.\n");
    free(text);
}
END_TEST

int main(void) {
    Suite *s = suite_create("opt");
    TCase *t = tcase_create("all");
    tcase_add_test(t, defaults);
    tcase_add_test(t, forms);
    tcase_add_test(t, ends_of_options);
    tcase_add_test(t, unknown_options);
    tcase_add_test(t, bad_values);
    tcase_add_test(t, out_of_range);
    tcase_add_test(t, needed_ones_are_named);
    tcase_add_test(t, help);
    suite_add_tcase(s, t);
    return run_suite(s);
}
