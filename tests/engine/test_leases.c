/* Gather slots and leases, and the plan's order, without an engine. */

#include "engine/leases.h"
#include "tests/base/suite.h"
#include "reference.h"

static struct model model;
static struct course course;
static struct leases leases;

static void up(uint32_t slots, uint32_t ahead) {
    reference_model(&model, 2, &(struct variant){.strategy = STRATEGY_ZERO3, .micro_batches = 2});
    ck_assert_int_eq(
        course_init(&course, &model, model_plan(&model, "train"), PLAN_GATHER, 2, NULL), 0);
    leases_init(&leases, slots, ahead);
    leases_start(&leases, &course, false);
}

static void down(void) {
    leases_free(&leases);
    course_free(&course);
    model_free(&model);
}

static uint32_t gather(void) { /* runs the next gather whole; returns its slot */
    uint32_t unit, slot;
    ck_assert(leases_next(&leases, &unit));
    slot = leases_launch(&leases);
    ck_assert_uint_eq(leases.slots[slot].unit, unit);
    leases_filled(&leases, slot);
    return slot;
}

static void ask(bool *ahead) {
    ck_assert(!leases_full(&leases));
    leases_ask(&leases, ahead);
}

static void report(uint32_t position) {
    const struct lease_slot *s = leases_to_report(&leases);
    ck_assert_ptr_nonnull(s);
    ck_assert_uint_eq(s->position, position);
    leases_reported(&leases);
}

START_TEST(a_course_is_the_plans_order) {
    up(2, 2);
    const uint32_t expected[] = {0, 1, 2, 3, 4, 4, 3, 2, 1, 0};
    ck_assert_uint_eq(course_total(&course), 20);
    for (uint32_t n = 0; n < 20; n++) {
        ck_assert_uint_eq(course_unit(&course, n), expected[n % 10]);
    }
    ck_assert(course_had(&course, 5, 4));
    ck_assert(!course_had(&course, 5, 7));
    ck_assert(!course_had(&course, 10, 0)); /* a new micro-batch */
    down();
}
END_TEST

START_TEST(slots_are_filled_in_order_and_given_back) {
    uint32_t unit;
    bool ahead;
    up(2, 2);
    ck_assert(!leases_next(&leases, &unit)); /* nothing before the first is asked for */
    leases_expect(&leases);                  /* or announced */
    ck_assert(leases_next(&leases, &unit));
    leases_start(&leases, &course, false); /* another try's */
    ck_assert(!leases_next(&leases, &unit));
    ask(&ahead);
    ck_assert(!ahead);
    gather();
    gather();
    ck_assert(!leases_next(&leases, &unit)); /* no slot */
    report(0);
    report(1);
    ck_assert_ptr_null(leases_to_report(&leases));
    ck_assert(!leases_release(&leases, 1)); /* not asked for */
    ask(&ahead);
    ck_assert(ahead);
    ck_assert(leases_full(&leases)); /* all are held */
    ck_assert(leases_any(&leases, &unit));
    char text[64];
    leases_list(&leases, text, sizeof text);
    ck_assert_str_eq(text, "\"embedding\", \"block0\"");
    ck_assert(leases_release(&leases, 1));
    ck_assert(!leases_release(&leases, 1));
    ck_assert_uint_eq(gather(), 1);
    report(2);
    down();
}
END_TEST

/* The last unit of the forward pass comes twice in a row: two slots hold it, the older goes first.
 */
START_TEST(a_unit_in_two_slots) {
    bool ahead;
    up(3, 3);
    for (uint32_t n = 0; n < 4; n++) {
        ask(&ahead);
        gather();
        report(n);
        ck_assert(leases_release(&leases, n));
    }
    ask(&ahead);
    uint32_t first = gather(), second = gather();
    report(4);
    report(5);
    ck_assert_uint_eq(leases.slots[first].unit, 4);
    ck_assert_uint_eq(leases.slots[second].unit, 4);
    ask(&ahead);
    ck_assert(leases_release(&leases, 4));
    ck_assert_int_eq(leases.slots[first].state, LEASE_FREE);
    ck_assert_int_eq(leases.slots[second].state, LEASE_READY);
    ck_assert(leases_release(&leases, 4));
    down();
}
END_TEST

START_TEST(revoked_while_filling) {
    uint32_t unit;
    bool ahead;
    up(1, 1);
    ask(&ahead);
    ck_assert(leases_next(&leases, &unit));
    uint32_t slot = leases_launch(&leases);
    leases_start(&leases, &course, false);
    ask(&ahead);
    ck_assert(!leases_next(&leases, &unit)); /* its slot is still written to */
    leases_start(&leases, NULL, false);
    leases_filled(&leases, slot);
    ck_assert_ptr_null(leases_to_report(&leases));
    ck_assert(!leases_next(&leases, &unit));
    leases_start(&leases, &course, false);
    ask(&ahead);
    gather();
    down();
}
END_TEST

/* The trainer leaves out gathers that were filled, that run, and that have not begun. */
START_TEST(left_out_gathers_give_their_slots_back) {
    uint32_t unit;
    bool ahead;
    up(3, 3);
    ask(&ahead);
    gather();
    gather();
    uint32_t running = leases_launch(&leases);
    report(0);
    leases_skip(&leases, 4); /* positions 1 to 4 */
    ck_assert_ptr_null(leases_to_report(&leases));
    ask(&ahead);
    ck_assert(!ahead);
    ck_assert(leases_next(&leases, &unit));
    ck_assert_uint_eq(unit, 4);
    gather(); /* position 5, where 1 was */
    report(5);
    leases_filled(&leases, running);
    gather();
    report(6);
    ck_assert(leases_release(&leases, 0));
    ck_assert(leases_release(&leases, 4));
    ck_assert(!leases_release(&leases, 1));
    leases_skip(&leases, 20 - 6);
    ck_assert(!leases_next(&leases, &unit));
    ck_assert(!leases_any(&leases, &unit));
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(leases.slots[i].state, LEASE_FREE);
    }
    down();
}
END_TEST

START_TEST(a_gap_is_what_may_be_left_out) {
    bool optional[5] = {[1] = true, [2] = true};
    up(1, 1); /* 0 1 2 3 4 4 3 2 1 0, twice */
    ck_assert_uint_eq(course_gap(&course, 0, 0, optional), 0);
    ck_assert_uint_eq(course_gap(&course, 1, 1, optional), 0);
    ck_assert_uint_eq(course_gap(&course, 1, 2, optional), 1);
    ck_assert_uint_eq(course_gap(&course, 1, 3, optional), 2);
    ck_assert_uint_eq(course_gap(&course, 1, 4, optional), UINT32_MAX);
    ck_assert_uint_eq(course_gap(&course, 17, 0, optional), 2);
    ck_assert_uint_eq(course_gap(&course, 17, 3, optional), UINT32_MAX);
    ck_assert_uint_eq(course_gap(&course, 20, 0, optional), UINT32_MAX);
    down();
}
END_TEST

int main(void) {
    Suite *s = suite_create("leases");
    TCase *c = tcase_create("leases");
    tcase_add_test(c, a_course_is_the_plans_order);
    tcase_add_test(c, slots_are_filled_in_order_and_given_back);
    tcase_add_test(c, a_unit_in_two_slots);
    tcase_add_test(c, revoked_while_filling);
    tcase_add_test(c, left_out_gathers_give_their_slots_back);
    tcase_add_test(c, a_gap_is_what_may_be_left_out);
    suite_add_tcase(s, c);
    return run_suite(s);
}
