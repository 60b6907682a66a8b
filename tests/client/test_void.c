/* Void tries, refusals of requests and of one-way messages, a trainer that leaves its plan. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "in_try.h"

static const void *p;
static void *g;

/* ---- void ---- */

START_TEST(a_void_try_is_noticed_and_redone) {
    start(NULL);
    ck_assert_int_eq(trainer_micro_batch(z), 0);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    fake_void(f, ZEROD_ABORTED, "rank 3's trainer died");
    ck_assert_int_eq(zerod_gather(z, 1, &p), -ZEROD_ABORTED);
    said("rank 3's trainer died");
    ck_assert_int_eq(zerod_last_error(z)->code, ZEROD_ABORTED);
    ck_assert_int_eq(zerod_release(z, 0), -ZEROD_ABORTED); /* the lease is revoked */
    ck_assert_int_eq(zerod_grad(z, 0, true, &g), -ZEROD_ABORTED);
    ck_assert_int_eq(zerod_reduce(z, 0), -ZEROD_ABORTED);
    ck_assert_int_eq(zerod_step(z, NULL, &out), -ZEROD_ABORTED);
    ck_assert_int_eq(zerod_begin_eval(z), -ZEROD_ABORTED);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_uint_eq(t.step, 1);
    ck_assert_uint_eq(t.attempt, 2);
    ck_assert_str_eq(t.void_reason, "rank 3's trainer died");
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(zerod_step(z, NULL, &out), 0);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_str_eq(t.void_reason, "");
    stop();
}
END_TEST

START_TEST(a_try_that_is_void_before_begin_is_not_shown) {
    start(NULL);
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(zerod_step(z, NULL, &out), 0);
    fake_void(f, ZEROD_ABORTED, "rank 1 went"); /* the try that step() opened */
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_uint_eq(t.step, 2);
    ck_assert_uint_eq(t.attempt, 2);
    ck_assert_str_eq(t.void_reason, "rank 1 went");
    stop();
}
END_TEST

static void push_stale(struct fake *fake, void *arg) {
    (void)arg;
    Zerod__V1__Fence now = fake->fence;
    fake->fence.attempt--;
    fake_gathered(fake, 77, 1, 64); /* of the past, and wrong besides */
    fake->fence = now;
}

START_TEST(messages_of_another_fence_are_ignored) {
    start(NULL);
    fake_void(f, ZEROD_ABORTED, "again");
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    fake_on_thread(f, push_stale, NULL);
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(zerod_step(z, NULL, &out), 0);
    stop();
}
END_TEST

static atomic_int held; /* a step that is kept waiting */

static bool hold_step(struct fake *fake, const Zerod__V1__TrainerRequest *r) {
    (void)fake;
    held += r->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_STEP;
    return r->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_STEP;
}

static void *void_when_held(void *arg) {
    (void)arg;
    while (!held) {
        usleep(1000);
    }
    fake_void(f, ZEROD_FAILED_PRECONDITION, "rank 1 gave another learning rate");
    return NULL;
}

START_TEST(a_step_can_be_void) {
    pthread_t other;
    start(hold_step);
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(pthread_create(&other, NULL, void_when_held, NULL), 0);
    ck_assert_int_eq(zerod_step(z, NULL, &out), -ZEROD_FAILED_PRECONDITION);
    said("another learning rate");
    pthread_join(other, NULL);
    ck_assert_int_eq(zerod_gather(z, 0, &p), -ZEROD_FAILED_PRECONDITION);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_uint_eq(t.attempt, 2);
    stop();
}
END_TEST

START_TEST(leaving_the_plan_voids) {
    start(NULL);
    ck_assert_int_eq(zerod_gather(z, 2, &p), -ZEROD_FAILED_PRECONDITION);
    said("left its plan");
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    ck_assert_int_eq(zerod_grad(z, 1, true, &g), 0); /* 2 is the first that the plan reduces */
    (void)zerod_reduce(z, 1);                        /* may already see it */
    ck_assert_int_eq(zerod_gather(z, 2, &p), -ZEROD_FAILED_PRECONDITION);
    said("reduced out of its plan");
    stop();
}
END_TEST

START_TEST(a_leaked_lease_voids_the_step) {
    start(NULL);
    ck_assert_int_eq(trainer_micro_batch(z), 0);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    ck_assert_int_eq(zerod_release(z, 0), 0); /* one of two */
    ck_assert_int_eq(zerod_step(z, NULL, &out), -ZEROD_FAILED_PRECONDITION);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_uint_eq(t.step, 1);
    ck_assert_uint_eq(t.attempt, 2);
    ck_assert_int_eq(trainer_try(z), 0);
    stop();
}
END_TEST

START_TEST(a_trainer_can_give_up) {
    char long_reason[600];
    start(NULL);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    ck_assert_int_eq(zerod_abort(z, "out of memory"), 0);
    ck_assert_int_eq(zerod_release(z, 0), -ZEROD_ABORTED);
    said("out of memory");
    ck_assert_int_eq(zerod_abort(z, "twice"), -ZEROD_ABORTED);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_str_eq(t.void_reason, "out of memory");
    memset(long_reason, 'x', sizeof long_reason);
    memcpy(long_reason + 199, "\xc3\xa9", 2); /* not cut in its middle */
    long_reason[599] = '\0';
    ck_assert_int_eq(zerod_abort(z, long_reason), 0);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_uint_eq(t.attempt, 3);
    ck_assert_int_eq(zerod_abort(z, NULL), 0);
    stop();
}
END_TEST

/* ---- refusals ---- */

static bool refuse_reduce(struct fake *fake, const Zerod__V1__TrainerRequest *r) {
    if (r->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE) {
        fake_refuse(fake, 0, 8, "no room to sum", false);
        return true;
    }
    return false;
}

START_TEST(a_refused_one_way_message_shows_once) {
    start(refuse_reduce);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    ck_assert_int_eq(zerod_grad(z, 2, true, &g), 0);
    ck_assert_int_eq(zerod_reduce(z, 2), 0);
    usleep(200000);                  /* the fake, a thread, has answered by now */
    int rc = zerod_gather(z, 1, &p); /* reads it; this or the next call tells */
    rc = rc ? rc : zerod_release(z, 1);
    ck_assert_int_eq(rc, -ZEROD_RESOURCE_EXHAUSTED);
    said("no room to sum");
    ck_assert_int_eq(zerod_release(z, 0), 0);
    stop();
}
END_TEST

static bool refuse_gather(struct fake *fake, const Zerod__V1__TrainerRequest *r) {
    if (r->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_GATHER && r->gather->unit == 2 &&
        fake->got[r->call_case] < 4) {
        fake_refuse(fake, r->id, 8, "all slots are held: a, b", false);
        return true;
    }
    return false;
}

START_TEST(a_refused_gather_can_be_asked_again) {
    start(refuse_gather);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    ck_assert_int_eq(zerod_gather(z, 1, &p), 0);
    ck_assert_int_eq(zerod_gather(z, 2, &p), -ZEROD_RESOURCE_EXHAUSTED);
    said("all slots are held: a, b");
    ck_assert_int_eq(zerod_release(z, 0), 0);
    ck_assert_int_eq(zerod_gather(z, 2, &p), 0);
    ck_assert(*(const float *)p == fake_param(2));
    stop();
}
END_TEST

int main(void) {
    Suite *s = suite_create("client/void");
    TCase *c = tcase_create("void");
    tcase_set_timeout(c, 20);
    tcase_add_test(c, a_void_try_is_noticed_and_redone);
    tcase_add_test(c, a_try_that_is_void_before_begin_is_not_shown);
    tcase_add_test(c, messages_of_another_fence_are_ignored);
    tcase_add_test(c, a_step_can_be_void);
    tcase_add_test(c, leaving_the_plan_voids);
    tcase_add_test(c, a_leaked_lease_voids_the_step);
    tcase_add_test(c, a_trainer_can_give_up);
    tcase_add_test(c, a_refused_one_way_message_shows_once);
    tcase_add_test(c, a_refused_gather_can_be_asked_again);
    suite_add_tcase(s, c);
    return run_suite(s);
}
