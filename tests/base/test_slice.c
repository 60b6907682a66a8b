/* Turns on a core: asked for, given up, and not forced on who has another policy. */
#include <check.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/slice.h"
#include "tests/base/suite.h"

static uint64_t runtime(void) {
    uint64_t attributes[6] = {sizeof attributes}; /* size and policy, flags, nice, runtime, ... */
    ck_assert_int_eq(syscall(SYS_sched_getattr, 0, attributes, sizeof attributes, 0u), 0);
    return attributes[3];
}

START_TEST(turns_are_short_or_long) {
    const uint64_t own = runtime();
    slice_take(SLICE_SHORT);
    if (runtime() == own) {
        return; /* a kernel without slices: nothing changes */
    }
    ck_assert_uint_eq(runtime(), 100000);
    slice_take(SLICE_LONG);
    ck_assert_uint_eq(runtime(), 100000000);
    slice_take(SLICE_NORMAL);
    ck_assert_uint_eq(runtime(), own);
}
END_TEST

START_TEST(the_rest_stays) {
    ck_assert_int_eq(setpriority(PRIO_PROCESS, 0, 7), 0);
    slice_take(SLICE_LONG);
    ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), 7);
    ck_assert_int_eq(sched_getscheduler(0), SCHED_OTHER);
    const struct sched_param none = {0};
    ck_assert_int_eq(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    slice_take(SLICE_SHORT);
    ck_assert_int_eq(sched_getscheduler(0), SCHED_BATCH);
    ck_assert_uint_ne(runtime(), 100000);
}
END_TEST

int main(void) {
    Suite *s = suite_create("slice");
    TCase *c = tcase_create("slice");
    tcase_add_test(c, turns_are_short_or_long);
    tcase_add_test(c, the_rest_stays);
    suite_add_tcase(s, c);
    return run_suite(s);
}
