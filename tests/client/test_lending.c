/* The bookkeeping of leases, slots and pushes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "client/lending.h"
#include "tests/base/suite.h"

enum { UNITS = 3, ELEMENTS = 64 };

static struct lending l;
static struct err e;

static void setup(void) {
    lending_init(&l, UNITS);
    for (unsigned i = 0; i < UNITS; i++) {
        (void)snprintf(l.units[i].name, sizeof l.units[i].name, "u%u", i);
        l.units[i].param_bytes = l.units[i].grad_bytes = l.units[i].initial_bytes = 4 * ELEMENTS;
        l.units[i].contributions = 1;
    }
    l.reduce_units = mem_zeroed(UNITS, sizeof *l.reduce_units);
    for (unsigned i = 0; i < UNITS; i++) {
        l.reduce_units[i] = i;
    }
    l.micro_batches = 2;
    l.param_bytes = 2 * ELEMENTS * 4;
    l.grad_bytes = 2 * ELEMENTS * 4;
    l.grad_slots = 2;
    l.reduces = UNITS;
}

static void teardown(void) {
    lending_free(&l);
}

START_TEST(pushes_come_in_order) {
    for (unsigned i = 0; i < 100; i++) { /* more than the ring holds at first, wrapping */
        ck_assert_int_eq(lending_gathered(&l, false, 3 * i, i % UNITS, 0, &e), 0);
        ck_assert_int_eq(lending_gathered(&l, false, 3 * i + 1, i % UNITS, 64, &e), 0);
        ck_assert_int_eq(lending_gathered(&l, false, 3 * i + 2, i % UNITS, 128, &e), 0);
        if (i % 2) {
            continue;
        }
        uint32_t unit = l.gathers.ring[l.gathers.first].unit;
        ck_assert(!lending_take(&l, (unit + 1) % UNITS));
        ck_assert(lending_take(&l, unit));
        l.units[unit].leases = 0;
    }
    ck_assert_uint_eq(l.gathers.count, 250);
    for (unsigned i = 50; i < 300; i++) {
        ck_assert(lending_take(&l, i / 3 % UNITS));
        ck_assert_uint_eq(l.units[i / 3 % UNITS].param_offset, i % 3 * 64);
    }
    ck_assert_int_eq(lending_gathered(&l, false, 299, 0, 0, &e), -ST_INTERNAL);
    ck_assert_str_eq(e.text, "the daemon sent gather 299 where 300 was next");
    ck_assert_int_eq(lending_gathered(&l, false, 301, 0, 0, &e), -ST_INTERNAL);
    l.may_leave_out = true;
    ck_assert_int_eq(lending_gathered(&l, false, 305, 0, 0, &e), 0);
    ck_assert_int_eq(lending_granted(&l, 1, 0, &e), -ST_INTERNAL);
    ck_assert_str_eq(e.text, "the daemon sent gradient slot 1 where 0 was next");
}
END_TEST

START_TEST(offsets_stay_inside) {
    ck_assert_int_eq(lending_gathered(&l, false, 0, 0, 32, &e), -ST_INTERNAL);
    ck_assert_int_eq(lending_gathered(&l, false, 0, 0, 320, &e), -ST_INTERNAL);
    ck_assert_int_eq(lending_gathered(&l, false, 0, 0, UINT64_MAX - 63, &e), -ST_INTERNAL);
    ck_assert_int_eq(lending_gathered(&l, false, 0, UNITS, 0, &e), -ST_INTERNAL);
    ck_assert_int_eq(lending_gathered(&l, false, 0, 0, 256, &e), 0);
    ck_assert_int_eq(lending_granted(&l, 0, 576, &e), -ST_INTERNAL);
    ck_assert_int_eq(lending_granted(&l, 0, 320, &e), 0);
    ck_assert_int_eq(lending_open(&l, 0, false, &e),
                     -ST_INTERNAL); /* too little left for the unit */
    ck_assert(!l.units[0].open);
}
END_TEST

START_TEST(leases_count) {
    ck_assert_int_eq(lending_release(&l, 1, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(lending_gathered(&l, false, 0, 1, 0, &e), 0);
    ck_assert(lending_take(&l, 1));
    l.units[1].leases++;
    ck_assert_int_eq(lending_release(&l, 1, &e), 0);
    ck_assert_int_eq(lending_release(&l, 1, &e), 1);
    ck_assert_int_eq(lending_release(&l, 1, &e), -ST_INVALID_ARGUMENT);
}
END_TEST

START_TEST(slots_go_back_in_order) {
    ck_assert_int_eq(lending_open(&l, 2, false, &e), 0);
    ck_assert_int_eq(lending_granted(&l, 0, 0, &e), 0);
    ck_assert_int_eq(lending_granted(&l, 1, 256, &e), 0);
    ck_assert_int_eq(lending_open(&l, 2, false, &e), 1);
    ck_assert_int_eq(lending_may_open(&l, 2, false, &e), -ST_FAILED_PRECONDITION);
    ck_assert_int_eq(lending_open(&l, 1, false, &e), 1);
    ck_assert_int_eq(lending_may_open(&l, 0, false, &e), -ST_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(e.text, "'u1' (a gradient slot), 'u2' (a gradient slot)"));
    ck_assert_int_eq(lending_close(&l, 1, &e), -ST_FAILED_PRECONDITION);
    ck_assert_int_eq(lending_close(&l, 0, &e), -ST_FAILED_PRECONDITION);
    ck_assert_int_eq(lending_close(&l, 2, &e), 0);
    ck_assert_int_eq(lending_close(&l, 1, &e), 0);
}
END_TEST

START_TEST(a_unit_is_reduced_once_in_a_micro_batch) {
    for (unsigned s = 0; s < 2 * UNITS; s++) {
        ck_assert_int_eq(lending_granted(&l, s, 0, &e), 0);
        if (s % UNITS) {
            ck_assert_int_eq(lending_may_open(&l, 0, false, &e), -ST_ALREADY_EXISTS);
        }
        ck_assert_int_eq(lending_may_open(&l, s % UNITS, false, &e), 0);
        ck_assert_int_eq(lending_open(&l, s % UNITS, false, &e), 1);
        ck_assert_int_eq(lending_close(&l, s % UNITS, &e), 0);
    }
    ck_assert_int_eq(lending_may_open(&l, 0, false, &e), -ST_FAILED_PRECONDITION);
    lending_revoke(&l);
    ck_assert_int_eq(lending_may_open(&l, 0, false, &e), 0);
}
END_TEST

/* Unit 1 may be absent: leaving it out is no error and takes no slot. */
START_TEST(absent_units_are_left_out) {
    l.units[1].may_be_absent = l.may_leave_out = true;
    ck_assert_int_eq(lending_gathered(&l, false, 0, 0, 0, &e), 0);
    ck_assert_int_eq(lending_gathered(&l, false, 1, 1, 64, &e), 0);
    ck_assert_int_eq(lending_gathered(&l, false, 2, 2, 128, &e), 0);
    ck_assert(!lending_take(&l, 2)); /* unit 0 may not */
    ck_assert(lending_take(&l, 0));
    ck_assert(lending_take(&l, 2));
    ck_assert_int_eq(lending_gathered(&l, false, 4, 1, 64, &e), 0);
    ck_assert(lending_take(&l, 1));
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_int_eq(lending_granted(&l, i, 64 * i, &e), 0);
    }
    ck_assert_int_eq(lending_open(&l, 0, false, &e), 1);
    ck_assert_int_eq(lending_close(&l, 0, &e), 0);
    ck_assert_int_eq(lending_may_open(&l, 2, false, &e), 0);
    ck_assert_int_eq(lending_open(&l, 2, false, &e), 1);
    ck_assert_uint_eq(l.units[2].grad_offset, 64); /* the next slot, not the plan's */
    ck_assert_int_eq(lending_close(&l, 2, &e), 0);
    ck_assert_int_eq(lending_open(&l, 0, false, &e), 1); /* the second micro-batch */
    ck_assert_int_eq(lending_close(&l, 0, &e), 0);
    ck_assert_int_eq(lending_open(&l, 1, false, &e), 1);
    ck_assert_int_eq(lending_close(&l, 1, &e), 0);
    ck_assert_int_eq(lending_may_open(&l, 1, false, &e), -ST_ALREADY_EXISTS);
}
END_TEST

START_TEST(what_is_held_is_listed) {
    char text[128];
    lending_list(&l, text, sizeof text);
    ck_assert_str_eq(text, "nothing");
    l.units[0].leases = 2;
    l.units[0].open = true;
    l.units[2].leases = 1;
    lending_list(&l, text, sizeof text);
    ck_assert_str_eq(text, "'u0' (2 leases, a gradient slot), 'u2' (1 lease)");
    for (size_t cap = 1; cap < 60; cap++) { /* never past the end: ASan looks */
        char *small = malloc(cap);
        lending_list(&l, small, cap);
        ck_assert_uint_lt(strlen(small), cap);
        free(small);
    }
}
END_TEST

START_TEST(an_eval_pass_starts_both_plans_anew) {
    ck_assert_int_eq(lending_gathered(&l, false, 0, 1, 0, &e), 0);
    lending_eval(&l, true);
    ck_assert(!lending_take(&l, 1));
    ck_assert_int_eq(lending_gathered(&l, false, 1, 0, 64, &e), 0); /* ignored */
    ck_assert_int_eq(lending_gathered(&l, true, 0, 2, 0, &e), 0);
    ck_assert(lending_take(&l, 2));
    lending_eval(&l, false);
    ck_assert_uint_eq(l.units[2].leases, 0);
    ck_assert_int_eq(lending_gathered(&l, true, 1, 0, 64, &e), 0); /* ignored */
    ck_assert_int_eq(lending_gathered(&l, false, 0, 1, 0, &e), 0);
    ck_assert(lending_take(&l, 1));
}
END_TEST

int main(void) {
    Suite *s = suite_create("client/lending");
    TCase *c = tcase_create("lending");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, pushes_come_in_order);
    tcase_add_test(c, offsets_stay_inside);
    tcase_add_test(c, leases_count);
    tcase_add_test(c, slots_go_back_in_order);
    tcase_add_test(c, a_unit_is_reduced_once_in_a_micro_batch);
    tcase_add_test(c, absent_units_are_left_out);
    tcase_add_test(c, what_is_held_is_listed);
    tcase_add_test(c, an_eval_pass_starts_both_plans_anew);
    suite_add_tcase(s, c);
    return run_suite(s);
}
