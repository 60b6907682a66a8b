/* The drill's grammar: what is taken, and that each refusal names what was wrong. */
#include <string.h>

#include "process/drill_spec.h"
#include "tests/base/suite.h"

#define TEN "0123456789"
#define LONG                                                                                       \
    TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

START_TEST(takes_all_parts) {
    struct drill_spec d;
    struct err e;
    ck_assert_int_eq(drill_spec_parse("kill-trainer:rank=1,step=7,phase=voted", 2, &d, &e), 0);
    ck_assert(d.set);
    ck_assert_uint_eq(d.rank, 1);
    ck_assert_uint_eq(d.step, 7);
    ck_assert_int_eq(d.phase, DRILL_VOTED);
    ck_assert_str_eq(drill_phase_name(d.phase), "voted");
    ck_assert_int_eq(drill_spec_parse("kill-trainer:phase=apply,step=3,rank=0", 1, &d, &e), 0);
    ck_assert_int_eq(d.phase, DRILL_APPLY);
    ck_assert_int_eq(drill_spec_parse("kill-trainer:step=3,rank=0", 1, &d, &e), 0);
    ck_assert_int_eq(d.phase, DRILL_COMPUTE);
}
END_TEST

START_TEST(none_is_not_set) {
    struct drill_spec d;
    struct err e;
    ck_assert_int_eq(drill_spec_parse("", 1, &d, &e), 0);
    ck_assert(!d.set);
    ck_assert_int_eq(drill_spec_parse(NULL, 1, &d, &e), 0);
    ck_assert(!d.set);
}
END_TEST

static const struct {
    const char *spec, *part;
} wrong[] = {
    {"kill-daemon:rank=1,step=1", "kill-daemon"},
    {"kill-daemon", "must be kill-trainer:"},
    {"kill-trainer:rank", "NAME=VALUE"},
    {"kill-trainer:rank=x,step=1", "rank=x"},
    {"kill-trainer:", "NAME=VALUE"},
    {"kill-trainer:rank=1", "step="},
    {"kill-trainer:step=1", "rank="},
    {"kill-trainer:rank=4,step=1", "0 to 3"},
    {"kill-trainer:rank=-1,step=1", "-1"},
    {"kill-trainer:rank=1,step=0", "from 1 on"},
    {"kill-trainer:rank=1,step=x", "step=x"},
    {"kill-trainer:rank=1,step=99999999999999999999", "step="},
    {"kill-trainer:rank=1,step=1,phase=sleep", "sleep"},
    {"kill-trainer:rank=1,step=1,colour=red", "colour"},
    {"kill-trainer:rank=1,step=1,phase=" LONG, "the limit is 255"},
    {"kill-trainer:rank=1,step=1,", "NAME=VALUE"},
};

START_TEST(names_what_is_wrong) {
    struct drill_spec d;
    struct err e = {0};
    ck_assert_int_eq(drill_spec_parse(wrong[_i].spec, 4, &d, &e), -ST_INVALID_ARGUMENT);
    ck_assert_msg(strstr(e.text, wrong[_i].part) != NULL, "%s: %s", wrong[_i].spec, e.text);
    ck_assert(!d.set);
}
END_TEST

int main(void) {
    Suite *s = suite_create("process/drill_spec");
    TCase *t = tcase_create("drill_spec");
    tcase_add_test(t, takes_all_parts);
    tcase_add_test(t, none_is_not_set);
    tcase_add_loop_test(t, names_what_is_wrong, 0, (int)(sizeof wrong / sizeof *wrong));
    suite_add_tcase(s, t);
    return run_suite(s);
}
