/* A daemon between a trainer that says odd things and a coordinator that does: the whole of it but
 * its sockets, as the fuzz targets use it (tests/fuzz/rank_host.h). */
#include <string.h>

#include "proto/unpack.h"
#include "tests/base/suite.h"
#include "tests/fuzz/rank_host.h"
#include "tests/fuzz/trainer.h"

enum { MESSAGE = 1024 };

static struct rank *r;
static struct grpc_call call;
static struct trainer t;
static int refused_code; /* of the last Refused; 0: none */
static char refused_text[512];
static uint64_t refused_id;

static void coordinator_hears(void *user, const uint8_t *bytes, size_t n) {
    (void)user, (void)bytes, (void)n;
}

static void trainer_hears(void *user, const uint8_t *bytes, size_t n) {
    (void)user;
    Zerod__V1__TrainerReply *m =
        (Zerod__V1__TrainerReply *)unpack_message(&zerod__v1__trainer_reply__descriptor, bytes, n);
    ck_assert_ptr_nonnull(m);
    trainer_hear(&t, m);
    if (m->answer_case == ZEROD__V1__TRAINER_REPLY__ANSWER_REFUSED) {
        refused_id = m->id;
        refused_code = m->refused->code;
        (void)snprintf(refused_text, sizeof refused_text, "%s", m->refused->text);
    }
    zerod__v1__trainer_reply__free_unpacked(m, NULL);
}

static void settle(void) {
    rank_host_settle(r, NULL, NULL);
}

static void say(Zerod__V1__TrainerRequest *m) {
    uint8_t bytes[MESSAGE];
    ck_assert_uint_le(zerod__v1__trainer_request__get_packed_size(m), sizeof bytes);
    wire_say(&call, bytes, zerod__v1__trainer_request__pack(m, bytes));
    settle();
}

static void answer(const Zerod__V1__CoordinatorMessage *m) {
    uint8_t bytes[MESSAGE];
    ck_assert_uint_le(zerod__v1__coordinator_message__get_packed_size(m), sizeof bytes);
    wire_answer(bytes, zerod__v1__coordinator_message__pack(m, bytes));
    settle();
}

/* A trainer has said which model it has; nobody has agreed to it. */
static void registering(void) {
    r = rank_host_up(0, 1, 0);
    wire_stream.hear = coordinator_hears;
    settle();
    refused_code = 0;
    refused_id = 0;
    t = (struct trainer){.say = say, .call = &call, .holds = -1};
    wire_open(&call, session_service(r), trainer_hears, &call);
    trainer_register(&t, &call);
    settle();
}

static void agree(void) {
    Zerod__V1__Agreed agreed = ZEROD__V1__AGREED__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_AGREED;
    m.agreed = &agreed;
    answer(&m);
}

/* The trainer is in the try 1.0.1. */
static void in_a_try(void) {
    uint8_t uuid[JOB_UUID] = "coordinator";
    Zerod__V1__Ask ask = ZEROD__V1__ASK__INIT;
    Zerod__V1__Fence fence = ZEROD__V1__FENCE__INIT;
    Zerod__V1__OpenTry begin = ZEROD__V1__OPEN_TRY__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    registering();
    ask.generation = fence.generation = fence.attempt = 1;
    ask.coordinator = (ProtobufCBinaryData){sizeof uuid, uuid};
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_ASK;
    m.ask = &ask;
    answer(&m);
    agree();
    begin.fence = &fence;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_BEGIN;
    m.begin = &begin;
    answer(&m);
    trainer_go_on(&t);
    ck_assert(t.registered && t.entered && t.loading);
}

static void down(void) {
    rank_host_down(r);
    wire_gone(&call);
}

/* step() in a try, by |id|. */
static void step(uint64_t id, uint64_t generation, uint64_t attempt) {
    Zerod__V1__Fence fence = ZEROD__V1__FENCE__INIT;
    Zerod__V1__Step what = ZEROD__V1__STEP__INIT;
    Zerod__V1__TrainerRequest m = ZEROD__V1__TRAINER_REQUEST__INIT;
    fence.generation = generation;
    fence.attempt = attempt;
    m.id = id;
    m.fence = &fence;
    m.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_STEP;
    m.step = &what;
    say(&m);
}

START_TEST(a_call_of_a_try_that_was_never_entered_is_refused) {
    in_a_try();
    step(7, 1, 9);
    ck_assert_int_eq(refused_code, ST_FAILED_PRECONDITION);
    ck_assert_uint_eq(refused_id, 7);
    ck_assert_msg(strstr(refused_text, "attempt 9") != NULL, "%s", refused_text);
    ck_assert(t.entered); /* its try goes on */
    step(8, 0, 0);
    ck_assert_uint_eq(refused_id, 8);
    down();
}
END_TEST

START_TEST(a_call_of_a_void_try_is_not_refused_again) {
    in_a_try();
    step(7, 1, 1); /* nothing was loaded */
    ck_assert_uint_eq(refused_id, 7);
    ck_assert(!t.entered);
    step(8, 1, 1);
    ck_assert_uint_eq(refused_id, 7);
    ck_assert(call.is_open);
    down();
}
END_TEST

START_TEST(a_request_with_an_answer_needs_an_id) {
    in_a_try();
    step(0, 1, 1);
    ck_assert(!call.is_open);
    ck_assert_int_eq(call.code, ST_INVALID_ARGUMENT);
    down();
}
END_TEST

/* What a coordinator's refusal of the model ends the trainer's stream with. */
static void refused(int code, const char *text, int expected) {
    Zerod__V1__Refused what = ZEROD__V1__REFUSED__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    registering();
    what.code = code;
    what.text = (char *)text;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_REFUSED;
    m.refused = &what;
    answer(&m);
    ck_assert_int_eq(call.code, expected);
    ck_assert_int_eq(refused_code, expected);
    ck_assert(refused_text[0]);
    down();
}

START_TEST(a_refusal_has_a_status_and_a_text) {
    refused(ST_FAILED_PRECONDITION, "they differ", ST_FAILED_PRECONDITION);
    refused(99, "they differ", ST_UNKNOWN);
    refused(-1, "they differ", ST_UNKNOWN);
    refused(ST_OK, "", ST_UNKNOWN);
}
END_TEST

START_TEST(a_stop_without_a_text_ends_with_one) {
    Zerod__V1__Stop stop = ZEROD__V1__STOP__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    in_a_try();
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_STOP;
    m.stop = &stop;
    answer(&m);
    ck_assert(r->ending);
    ck_assert_int_eq(call.code, ST_UNAVAILABLE); /* wire.c: with a text */
    down();
}
END_TEST

int main(void) {
    Suite *s = suite_create("session");
    TCase *c = tcase_create("session");
    tcase_add_test(c, a_call_of_a_try_that_was_never_entered_is_refused);
    tcase_add_test(c, a_call_of_a_void_try_is_not_refused_again);
    tcase_add_test(c, a_request_with_an_answer_needs_an_id);
    tcase_add_test(c, a_refusal_has_a_status_and_a_text);
    tcase_add_test(c, a_stop_without_a_text_ends_with_one);
    suite_add_tcase(s, c);
    return run_suite(s);
}
