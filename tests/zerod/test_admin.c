/* A Hash takes its time: who asks meanwhile, who goes, and what the daemon's end makes of it. The
 * engine is this file: it answers when the test says so. */
#include <string.h>

#include "proto/unpack.h"
#include "tests/base/suite.h"
#include "tests/proto/pair.h"
#include "zerod/session.h"

static struct rank r;
static struct grpc_service service;
static struct pair p;
static unsigned hashes;

void engine_hash(struct engine *e) {
    (void)e;
    hashes++;
}

void engine_status(const struct engine *e, struct engine_status *s) {
    (void)e;
    *s = (struct engine_status){0};
}

uint64_t session_trainer_pid(const struct rank *rank) {
    (void)rank;
    return 0;
}

static void setup(void) {
    r = (struct rank){.engine = (struct engine *)&r}; /* there is one; nobody looks into it */
    hashes = 0;
    pair_open(&p);
    grpc_server_free(p.server);
    service = *admin_service(&r);
    struct grpc_server_options o = {
        .services = &service, .service_count = 1, .unix_socket = true, .role = GRPC_ADMIN};
    p.server = grpc_server_new(&o, p.now);
}

static void teardown(void) {
    pair_close(&p);
}

static struct grpc_stream *ask(struct call_outcome *o) {
    static const Zerod__V1__HashRequest request = ZEROD__V1__HASH_REQUEST__INIT;
    struct grpc_stream *s = pair_start(&p, "/zerod.v1.Admin/Hash", o, -1);
    ck_assert_int_eq(grpc_client_send(s, &request.base), 0);
    grpc_client_half_close(s);
    pair_pump(&p);
    return s;
}

START_TEST(is_answered_later) {
    struct call_outcome o = {0};
    ask(&o);
    ck_assert_uint_eq(hashes, 1);
    ck_assert_uint_eq(o.done, 0);
    admin_hashed(&r, 17, 3);
    pair_pump(&p);
    ck_assert_int_eq(o.code, ST_OK);
    ck_assert_uint_eq(o.messages, 1);
    ck_assert_uint_eq(o.done, 1);
}
END_TEST

START_TEST(one_at_a_time) {
    static struct call_outcome first, second, third; /* told of their ends in teardown() */
    ask(&first);
    ask(&second);
    ck_assert_int_eq(second.code, ST_RESOURCE_EXHAUSTED);
    ck_assert_uint_eq(hashes, 1);
    admin_hashed(&r, 17, 3);
    ask(&third);
    ck_assert_int_eq(first.code, ST_OK);
    ck_assert_uint_eq(hashes, 2);
}
END_TEST

START_TEST(its_caller_goes) {
    static struct call_outcome o, next; /* told of its end in teardown() */
    grpc_client_cancel(ask(&o));
    pair_pump(&p);
    ck_assert_ptr_null(r.hash_call);
    admin_hashed(&r, 17, 3); /* finds nobody */
    ask(&next);
    ck_assert_uint_eq(hashes, 2);
    ck_assert_uint_eq(next.done, 0);
}
END_TEST

START_TEST(the_daemon_ends) {
    struct call_outcome o = {0};
    ask(&o);
    admin_end(&r);
    grpc_server_drain(p.server);
    admin_hashed(&r, 17, 3); /* it was on its way */
    pair_pump(&p);
    ck_assert_int_eq(o.code, ST_UNAVAILABLE);
    ck_assert_str_eq(o.text, "the daemon is ending");
    ck_assert_uint_eq(o.messages, 0);
    ck_assert_uint_eq(o.done, 1);
}
END_TEST

START_TEST(no_model_yet) {
    struct call_outcome o = {0};
    r.engine = NULL;
    ask(&o);
    ck_assert_int_eq(o.code, ST_FAILED_PRECONDITION);
    admin_end(&r); /* nothing waits */
    ck_assert_uint_eq(hashes, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("zerod/admin");
    TCase *t = tcase_create("admin");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, is_answered_later);
    tcase_add_test(t, one_at_a_time);
    tcase_add_test(t, its_caller_goes);
    tcase_add_test(t, the_daemon_ends);
    tcase_add_test(t, no_model_yet);
    suite_add_tcase(s, t);
    return run_suite(s);
}
