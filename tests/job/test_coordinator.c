/* The coordinator's machine: the roster, votes, recovery from reports, giving way; and its cost
 * with 1,024 ranks. Every op is written into a log line; a test compares the log. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "job/coordinator.h"
#include "tests/base/suite.h"

enum { RANKS = 2 };

static struct job_coordinator *c;
static char said[8192];
static struct decision last_decision;
static bool quiet_ops;
static const uint8_t uuid_a[JOB_UUID] = "a", uuid_b[JOB_UUID] = "b";
static const struct decide_options options = {
    .optimizer = {.kind = OPTIMIZER_ADAMW,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .epsilon = 1e-8,
                  .weight_decay = 0.1},
    .scaling = {.dynamic = true, .start = 8, .factor = 2, .floor = 1, .window = 2, .hysteresis = 1},
    .max_skips_in_row = 50};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...) {
    if (quiet_ops) {
        return;
    }
    const size_t n = strlen(said);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(said + n, sizeof said - n, fmt, args);
    va_end(args);
}

#define F(f)                                                                                       \
    (unsigned long long)(f)->generation, (unsigned long long)(f)->step,                            \
        (unsigned long long)(f)->attempt

static void on_ask(void *ctx, unsigned rank, uint64_t generation, const uint8_t uuid[JOB_UUID]) {
    (void)ctx;
    say("ask%u %llu %s; ", rank, (unsigned long long)generation, (const char *)uuid);
}
static void on_begin(void *ctx, unsigned rank, const struct fence *f, int code,
                     const char *reason) {
    (void)ctx;
    say("begin%u %llu.%llu.%llu%s%s %s; ", rank, F(f), code ? " " : "",
        code ? status_name(code) : "", reason);
}
static void on_decision(void *ctx, unsigned rank, uint64_t generation, const struct decision *d) {
    (void)ctx;
    last_decision = *d;
    say("decision%u %llu %llu.%llu.%llu; ", rank, (unsigned long long)generation, F(&d->fence));
}
static void on_determined(void *ctx, const struct decision *d, int code, const char *reason) {
    (void)ctx;
    static const char *const names[] = {"?", "commit", "skip", "abort"};
    say("%s %llu.%llu.%llu%s%s; ", names[d->outcome], F(&d->fence), code ? " " : "", reason);
}
static void on_give_up(void *ctx, int code, const char *reason) {
    (void)ctx;
    (void)code;
    say("give up: %s; ", reason);
}

static const struct job_coordinator_ops ops = {on_ask, on_begin, on_decision, on_determined,
                                               on_give_up};

static void setup(void) {
    said[0] = 0;
    quiet_ops = false;
    c = job_coordinator_new(RANKS, uuid_a, &options, &ops, NULL);
}
static void teardown(void) {
    job_coordinator_del(c);
}

static void expect(const char *want) {
    ck_assert_str_eq(said, want);
    said[0] = 0;
}

static struct vote yes(uint64_t g, uint64_t s, uint64_t a) {
    return (struct vote){.fence = {g, s, a},
                         .yes = true,
                         .sum_squares = 1,
                         .weight = 1,
                         .scalars = {.learning_rate = 0.01, .micro_batches = 1}};
}
static void vote(unsigned rank, struct vote v, int64_t now) {
    job_coordinator_on_vote(c, rank, &v, now);
}
static void grant(unsigned rank, uint64_t generation, struct job_report report) {
    job_coordinator_on_grant(c, rank, generation, &report);
}

static void joined_at(uint64_t granted) {
    job_coordinator_joined(c, 0, granted);
    job_coordinator_joined(c, 1, 0);
    job_coordinator_ready(c);
}

/* Both ranks are in 1.0.1. */
static void running(void) {
    joined_at(0);
    grant(0, 1, (struct job_report){0});
    grant(1, 1, (struct job_report){0});
    expect("ask0 1 a; ask1 1 a; begin0 1.0.1 ; begin1 1.0.1 ; ");
}

/* A report of a rank that decided |decided| steps, voted in the next, and opened |opened|. */
static struct job_report report(uint64_t decided, const struct vote *v, struct fence opened) {
    struct job_report r = {.opened = opened};
    if (decided) {
        const uint64_t step = decided - 1;
        r.has_decision[step & 1] = true;
        r.decisions[step & 1] = (struct decision){.fence = {1, step, 1},
                                                  .outcome = OUTCOME_COMMIT,
                                                  .t = step,
                                                  .scale = {.scale = 4, .hysteresis = 1}};
    }
    if (v) {
        r.has_vote[v->fence.step & 1] = true;
        r.votes[v->fence.step & 1] = *v;
    }
    return r;
}

START_TEST(asks_when_the_roster_is_complete) {
    job_coordinator_joined(c, 1, 6);
    ck_assert_str_eq(job_coordinator_phase(c), "waiting for daemons");
    expect("");
    job_coordinator_joined(c, 0, 4);
    expect("ask0 7 a; ask1 7 a; "); /* above all that were granted */
    grant(0, 6, (struct job_report){0});
    grant(0, 7, (struct job_report){0});
    grant(0, 7, (struct job_report){0});
    ck_assert_str_eq(job_coordinator_phase(c), "waiting for grants");
    grant(1, 7, (struct job_report){0});
    expect("");
    ck_assert_str_eq(job_coordinator_phase(c), "waiting for memory");
    job_coordinator_ready(c);
    expect("begin0 7.0.1 ; begin1 7.0.1 ; ");
}
END_TEST

START_TEST(all_yes_commit) {
    running();
    vote(0, yes(1, 0, 1), 0);
    vote(0, yes(1, 0, 1), 0);
    expect("");
    vote(1, yes(1, 0, 1), 0);
    expect("commit 1.0.1; decision0 1 1.0.1; decision1 1 1.0.1; ");
    vote(1, yes(1, 1, 1), 0);
    vote(1, yes(1, 0, 1), 0); /* late */
    vote(0, yes(1, 1, 1), 0);
    expect("commit 1.1.1; decision0 1 1.1.1; decision1 1 1.1.1; ");
    ck_assert_uint_eq(last_decision.t, 1);
}
END_TEST

START_TEST(one_no_aborts_with_its_cause) {
    running();
    vote(1, yes(1, 0, 1), 0);
    struct vote no = {.fence = {1, 0, 1}, .code = ST_FAILED_PRECONDITION, .reason = "rank 0 left"};
    vote(0, no, 0);
    expect("abort 1.0.1 rank 0 left; begin0 1.0.2 FAILED_PRECONDITION rank 0 left; "
           "begin1 1.0.2 FAILED_PRECONDITION rank 0 left; ");
    vote(1, yes(1, 0, 1), 0); /* of the void try */
    vote(0, no, 0);
    vote(0, yes(1, 0, 2), 0);
    expect("");
    vote(1, yes(1, 0, 2), 0);
    expect("commit 1.0.2; decision0 1 1.0.2; decision1 1 1.0.2; ");
}
END_TEST

START_TEST(scalars_that_differ_abort) {
    running();
    vote(0, yes(1, 0, 1), 0);
    struct vote other = yes(1, 0, 1);
    other.scalars.learning_rate = 0.5;
    vote(1, other, 0);
    const char *want = "step 0: rank 1 gave learning rate 0.5, rank 0 gave 0.01";
    ck_assert_msg(strstr(said, want) && strstr(said, "begin1 1.0.2 FAILED_PRECONDITION"), "%s",
                  said);
}
END_TEST

START_TEST(initial_values_that_differ_abort) {
    running();
    const uint64_t here[] = {1, 2}, there[] = {1, 3};
    struct vote a = yes(1, 0, 1), b = yes(1, 0, 1);
    a.checksums = here;
    b.checksums = there;
    a.checksum_count = b.checksum_count = 2;
    a.checksum = 3;
    b.checksum = 4;
    vote(1, b, 0);
    vote(0, a, 0);
    ck_assert_msg(strstr(said, "unit 1 differ between rank 0 and rank 1"), "%s", said);
}
END_TEST

START_TEST(silence_is_named_and_determines_nothing) {
    running();
    unsigned rank;
    int64_t age;
    ck_assert(!job_coordinator_silent(c, 1000000, 0, &rank, &age));
    vote(0, yes(1, 0, 1), 100);
    ck_assert(!job_coordinator_silent(c, 149, 50, &rank, &age));
    ck_assert(job_coordinator_silent(c, 151, 50, &rank, &age));
    ck_assert(rank == 1 && age == 51);
    expect("");
    vote(1, yes(1, 0, 1), INT64_MAX);
    expect("commit 1.0.1; decision0 1 1.0.1; decision1 1 1.0.1; ");
}
END_TEST

START_TEST(complete_votes_beat_the_older_decision) {
    joined_at(1);
    said[0] = 0;
    const struct vote v = yes(1, 3, 2);
    grant(0, 2, report(3, &v, (struct fence){1, 3, 2}));
    grant(1, 2, report(3, &v, (struct fence){0}));
    expect("commit 1.3.2; decision0 2 1.3.2; decision1 2 1.3.2; begin0 2.4.1 ; begin1 2.4.1 ; ");
    ck_assert_uint_eq(last_decision.t, 3);                   /* from the decision of step 2, */
    ck_assert(last_decision.scalars.multiplier == 1.0f / 8); /* as the scale */
    ck_assert(last_decision.scale.scale == 4 && last_decision.scale.good == 1);
}
END_TEST

START_TEST(a_stored_decision_goes_to_those_behind) {
    joined_at(1);
    said[0] = 0;
    const struct vote v = yes(1, 3, 1);
    grant(0, 2, report(3, &v, (struct fence){1, 3, 1}));
    grant(1, 2, report(4, NULL, (struct fence){1, 4, 1}));
    expect("decision0 2 1.3.1; begin0 2.4.2 ABORTED generation 2 begins; "
           "begin1 2.4.2 ABORTED generation 2 begins; ");
}
END_TEST

START_TEST(incomplete_votes_are_void) {
    joined_at(1);
    said[0] = 0;
    const struct vote v = yes(1, 3, 2), other = yes(1, 3, 1);
    grant(0, 2, report(3, &v, (struct fence){1, 3, 2}));
    grant(1, 2, report(3, &other, (struct fence){1, 3, 4}));
    expect("begin0 2.3.5 ABORTED generation 2 begins; begin1 2.3.5 ABORTED generation 2 begins; ");
}
END_TEST

START_TEST(a_recorded_no_keeps_its_cause) {
    joined_at(1);
    said[0] = 0;
    const struct vote v = yes(1, 3, 1);
    const struct vote no = {.fence = {1, 3, 1}, .code = ST_ABORTED, .reason = "trainer 1 died"};
    grant(0, 2, report(3, &v, (struct fence){1, 3, 1}));
    grant(1, 2, report(3, &no, (struct fence){1, 3, 1}));
    expect("begin0 2.3.2 ABORTED trainer 1 died; begin1 2.3.2 ABORTED trainer 1 died; ");
}
END_TEST

START_TEST(a_daemon_that_comes_back_raises_the_number) {
    running();
    vote(0, yes(1, 0, 1), 0);
    job_coordinator_lost(c, 1);
    expect("");
    job_coordinator_joined(c, 1, 1);
    expect("ask0 2 a; ask1 2 a; ");
    const struct vote v = yes(1, 0, 1);
    grant(0, 2, report(0, &v, (struct fence){1, 0, 1}));
    grant(1, 2, report(0, NULL, (struct fence){0}));
    expect(""); /* its memory is not there yet */
    job_coordinator_ready(c);
    expect("abort 1.0.1 the daemon of rank 1 was lost; "
           "begin0 2.0.2 ABORTED the daemon of rank 1 was lost; "
           "begin1 2.0.2 ABORTED the daemon of rank 1 was lost; ");
    vote(0, yes(2, 0, 2), 0);
    vote(1, yes(2, 0, 2), 0);
    expect("commit 2.0.2; decision0 2 2.0.2; decision1 2 2.0.2; ");
}
END_TEST

/* Its decision reached nobody; people hear of it once. */
START_TEST(a_decision_is_computed_again_and_told_once) {
    running();
    vote(0, yes(1, 0, 1), 0);
    vote(1, yes(1, 0, 1), 0);
    expect("commit 1.0.1; decision0 1 1.0.1; decision1 1 1.0.1; ");
    job_coordinator_lost(c, 1);
    job_coordinator_joined(c, 1, 1);
    const struct vote v = yes(1, 0, 1);
    grant(0, 2, report(0, &v, (struct fence){1, 0, 1}));
    grant(1, 2, report(0, &v, (struct fence){0}));
    said[0] = 0;
    job_coordinator_ready(c);
    ck_assert_msg(!strstr(said, "commit") && strstr(said, "decision0 2 1.0.1") &&
                      strstr(said, "begin1 2.1.2"),
                  "%s", said);
}
END_TEST

START_TEST(a_refused_coordinator_gives_up) {
    running();
    job_coordinator_on_refused(c, 0, 5, uuid_a); /* its own: a message that was merely late */
    job_coordinator_on_refused(c, 0, 0, uuid_b);
    expect("");
    job_coordinator_on_refused(c, 1, 1, uuid_b);
    expect("give up: rank 1 granted generation 1 to another coordinator (this one has 1); ");
    vote(0, yes(1, 0, 1), 0);
    job_coordinator_lost(c, 0);
    job_coordinator_joined(c, 0, 7);
    job_coordinator_ready(c);
    expect("");
}
END_TEST

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One step of 1,024 ranks: all votes in, decided, told. */
START_TEST(a_thousand_ranks_are_cheap) {
    quiet_ops = true;
    struct job_coordinator *big = job_coordinator_new(JOB_MAX_RANKS, uuid_a, &options, &ops, NULL);
    for (unsigned r = 0; r < JOB_MAX_RANKS; r++) {
        job_coordinator_joined(big, r, 0);
    }
    const struct job_report nothing = {0};
    for (unsigned r = 0; r < JOB_MAX_RANKS; r++) {
        job_coordinator_on_grant(big, r, 1, &nothing);
    }
    job_coordinator_ready(big);
    double slowest = 0;
    for (uint64_t step = 0; step < 20; step++) {
        struct vote v = yes(1, step, 1);
        v.user_count = JOB_USER;
        const double start = seconds();
        for (unsigned r = 0; r < JOB_MAX_RANKS; r++) {
            job_coordinator_on_vote(big, r, &v, 0);
        }
        const double took = seconds() - start;
        slowest = took > slowest ? took : slowest;
    }
    ck_assert_uint_eq(last_decision.fence.step, 19);
    ck_assert_uint_eq(last_decision.t, 19);
    printf("1,024 ranks: all votes of a step and its decision took %.2f ms at most\n",
           slowest * 1e3);
    ck_assert(slowest < 0.05); /* sanitizers included; 10 ms is the aim without */
    job_coordinator_del(big);
}
END_TEST

int main(void) {
    Suite *s = suite_create("coordinator");
    TCase *t = tcase_create("coordinator");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, asks_when_the_roster_is_complete);
    tcase_add_test(t, all_yes_commit);
    tcase_add_test(t, one_no_aborts_with_its_cause);
    tcase_add_test(t, scalars_that_differ_abort);
    tcase_add_test(t, initial_values_that_differ_abort);
    tcase_add_test(t, silence_is_named_and_determines_nothing);
    tcase_add_test(t, complete_votes_beat_the_older_decision);
    tcase_add_test(t, a_stored_decision_goes_to_those_behind);
    tcase_add_test(t, incomplete_votes_are_void);
    tcase_add_test(t, a_recorded_no_keeps_its_cause);
    tcase_add_test(t, a_daemon_that_comes_back_raises_the_number);
    tcase_add_test(t, a_decision_is_computed_again_and_told_once);
    tcase_add_test(t, a_refused_coordinator_gives_up);
    tcase_add_test(t, a_thousand_ranks_are_cheap);
    suite_add_tcase(s, t);
    return run_suite(s);
}
