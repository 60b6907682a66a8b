/* Unary calls between a client and a server in memory. */
#include <string.h>

#include "proto/framing.h"
#include "tests/base/suite.h"
#include "tests/proto/pair.h"

#define SECOND INT64_C(1000000000)

static struct pair p;

static void setup(void) {
    pair_open(&p);
}
static void teardown(void) {
    pair_close(&p);
}

START_TEST(unary) {
    static const size_t sizes[] = {0, 1, 64, 16384, 65536, 3 << 20, GRPC_MESSAGE_MAX - 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct call_outcome o = {.code = -1};
        pair_unary(&p, ECHO_UNARY, sizes[i], "", &o);
        ck_assert_uint_eq(o.done, 1);
        ck_assert_int_eq(o.code, ST_OK);
        ck_assert_uint_eq(o.messages, 1);
        ck_assert_uint_eq(o.bytes, sizes[i]);
        ck_assert_uint_eq(p.echo.done, i + 1);
        ck_assert_int_eq(p.echo.last_status, ST_OK);
    }
    ck_assert_uint_eq(grpc_server_calls(p.server), 0);
}
END_TEST

/* The same with one byte at a time: every frame is cut everywhere. */
START_TEST(unary_by_bytes) {
    struct call_outcome o = {.code = -1};
    p.chunk = 1;
    pair_unary(&p, ECHO_UNARY, 300, "some path", &o);
    ck_assert_int_eq(o.code, ST_OK);
    ck_assert_uint_eq(o.bytes, 300);
}
END_TEST

START_TEST(trap_05_status_text) {
    struct call_outcome o = {0};
    pair_unary(&p, ECHO_FAIL, 0, "100 % Größe\n", &o);
    ck_assert_int_eq(o.code, ST_ABORTED);
    ck_assert_str_eq(o.text, "100 % Größe\n");
    ck_assert_uint_eq(o.messages, 0);
    char longer[1000];
    memset(longer, 'x', sizeof longer);
    longer[999] = 0;
    pair_unary(&p, ECHO_FAIL, 0, longer, &o);
    ck_assert_uint_eq(strlen(o.text), 319);  /* cut, not refused */
    memcpy(longer + 317, "\xe2\x82\xac", 3); /* and not inside a character */
    pair_unary(&p, ECHO_FAIL, 0, longer, &o);
    ck_assert_uint_eq(strlen(o.text), 317);
}
END_TEST

START_TEST(unknown_method) {
    struct call_outcome o = {0};
    pair_unary(&p, "/test.Echo/Nothing", 10, "", &o);
    ck_assert_int_eq(o.code, ST_UNIMPLEMENTED);
    ck_assert_str_eq(o.text, "no method /test.Echo/Nothing");
    ck_assert_uint_eq(p.echo.opened + p.echo.done, 0);
}
END_TEST

START_TEST(no_ticket) {
    struct call_outcome o = {0};
    struct grpc_stream *s = pair_start(&p, ECHO_UNARY, &o, -1);
    Zerod__V1__StepEvent other = ZEROD__V1__STEP_EVENT__INIT;
    other.outcome = 1; /* field 2 as a number, where Ticket has text */
    ck_assert_int_eq(grpc_client_send(s, &other.base), 0);
    grpc_client_half_close(s);
    pair_pump(&p);
    ck_assert_int_eq(o.code, ST_INVALID_ARGUMENT);
    ck_assert_str_eq(o.text, "the request is no zerod.v1.Ticket");
    ck_assert_uint_eq(p.echo.done, 1);
}
END_TEST

START_TEST(wrong_number_of_messages) {
    struct call_outcome none = {0}, two = {0};
    struct grpc_stream *s = pair_start(&p, ECHO_UNARY, &none, -1);
    grpc_client_half_close(s);
    s = pair_start(&p, ECHO_UNARY, &two, -1);
    pair_send(s, 1, "");
    pair_send(s, 1, "");
    grpc_client_half_close(s);
    pair_pump(&p);
    ck_assert_int_eq(none.code, ST_INTERNAL);
    ck_assert_int_eq(two.code, ST_INTERNAL);
    ck_assert_uint_eq(p.echo.done, 2);
}
END_TEST

START_TEST(trap_04_client_deadline) {
    struct call_outcome o = {0};
    p.deaf_server = true; /* the server never hears of it: the client must still end it */
    struct grpc_stream *s = pair_start(&p, ECHO_UNARY, &o, SECOND);
    pair_send(s, 1, "");
    grpc_client_half_close(s);
    pair_pump(&p);
    ck_assert_int_eq(grpc_client_next_deadline(p.client), p.now + SECOND);
    pair_wait(&p, SECOND - 1);
    ck_assert_uint_eq(o.done, 0);
    pair_wait(&p, 1);
    ck_assert_uint_eq(o.done, 1);
    ck_assert_int_eq(o.code, ST_DEADLINE_EXCEEDED);
    ck_assert_int_eq(grpc_client_next_deadline(p.client), GRPC_NEVER);
}
END_TEST

START_TEST(trap_04_server_deadline) {
    struct call_outcome o = {0};
    struct grpc_stream *s = pair_start(&p, ECHO_HOLD, &o, SECOND);
    pair_send(s, 1, "");
    grpc_client_half_close(s);
    pair_pump(&p);
    ck_assert_uint_eq(p.echo.messages, 1);
    ck_assert_int_eq(grpc_call_deadline(p.echo.held), p.now + SECOND);
    p.now += SECOND; /* only the server looks at its clock */
    grpc_server_tick(p.server, p.now);
    ck_assert_uint_eq(p.echo.done, 1);
    ck_assert_int_eq(p.echo.last_status, ST_DEADLINE_EXCEEDED);
    pair_pump(&p);
    ck_assert_int_eq(o.code, ST_DEADLINE_EXCEEDED);
    ck_assert_uint_eq(grpc_server_calls(p.server), 0);
}
END_TEST

START_TEST(trap_04_unary_cap) {
    struct call_outcome o = {0};
    struct grpc_stream *s = pair_start(&p, ECHO_HOLD, &o, -1);
    pair_send(s, 1, ""); /* no half-close: never complete */
    pair_pump(&p);
    pair_wait(&p, GRPC_UNARY_CAP_NS - 1);
    ck_assert_uint_eq(o.done, 0);
    pair_wait(&p, 1);
    ck_assert_int_eq(o.code, ST_DEADLINE_EXCEEDED);
    ck_assert_uint_eq(p.echo.done, 1);
}
END_TEST

START_TEST(cancel) {
    struct call_outcome o = {0}, never = {0};
    struct grpc_stream *s = pair_unary(&p, ECHO_HOLD, 1, "", &o);
    grpc_client_cancel(s);
    ck_assert_uint_eq(o.done, 0); /* never from inside */
    pair_pump(&p);
    ck_assert_uint_eq(o.done, 1);
    ck_assert_int_eq(o.code, ST_CANCELLED);
    ck_assert_uint_eq(p.echo.done, 1);
    ck_assert_int_eq(p.echo.last_status, ST_CANCELLED);
    s = pair_start(&p, ECHO_HOLD, &never, -1);
    grpc_client_cancel(s); /* before a byte of it went out */
    pair_pump(&p);
    ck_assert_uint_eq(never.done, 1);
    ck_assert_uint_eq(p.echo.opened, 1);
}
END_TEST

START_TEST(late_answer) {
    struct call_outcome o = {0};
    pair_unary(&p, ECHO_HOLD, 1, "", &o);
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    struct grpc_call *call = p.echo.held;
    grpc_call_reply(call, &t.base);
    ck_assert_uint_eq(p.echo.done, 0); /* not from inside: the call may still be used */
    ck_assert_int_eq(grpc_call_send(call, &t.base), -ST_CANCELLED);
    grpc_call_finish(call, ST_ABORTED, "a second end changes nothing");
    pair_pump(&p);
    ck_assert_int_eq(o.code, ST_OK);
    ck_assert_uint_eq(p.echo.done, 1);
}
END_TEST

START_TEST(lost_connection) {
    struct call_outcome o = {0}, after = {0};
    pair_unary(&p, ECHO_HOLD, 1, "", &o);
    grpc_client_close(p.client, ST_UNAVAILABLE, "cable pulled");
    ck_assert_int_eq(o.code, ST_UNAVAILABLE);
    ck_assert_str_eq(o.text, "cable pulled");
    ck_assert(!grpc_client_usable(p.client));
    pair_unary(&p, ECHO_UNARY, 1, "", &after);
    grpc_client_tick(p.client, p.now);
    ck_assert_uint_eq(after.done, 1);
    ck_assert_int_eq(after.code, ST_UNAVAILABLE);
    ck_assert_uint_eq(p.echo.done, 0);
    grpc_server_free(p.server); /* the server sees the loss: handlers hear of it */
    ck_assert_uint_eq(p.echo.done, 1);
    ck_assert_int_eq(p.echo.last_status, ST_CANCELLED);
    struct grpc_server_options options = {
        .services = &p.service, .service_count = 1, .role = GRPC_ADMIN};
    p.server = grpc_server_new(&options, p.now);
}
END_TEST

START_TEST(trap_10_drain) {
    struct call_outcome open = {0}, refused = {0};
    pair_unary(&p, ECHO_HOLD, 1, "", &open);
    grpc_server_drain(p.server);
    pair_pump(&p);
    ck_assert(!grpc_client_usable(p.client));
    ck_assert(!grpc_server_over(p.server));
    pair_unary(&p, ECHO_UNARY, 1, "", &refused);
    ck_assert_int_eq(refused.code, ST_UNAVAILABLE);
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    grpc_call_reply(p.echo.held, &t.base);
    pair_pump(&p);
    ck_assert_int_eq(open.code, ST_OK); /* what was open went on to its end */
    ck_assert(grpc_server_over(p.server));
    ck_assert(grpc_client_over(p.client));
}
END_TEST

/* The server drains while a request is on its way: it is safe to try again elsewhere. */
START_TEST(trap_10_drain_race) {
    struct call_outcome o = {0};
    pair_unary(&p, ECHO_UNARY, 1, "", &o);
    grpc_server_drain(p.server);
    const uint8_t *bytes;
    ck_assert_uint_gt(grpc_server_output(p.server, &bytes), 0); /* GOAWAY is written */
    pair_unary(&p, ECHO_UNARY, 1, "", &o);
    ck_assert_uint_eq(o.done, 2);
    ck_assert_int_eq(o.code, ST_UNAVAILABLE);
    ck_assert_uint_eq(p.echo.opened, 1);
}
END_TEST

/* A peer's role against a method's: what is refused names the user, both roles and the rule. */
START_TEST(roles) {
    static const char *const methods[] = {NULL, ECHO_UNARY, ECHO_SINK, ECHO_HOLD};
    for (enum grpc_role has = GRPC_NO_ROLE; has <= GRPC_ADMIN; has++) {
        grpc_server_free(p.server);
        struct grpc_server_options o = {.services = &p.service,
                                        .service_count = 1,
                                        .peer = {.known = true, .uid = 7},
                                        .role = has,
                                        .rule = "user 8 has all"};
        p.server = grpc_server_new(&o, p.now);
        grpc_client_free(p.client);
        p.client = grpc_client_new(NULL, NULL);
        for (enum grpc_role needs = GRPC_OBSERVE; needs <= GRPC_ADMIN; needs++) {
            struct call_outcome got = {.code = -1};
            p.echo.opened = 0;
            struct grpc_stream *s = pair_unary(&p, methods[needs], 1, "", &got);
            ck_assert_uint_eq(p.echo.opened, has >= needs);
            ck_assert_int_eq(got.code == ST_PERMISSION_DENIED, has < needs);
            if (!got.done) {
                grpc_client_cancel(s);
                pair_pump(&p);
            } else if (has == GRPC_NO_ROLE) {
                ck_assert_str_eq(got.text, "user 7 has no role here; user 8 has all");
            } else if (has == GRPC_TRAIN && needs == GRPC_ADMIN) {
                ck_assert_str_eq(got.text, "/test.Echo/Hold needs the role admin, user 7 has train;"
                                           " user 8 has all");
            }
        }
        struct call_outcome none = {0}; /* what is there is nobody's business without a role */
        pair_unary(&p, "/test.Echo/Nothing", 1, "", &none);
        ck_assert_int_eq(none.code, has ? ST_UNIMPLEMENTED : ST_PERMISSION_DENIED);
    }
}
END_TEST

/* ---- handlers that do everything at once ---- */

static struct grpc_call *first;
static unsigned done;

static void on_open(struct grpc_call *call) {
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    if (!first) {
        first = call;
        return;
    }
    (void)grpc_call_send(first, &t.base); /* another call, and its end */
    grpc_call_finish(first, ST_OK, NULL);
    grpc_call_finish(first, ST_ABORTED, NULL);
    (void)grpc_call_send(call, &t.base); /* its own, before its message was read */
    grpc_call_finish(call, ST_OUT_OF_RANGE, "at once");
}

static void on_message(struct grpc_call *call, const uint8_t *bytes, size_t len) {
    (void)bytes;
    (void)len;
    grpc_call_finish(call, ST_INTERNAL, "a message after the end");
}

static void on_done(struct grpc_call *call) {
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    done++;
    ck_assert_int_eq(grpc_call_status(call), call == first ? ST_OK : ST_OUT_OF_RANGE);
    ck_assert_int_eq(grpc_call_send(call, &t.base), -ST_CANCELLED);
    grpc_call_finish(call, ST_OK, NULL);
}

START_TEST(trap_13_handlers_touch_other_calls) {
    static const struct grpc_method method = {.path = "/test.Echo/All",
                                              .kind = GRPC_BIDI,
                                              .role = GRPC_OBSERVE,
                                              .on_open = on_open,
                                              .on_message = on_message,
                                              .on_done = on_done};
    const struct grpc_service service = {&method, 1, NULL};
    struct grpc_server_options o = {
        .services = &service, .service_count = 1, .role = GRPC_OBSERVE, .unix_socket = true};
    struct call_outcome one = {0}, two = {0};
    grpc_server_free(p.server);
    p.server = grpc_server_new(&o, p.now);
    first = NULL;
    done = 0;
    pair_start(&p, "/test.Echo/All", &one, -1);
    pair_pump(&p);
    pair_send(pair_start(&p, "/test.Echo/All", &two, -1), 10, "");
    pair_pump(&p);
    ck_assert_uint_eq(done, 2);
    ck_assert_uint_eq(one.messages + two.messages, 2);
    ck_assert_int_eq(one.code, ST_OK);
    ck_assert_int_eq(two.code, ST_OUT_OF_RANGE);
    ck_assert_uint_eq(grpc_server_calls(p.server), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("call");
    TCase *t = tcase_create("call");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, unary);
    tcase_add_test(t, unary_by_bytes);
    tcase_add_test(t, trap_05_status_text);
    tcase_add_test(t, unknown_method);
    tcase_add_test(t, no_ticket);
    tcase_add_test(t, wrong_number_of_messages);
    tcase_add_test(t, trap_04_client_deadline);
    tcase_add_test(t, trap_04_server_deadline);
    tcase_add_test(t, trap_04_unary_cap);
    tcase_add_test(t, cancel);
    tcase_add_test(t, late_answer);
    tcase_add_test(t, lost_connection);
    tcase_add_test(t, trap_10_drain);
    tcase_add_test(t, trap_10_drain_race);
    tcase_add_test(t, roles);
    tcase_add_test(t, trap_13_handlers_touch_other_calls);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
