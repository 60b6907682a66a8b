/* A daemon that lies, dies or is silent. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"
#include "tests/base/seed.h"
#include "in_try.h"

static const void *p;
static void *g;

/* ---- a daemon that lies ---- */

struct lie {
    uint32_t position, unit;
    uint64_t offset;
};

static void tell_lie(struct fake *fake, void *arg) {
    const struct lie *lie = arg;
    fake_gathered(fake, lie->position, lie->unit, lie->offset);
}

START_TEST(lies_end_the_attachment) {
    struct lie lies[] = {
        {2, 2, 8192 - 64}, /* 64 elements reach beyond the end */
        {2, 2, 8},         /* not aligned */
        {2, 2, UINT64_MAX - 63},
        {2, 9, 0}, /* no such unit */
        {5, 0, 0}, /* 2 is next */
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        start(NULL);
        fake_on_thread(f, tell_lie, &lies[i]);
        ck_assert_int_eq(zerod_gather(z, 0, &p), -ZEROD_INTERNAL);
        said("the daemon");
        ck_assert_int_eq(zerod_begin(z, &t), -ZEROD_INTERNAL);
        stop();
    }
}
END_TEST

static void grant_outside(struct fake *fake, void *arg) {
    Zerod__V1__TrainerReply r = ZEROD__V1__TRAINER_REPLY__INIT;
    Zerod__V1__Granted m = ZEROD__V1__GRANTED__INIT;
    m.fence = &fake->fence;
    m.sequence = 2;
    m.offset = *(uint64_t *)arg;
    r.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_GRANTED;
    r.granted = &m;
    fake_send(fake, &r);
}

static bool swallow_reduce(struct fake *fake, const Zerod__V1__TrainerRequest *r) {
    (void)fake;
    return r->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE;
}

START_TEST(a_slot_outside_is_not_touched) {
    uint64_t offset = 8192 - 128; /* room for 32 elements */
    start(swallow_reduce);
    fake_on_thread(f, grant_outside, &offset);
    ck_assert_int_eq(zerod_grad(z, 2, true, &g), 0);
    ck_assert_int_eq(zerod_reduce(z, 2), 0);
    ck_assert_int_eq(zerod_grad(z, 1, true, &g), 0);
    ck_assert_int_eq(zerod_reduce(z, 1), 0);
    f->grads[8192 / sizeof(float) - 1] = 42;
    ck_assert_int_eq(zerod_grad(z, 0, true, &g), -ZEROD_INTERNAL);
    said("outside its memory of 8192");
    ck_assert(f->grads[8192 / sizeof(float) - 1] == 42);
    stop();
}
END_TEST

static bool lie_about_step(struct fake *fake, const Zerod__V1__TrainerRequest *r) {
    if (r->call_case != ZEROD__V1__TRAINER_REQUEST__CALL_STEP) {
        return false;
    }
    Zerod__V1__TrainerReply reply = ZEROD__V1__TRAINER_REPLY__INIT;
    Zerod__V1__Outcome m = ZEROD__V1__OUTCOME__INIT; /* no kind, no fence */
    reply.id = r->id;
    reply.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_OUTCOME;
    reply.outcome = &m;
    fake_send(fake, &reply);
    return true;
}

START_TEST(an_outcome_that_says_nothing_is_no_outcome) {
    start(lie_about_step);
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(zerod_step(z, NULL, &out), -ZEROD_UNAVAILABLE);
    said("outcome of step 1 unknown");
    stop();
}
END_TEST

START_TEST(garbage_ends_the_attachment) {
    char bytes[512];
    unsigned seed = (unsigned)test_seed("daemon");
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)rand_r(&seed);
    }
    start(NULL);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    fake_bytes(f, bytes, sizeof bytes);
    ck_assert_int_eq(zerod_set_timeout(z, 0.5), 0); /* it may look like half a frame */
    int rc = zerod_gather(z, 1, &p);
    rc = rc ? rc : zerod_gather(z, 2, &p);
    ck_assert_msg(rc == -ZEROD_UNAVAILABLE || rc == -ZEROD_INTERNAL ||
                      rc == -ZEROD_DEADLINE_EXCEEDED,
                  "%d: %s", rc, zerod_last_error(z)->text);
    stop();
}
END_TEST

/* ---- a daemon that is gone or silent ---- */

static bool die_at_step(struct fake *fake, const Zerod__V1__TrainerRequest *r) {
    (void)fake;
    if (r->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_STEP) {
        shutdown(fake->conn_fd, SHUT_RDWR);
        return true;
    }
    return false;
}

START_TEST(a_daemon_dies_in_a_step) {
    start(die_at_step);
    ck_assert_int_eq(trainer_try(z), 0);
    int64_t from = clock_ns();
    ck_assert_int_eq(zerod_step(z, NULL, &out), -ZEROD_UNAVAILABLE);
    ck_assert_int_lt(clock_ns() - from, 1000000000);
    said("outcome of step 1 unknown");
    said(f->path);
    ck_assert_int_eq(zerod_begin(z, &t), -ZEROD_UNAVAILABLE);
    ck_assert_int_eq(zerod_step(z, NULL, &out), -ZEROD_UNAVAILABLE);
    stop();
}
END_TEST

START_TEST(a_daemon_dies_between_calls) {
    start(NULL);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    fake_hang_up(f);
    ck_assert_int_eq(zerod_release(z, 0), 0); /* goes out with the next call */
    ck_assert_int_eq(zerod_gather(z, 1, &p), -ZEROD_UNAVAILABLE);
    said(f->path);
    ck_assert_int_eq(zerod_release(z, 0), -ZEROD_UNAVAILABLE);
    ck_assert_int_eq(zerod_abort(z, "x"), -ZEROD_UNAVAILABLE);
    stop();
}
END_TEST

static void end_with(struct fake *fake, void *code) {
    grpc_call_finish(fake->call, *(int *)code, "enough");
}

/* ABORTED would send a trainer to zerod_begin for ever, RESOURCE_EXHAUSTED to a release. */
START_TEST(an_end_is_no_calls_answer) {
    int codes[] = {ST_ABORTED, ST_RESOURCE_EXHAUSTED, ST_FAILED_PRECONDITION, ST_OK, ST_INTERNAL};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        const int want = codes[i] == ST_INTERNAL ? -ZEROD_INTERNAL : -ZEROD_UNAVAILABLE;
        start(NULL);
        fake_on_thread(f, end_with, &codes[i]);
        usleep(50000);
        ck_assert_int_eq(zerod_gather(z, 0, &p), want);
        said("ended the attachment");
        ck_assert_int_eq(zerod_begin(z, &t), want);
        stop();
    }
}
END_TEST

/* A daemon that does not read: the call that finds no room changes nothing and can be repeated. */
START_TEST(a_call_without_room_can_be_repeated) {
    start(NULL);
    ck_assert_int_eq(zerod_set_timeout(z, 0.05), 0);
    fake_pause(f);
    int rc = 0;
    for (int i = 0; i < 100000 && rc == 0; i++) {
        rc = zerod_prefetch(z);
    }
    ck_assert_int_eq(rc, -ZEROD_DEADLINE_EXCEEDED);
    said("takes no messages");
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0); /* it is here, but its asking is not heard yet */
    ck_assert_int_eq(zerod_release(z, 0), -ZEROD_DEADLINE_EXCEEDED);
    ck_assert_int_eq(zerod_release(z, 0), -ZEROD_DEADLINE_EXCEEDED); /* still held */
    ck_assert_int_eq(zerod_set_timeout(z, 10), 0);
    fake_resume(f);
    ck_assert_int_eq(zerod_release(z, 0), 0);
    ck_assert_int_eq(zerod_release(z, 0), -ZEROD_INVALID_ARGUMENT);
    ck_assert_int_eq(zerod_gather(z, 1, &p), 0);
    stop();
}
END_TEST

START_TEST(every_wait_has_a_deadline) {
    start(NULL);
    ck_assert_int_eq(zerod_set_timeout(z, 0.05), 0);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    ck_assert_int_eq(zerod_gather(z, 1, &p), 0);
    ck_assert_int_eq(zerod_gather(z, 2, &p), -ZEROD_DEADLINE_EXCEEDED); /* no slot: we hold both */
    said("'a' (1 lease), 'b' (1 lease)");
    ck_assert_int_eq(zerod_gather(z, 0, &p), -ZEROD_FAILED_PRECONDITION); /* it is not over */
    said("zerod_gather");
    ck_assert_int_eq(zerod_release(z, 1), 0);
    ck_assert_int_eq(zerod_gather(z, 2, &p), 0); /* the same gather goes on */
    fake_pause(f);
    fake_resume(f);
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_GATHER], 3);
    ck_assert_int_eq(zerod_grad(z, 2, false, &g), 0);
    ck_assert_int_eq(zerod_grad(z, 1, false, &g), 0);
    ck_assert_int_eq(zerod_grad(z, 0, false, &g), -ZEROD_RESOURCE_EXHAUSTED); /* at once */
    said("no gradient slot for unit 'a'");
    ck_assert_int_eq(zerod_reduce(z, 2), 0);
    ck_assert_int_eq(zerod_set_timeout(z, 5), 0);
    ck_assert_int_eq(zerod_grad(z, 0, false, &g), 0);
    stop();
}
END_TEST

static bool hold_step(struct fake *fake, const Zerod__V1__TrainerRequest *r) {
    (void)fake;
    return r->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_STEP;
}

START_TEST(a_silent_step_is_in_doubt) {
    start(hold_step);
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(zerod_set_timeout(z, 0.05), 0);
    ck_assert_int_eq(zerod_step(z, NULL, &out), -ZEROD_UNAVAILABLE);
    said("outcome of step 1 unknown");
    ck_assert_int_eq(zerod_begin(z, &t), -ZEROD_UNAVAILABLE);
    stop();
}
END_TEST

static bool hold_begin(struct fake *fake, const Zerod__V1__TrainerRequest *r) {
    return r->call_case == ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN && fake->void_reason[0];
}

static void begin_now(struct fake *fake, void *arg) {
    Zerod__V1__TrainerRequest r = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__Begin b = ZEROD__V1__BEGIN__INIT;
    r.id = *(uint64_t *)arg;
    r.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN;
    r.begin = &b;
    fake_request(fake, &r);
}

START_TEST(begin_can_be_waited_for_again) {
    start(hold_begin);
    fake_void(f, ZEROD_ABORTED, "void");
    ck_assert_int_eq(zerod_set_timeout(z, 0.05), 0);
    ck_assert_int_eq(zerod_begin(z, &t), -ZEROD_DEADLINE_EXCEEDED);
    ck_assert_int_eq(zerod_begin(z, &t), -ZEROD_DEADLINE_EXCEEDED);
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN], 2); /* the first, and one */
    fake_on_thread(f, begin_now, &z->asked.id);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_uint_eq(t.attempt, 2);
    stop();
}
END_TEST

int main(void) {
    Suite *s = suite_create("client/daemon");
    TCase *c = tcase_create("daemon");
    tcase_set_timeout(c, 20);
    tcase_add_test(c, lies_end_the_attachment);
    tcase_add_test(c, a_slot_outside_is_not_touched);
    tcase_add_test(c, an_outcome_that_says_nothing_is_no_outcome);
    tcase_add_test(c, garbage_ends_the_attachment);
    tcase_add_test(c, a_daemon_dies_in_a_step);
    tcase_add_test(c, a_daemon_dies_between_calls);
    tcase_add_test(c, an_end_is_no_calls_answer);
    tcase_add_test(c, a_call_without_room_can_be_repeated);
    tcase_add_test(c, every_wait_has_a_deadline);
    tcase_add_test(c, a_silent_step_is_in_doubt);
    tcase_add_test(c, begin_can_be_waited_for_again);
    suite_add_tcase(s, c);
    return run_suite(s);
}
