/* A rank's machine, event by event. Every op is written into a log line; a test compares the log.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/rank.h"
#include "tests/base/suite.h"

static struct records *records;
static struct job_rank *j;
static char said[4096];
static bool idle, quiet;
static struct vote last_vote;
static struct job_report last_report;
static const uint8_t uuid_a[JOB_UUID] = "a", uuid_b[JOB_UUID] = "b";

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...) {
    const size_t n = strlen(said);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(said + n, sizeof said - n, fmt, args);
    va_end(args);
}

#define F(f)                                                                                       \
    (unsigned long long)(f)->generation, (unsigned long long)(f)->step,                            \
        (unsigned long long)(f)->attempt

static void on_grant(void *ctx, uint64_t generation, const uint8_t uuid[JOB_UUID],
                     const struct job_report *report) {
    (void)ctx;
    last_report = *report;
    say("grant %llu %s; ", (unsigned long long)generation, (const char *)uuid);
}
static void on_refuse(void *ctx, uint64_t generation, const uint8_t uuid[JOB_UUID]) {
    (void)ctx;
    say("refuse %llu %s; ", (unsigned long long)generation, (const char *)uuid);
}
static void on_vote(void *ctx, const struct vote *v) {
    (void)ctx;
    struct vote recorded;
    ck_assert(records_read_vote(records, v->fence.step, &recorded)); /* before it is sent */
    ck_assert(recorded.yes == v->yes && fence_compare(&recorded.fence, &v->fence) == 0);
    last_vote = *v;
    say("%s %llu.%llu.%llu%s%s; ", v->yes ? "yes" : "no", F(&v->fence), v->yes ? "" : " ",
        v->reason);
}
static void on_open(void *ctx, const struct fence *f) {
    (void)ctx;
    say("open %llu.%llu.%llu; ", F(f));
}
static void on_cancel(void *ctx, const struct fence *f) {
    (void)ctx;
    say("cancel %llu.%llu.%llu; ", F(f));
}
static void on_apply(void *ctx, const struct decision *d) {
    (void)ctx;
    struct decision recorded;
    ck_assert(records_read_decision(records, d->fence.step, &recorded)); /* before its first tile */
    say("apply %llu.%llu.%llu; ", F(&d->fence));
}
static bool is_idle(void *ctx) {
    (void)ctx;
    return idle;
}
static bool is_quiet(void *ctx) {
    (void)ctx;
    return quiet;
}
static void on_entered(void *ctx, const struct fence *f, const struct vote *committed,
                       const char *void_reason) {
    (void)ctx;
    say("entered %llu.%llu.%llu", F(f));
    if (committed) {
        say(" %.*s %.*s", (int)committed->rank_cursor_bytes, (const char *)committed->rank_cursor,
            (int)committed->shared_cursor_bytes, (const char *)committed->shared_cursor);
    }
    say("%s%s; ", void_reason[0] ? " " : "", void_reason);
}
static void on_stepped(void *ctx, const struct decision *d, const struct fence *next) {
    (void)ctx;
    say("stepped %llu.%llu.%llu next %llu.%llu.%llu; ", F(&d->fence), F(next));
}
static void on_voided(void *ctx, const struct fence *f, int code, const char *reason) {
    (void)ctx;
    say("voided %llu.%llu.%llu %s %s; ", F(f), status_name(code), reason);
}

static const struct job_rank_ops ops = {
    on_grant, on_refuse, on_vote,    on_open,    on_cancel, on_apply,
    is_idle,  is_quiet,  on_entered, on_stepped, on_voided,
};

static void restart(void) {
    job_rank_del(j);
    j = job_rank_new(1, records, &ops, NULL);
}

static void expect(const char *want) {
    ck_assert_str_eq(said, want);
    said[0] = 0;
}

static void ask(uint64_t generation) {
    job_rank_on_ask(j, generation, uuid_a);
}
static void begin(uint64_t g, uint64_t s, uint64_t a) {
    job_rank_on_begin(j, &(struct fence){g, s, a}, ST_OK, "");
}
static void begin_again(uint64_t g, uint64_t s, uint64_t a, int code, const char *reason) {
    job_rank_on_begin(j, &(struct fence){g, s, a}, code, reason);
}
static void decision(uint64_t generation, uint64_t g, uint64_t s, uint64_t a) {
    const struct decision d = {.fence = {g, s, a}, .outcome = OUTCOME_COMMIT, .t = s};
    job_rank_on_decision(j, generation, &d);
}
static int check(uint64_t g, uint64_t s, uint64_t a, struct err *e) {
    return job_rank_check(j, &(struct fence){g, s, a}, e);
}
static void step(const char *cursor) {
    const struct vote v = {.weight = 1,
                           .rank_cursor = (const uint8_t *)cursor,
                           .rank_cursor_bytes = strlen(cursor),
                           .shared_cursor = (const uint8_t *)"sh",
                           .shared_cursor_bytes = 2};
    job_rank_step(j, &v);
}
static void reduced(uint64_t g, uint64_t s, uint64_t a) {
    job_rank_reduced(j, &(struct fence){g, s, a}, 1.5, false, NULL, 0);
}

static void setup(void) {
    records = calloc(1, sizeof *records);
    idle = quiet = true;
    said[0] = 0;
    j = NULL;
    restart();
}
static void teardown(void) {
    job_rank_del(j);
    free(records);
}

/* The trainer is in try 1.0.1. */
static void running(void) {
    ask(1);
    begin(1, 0, 1);
    job_rank_attached(j, 1);
    job_rank_begin(j);
    expect("grant 1 a; open 1.0.1; entered 1.0.1; ");
}
/* And said YES. */
static void in_doubt(void) {
    running();
    reduced(1, 0, 1);
    step("cur0");
    expect("yes 1.0.1; ");
}

START_TEST(a_step_from_begin_to_the_next) {
    running();
    struct err e;
    ck_assert_int_eq(check(1, 0, 1, &e), 0);
    step("cur0");
    ck_assert_int_eq(check(1, 0, 1, &e), -ST_FAILED_PRECONDITION);
    expect("");
    decision(1, 1, 0, 1); /* that this rank has no part in */
    expect("");
    quiet = false;
    const uint64_t sums[2] = {3, UINT64_MAX};
    job_rank_reduced(j, &(struct fence){1, 0, 1}, 0, false, sums, 2);
    expect(""); /* a re-gather of the step before is still under way */
    quiet = true;
    job_rank_poke(j);
    expect("yes 1.0.1; ");
    ck_assert(last_vote.checksum && last_vote.checksum_count == 2 && last_vote.checksums[0] == 3);
    ck_assert_str_eq(job_rank_phase(j), "in doubt");
    decision(1, 1, 0, 1);
    expect("apply 1.0.1; open 1.1.1; stepped 1.0.1 next 1.1.1; ");
    ck_assert_uint_eq(job_rank_decided(j), 1);
    ck_assert_int_eq(check(1, 1, 1, &e), 0);
    decision(1, 1, 0, 1); /* a duplicate */
    begin(1, 0, 1);
    begin(1, 1, 1);
    expect("");
}
END_TEST

START_TEST(a_trainer_that_dies_before_its_yes_dooms_the_try) {
    running();
    job_rank_detached(j, ST_ABORTED, "trainer of rank 1 was killed by signal 9");
    expect("cancel 1.0.1; no 1.0.1 trainer of rank 1 was killed by signal 9; ");
    ck_assert_int_eq(last_vote.code, ST_ABORTED);
    decision(1, 1, 0, 1); /* though it said no */
    job_rank_attached(j, 2);
    job_rank_begin(j);
    expect(""); /* waits for the next attempt */
    begin_again(1, 0, 2, ST_ABORTED, "why");
    expect("open 1.0.2; entered 1.0.2 why; ");
}
END_TEST

START_TEST(a_trainer_outside_the_try_does_not_void_it) {
    ask(1);
    begin(1, 0, 1);
    job_rank_attached(j, 1);
    job_rank_detached(j, ST_ABORTED, "gone");
    expect("grant 1 a; open 1.0.1; ");
    job_rank_attached(j, 2);
    job_rank_begin(j);
    expect("entered 1.0.1; ");
}
END_TEST

START_TEST(a_yes_outlives_its_trainer) {
    in_doubt();
    job_rank_detached(j, ST_ABORTED, "gone");
    job_rank_attached(j, 2);
    job_rank_begin(j);
    expect("");
    decision(1, 1, 0, 1);
    expect("apply 1.0.1; open 1.1.1; entered 1.1.1 cur0 sh; ");
}
END_TEST

START_TEST(the_first_cause_is_told) {
    running();
    job_rank_doom(j, ST_FAILED_PRECONDITION, "mine");
    job_rank_doom(j, ST_FAILED_PRECONDITION, "what followed");
    expect("cancel 1.0.1; no 1.0.1 mine; ");
    struct err e;
    ck_assert_int_eq(check(1, 0, 1, &e), -ST_FAILED_PRECONDITION);
    ck_assert_str_eq(e.text, "mine");
    begin_again(1, 0, 2, ST_ABORTED, "rank 0 was first");
    expect("voided 1.0.1 ABORTED rank 0 was first; open 1.0.2; ");
    ck_assert_int_eq(check(1, 0, 1, &e), -ST_ABORTED);
    ck_assert_msg(strstr(e.text, "rank 0 was first"), "%s", e.text);
    job_rank_begin(j);
    expect("entered 1.0.2 rank 0 was first; ");
}
END_TEST

START_TEST(begin_inside_a_try_is_a_deviation) {
    running();
    job_rank_begin(j);
    expect("cancel 1.0.1; no 1.0.1 rank 1 called begin() inside step 0; ");
    begin(1, 0, 2);
    expect("open 1.0.2; entered 1.0.2; ");
}
END_TEST

START_TEST(begin_waits_for_the_decision) {
    in_doubt();
    ask(2);
    begin(2, 1, 1);
    begin(2, 1, 2);
    begin(2, 1, 1); /* late */
    expect("grant 2 a; ");
    decision(2, 1, 0, 1);
    expect("apply 1.0.1; open 2.1.1; stepped 1.0.1 next 2.1.1; "
           "cancel 2.1.1; voided 2.1.1 ABORTED ; open 2.1.2; ");
}
END_TEST

START_TEST(begin_waits_for_idle_workers) {
    running();
    idle = false;
    begin_again(1, 0, 2, ST_ABORTED, "why");
    expect("cancel 1.0.1; voided 1.0.1 ABORTED why; ");
    job_rank_begin(j);
    job_rank_poke(j);
    reduced(1, 0, 1); /* of the void try */
    expect("");
    ck_assert_str_eq(job_rank_phase(j), "waits for its workers");
    idle = true;
    job_rank_poke(j);
    expect("open 1.0.2; entered 1.0.2 why; ");
}
END_TEST

START_TEST(a_number_is_granted_once) {
    ask(3);
    expect("grant 3 a; ");
    ask(3); /* the same coordinator again: its grant is under way */
    expect("");
    job_rank_on_ask(j, 3, uuid_b);
    expect("refuse 3 a; ");
    job_rank_on_ask(j, 2, uuid_b);
    expect("refuse 3 a; ");
    restart();
    job_rank_on_ask(j, 3, uuid_b);
    expect("refuse 3 a; ");
    ck_assert_uint_eq(job_rank_granted(j), 3);
    job_rank_on_ask(j, 4, uuid_b);
    expect("grant 4 b; refuse 4 b; "); /* the first one must hear of it */
    begin(3, 0, 1);
    decision(3, 3, 0, 1);
    expect("refuse 4 b; refuse 4 b; ");
}
END_TEST

START_TEST(a_grant_ends_a_try_without_yes) {
    running();
    ask(2);
    expect("cancel 1.0.1; grant 2 a; ");
    ck_assert(fence_compare(&last_report.opened, &(struct fence){1, 0, 1}) == 0);
    struct err e;
    ck_assert_int_eq(check(1, 0, 1, &e), -ST_ABORTED);
    reduced(1, 0, 1);
    expect("");
    begin_again(2, 0, 2, ST_ABORTED, "rank 0's daemon was lost");
    expect("voided 1.0.1 ABORTED rank 0's daemon was lost; open 2.0.2; ");
}
END_TEST

START_TEST(a_grant_leaves_a_yes_in_doubt) {
    in_doubt();
    ask(2);
    expect("grant 2 a; ");
    ck_assert(last_report.has_vote[0] && last_report.votes[0].yes && !last_report.has_vote[1]);
    decision(2, 1, 0, 1);
    expect("apply 1.0.1; open 2.1.1; stepped 1.0.1 next 2.1.1; ");
}
END_TEST

START_TEST(a_successor_enters_nothing_without_a_grant) {
    in_doubt();
    restart();
    ck_assert_uint_eq(job_rank_granted(j), 1);
    begin(1, 0, 2);
    expect("");
    decision(1, 1, 0, 1);
    expect("apply 1.0.1; ");
    ck_assert_uint_eq(job_rank_decided(j), 1);
    job_rank_attached(j, 1);
    job_rank_begin(j);
    begin(1, 1, 1);
    expect("");
    ask(2);
    begin(2, 1, 1);
    expect("grant 2 a; open 2.1.1; entered 2.1.1 cur0 sh; ");
    ck_assert(last_report.has_decision[0] && last_report.has_vote[0]);
    ck_assert_uint_eq(last_report.opened.generation, 0);
}
END_TEST

START_TEST(a_voided_yes_is_told) {
    in_doubt();
    begin_again(1, 0, 2, ST_ABORTED, "rank 0 said no");
    expect("cancel 1.0.1; voided 1.0.1 ABORTED rank 0 said no; open 1.0.2; ");
    job_rank_begin(j);
    step("cur0");
    reduced(1, 0, 2);
    expect("entered 1.0.2 rank 0 said no; yes 1.0.2; ");
}
END_TEST

START_TEST(the_decision_carries_rank_0s_shared_cursor) {
    in_doubt();
    const struct decision d = {.fence = {1, 0, 1},
                               .outcome = OUTCOME_COMMIT,
                               .shared_cursor = (const uint8_t *)"zero's",
                               .shared_cursor_bytes = 6};
    job_rank_detached(j, ST_ABORTED, "gone");
    job_rank_on_decision(j, 1, &d);
    job_rank_attached(j, 2);
    job_rank_begin(j);
    expect("apply 1.0.1; open 1.1.1; entered 1.1.1 cur0 zero's; ");
}
END_TEST

int main(void) {
    Suite *s = suite_create("rank");
    TCase *t = tcase_create("rank");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_step_from_begin_to_the_next);
    tcase_add_test(t, a_trainer_that_dies_before_its_yes_dooms_the_try);
    tcase_add_test(t, a_trainer_outside_the_try_does_not_void_it);
    tcase_add_test(t, a_yes_outlives_its_trainer);
    tcase_add_test(t, the_first_cause_is_told);
    tcase_add_test(t, begin_inside_a_try_is_a_deviation);
    tcase_add_test(t, begin_waits_for_the_decision);
    tcase_add_test(t, begin_waits_for_idle_workers);
    tcase_add_test(t, a_number_is_granted_once);
    tcase_add_test(t, a_grant_ends_a_try_without_yes);
    tcase_add_test(t, a_grant_leaves_a_yes_in_doubt);
    tcase_add_test(t, a_successor_enters_nothing_without_a_grant);
    tcase_add_test(t, a_voided_yes_is_told);
    tcase_add_test(t, the_decision_carries_rank_0s_shared_cursor);
    suite_add_tcase(s, t);
    return run_suite(s);
}
