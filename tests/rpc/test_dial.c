/* A client connection on libuv, and health, against a server in another thread. */
#include <string.h>

#include "base/clock.h"
#include "health.pb-c.h"
#include "proto/unpack.h"
#include "rpc/dial.h"
#include "tests/base/suite.h"
#include "tests/rpc/host.h"

#define SECOND INT64_C(1000000000)

static struct host h;
static uv_loop_t loop;

struct side {
    unsigned messages, done, closed, status;
    int code;
    struct err reason;
    struct rpc_dial *dial;
};

static void setup(void) {
    host_start(&h);
    uv_loop_init(&loop);
}

static void teardown(void) {
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    host_stop(&h);
}

static void on_closed(struct rpc_dial *d, const struct err *reason, void *user) {
    struct side *s = user;
    (void)d;
    s->closed++;
    s->reason = *reason;
    s->dial = NULL;
}

static void on_message(struct grpc_stream *g, const uint8_t *bytes, size_t len) {
    struct side *s = grpc_stream_data(g);
    (void)bytes;
    (void)len;
    s->messages++;
}

static void on_done(struct grpc_stream *g, int code, const char *text) {
    struct side *s = grpc_stream_data(g);
    (void)text;
    s->done++;
    s->code = code;
}

static const struct grpc_stream_handlers handlers = {.on_message = on_message, .on_done = on_done};

static void open_dial(struct side *s) {
    struct err e;
    ck_assert_int_eq(rpc_dial(&loop, h.path, on_closed, s, &s->dial, &e), 0);
}

static struct grpc_stream *start(struct side *s, const char *path, int64_t timeout) {
    int64_t now = clock_ns();
    return grpc_client_start(rpc_dial_client(s->dial), path, &handlers, s,
                             timeout ? now + timeout : GRPC_NEVER, now);
}

static void until(const unsigned *what, unsigned least) {
    int64_t end = clock_ns() + 10 * SECOND;
    while (*what < least && clock_ns() < end) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert_uint_ge(*what, least);
}

START_TEST(calls) {
    struct side s = {0};
    open_dial(&s);
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    struct grpc_stream *g = start(&s, ECHO_BIDI, 0);
    for (unsigned i = 0; i < 1000; i++) {
        ck_assert_int_eq(grpc_client_send(g, &t.base), 0);
        if (i % 10 == 0) {
            until(&s.messages, i);
        }
    }
    grpc_client_half_close(g);
    until(&s.done, 1);
    ck_assert_uint_eq(s.messages, 1000);
    ck_assert_int_eq(s.code, ST_OK);
    start(&s, ECHO_BIDI, SECOND / 20); /* nothing is sent: the deadline ends it */
    until(&s.done, 2);
    ck_assert_int_eq(s.code, ST_DEADLINE_EXCEEDED);
    rpc_dial_close(s.dial);
    rpc_dial_close(s.dial);
    ck_assert_uint_eq(s.closed, 0); /* never from inside */
    until(&s.closed, 1);
    ck_assert_int_eq(s.reason.code, ST_CANCELLED);
}
END_TEST

START_TEST(close_ends_streams) {
    struct side s = {0};
    open_dial(&s);
    start(&s, ECHO_BIDI, 0);
    rpc_dial_close(s.dial);
    until(&s.closed, 1);
    ck_assert_uint_eq(s.done, 1);
    ck_assert_int_eq(s.code, ST_CANCELLED);
}
END_TEST

static void stop_server(struct host *host, void *arg) {
    (void)arg;
    rpc_server_close(host->server, NULL, NULL);
    host->server = NULL;
}

START_TEST(server_goes) {
    struct side s = {0};
    open_dial(&s);
    start(&s, ECHO_BIDI, 0);
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_run(&loop, UV_RUN_NOWAIT);
    host_do(&h, stop_server, NULL);
    until(&s.closed, 1);
    ck_assert_uint_eq(s.done, 1);
    ck_assert_int_eq(s.code, ST_UNAVAILABLE);
    ck_assert_int_eq(s.reason.code, ST_UNAVAILABLE);
    struct err e;
    ck_assert_int_eq(rpc_dial(&loop, h.path, on_closed, &s, &s.dial, &e), -ST_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(e.text, h.path));
}
END_TEST

/* ---- health ---- */

static void on_health(struct grpc_stream *g, const uint8_t *bytes, size_t len) {
    struct side *s = grpc_stream_data(g);
    ProtobufCMessage *m =
        unpack_message(&grpc__health__v1__health_check_response__descriptor, bytes, len);
    ck_assert_ptr_nonnull(m);
    s->status = (unsigned)((Grpc__Health__V1__HealthCheckResponse *)m)->status;
    s->messages++;
    protobuf_c_message_free_unpacked(m, NULL);
}

static const struct grpc_stream_handlers health_handlers = {.on_message = on_health,
                                                            .on_done = on_done};

static struct grpc_stream *ask(struct side *s, const char *method, const char *service) {
    Grpc__Health__V1__HealthCheckRequest r = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    r.service = (char *)service;
    struct grpc_stream *g = grpc_client_start(rpc_dial_client(s->dial), method, &health_handlers, s,
                                              GRPC_NEVER, clock_ns());
    ck_assert_int_eq(grpc_client_send(g, &r.base), 0);
    grpc_client_half_close(g);
    return g;
}

static void serving(struct host *host, void *arg) {
    rpc_health_set(host->health, arg, true);
}
static void all_down(struct host *host, void *arg) {
    (void)arg;
    rpc_health_set_all(host->health, false);
}

START_TEST(check) {
    struct side s = {0};
    open_dial(&s);
    ask(&s, "/grpc.health.v1.Health/Check", "");
    until(&s.done, 1);
    ck_assert_int_eq(s.code, ST_OK);
    ck_assert_uint_eq(s.status, 2); /* NOT_SERVING: nobody said otherwise */
    ask(&s, "/grpc.health.v1.Health/Check", "zerod.v1.Trainer");
    until(&s.done, 2);
    ck_assert_int_eq(s.code, ST_NOT_FOUND);
    host_do(&h, serving, (void *)"zerod.v1.Trainer");
    ask(&s, "/grpc.health.v1.Health/Check", "zerod.v1.Trainer");
    until(&s.done, 3);
    ck_assert_uint_eq(s.status, 1);
    rpc_dial_close(s.dial);
    until(&s.closed, 1);
}
END_TEST

START_TEST(watch) {
    struct side s = {0};
    open_dial(&s);
    struct grpc_stream *g = ask(&s, "/grpc.health.v1.Health/Watch", "zerod.v1.Admin");
    until(&s.messages, 1);
    ck_assert_uint_eq(s.status, 3); /* SERVICE_UNKNOWN, not an error */
    host_do(&h, serving, (void *)"zerod.v1.Admin");
    until(&s.messages, 2);
    ck_assert_uint_eq(s.status, 1);
    host_do(&h, serving, (void *)"zerod.v1.Admin"); /* no change: no message */
    host_do(&h, all_down, NULL);
    until(&s.messages, 3);
    ck_assert_uint_eq(s.status, 2);
    grpc_client_cancel(g);
    until(&s.done, 1);
    host_do(&h, serving, (void *)"zerod.v1.Admin");
    rpc_dial_close(s.dial);
    until(&s.closed, 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dial");
    TCase *t = tcase_create("dial");
    tcase_set_timeout(t, 30);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, calls);
    tcase_add_test(t, close_ends_streams);
    tcase_add_test(t, server_goes);
    tcase_add_test(t, check);
    tcase_add_test(t, watch);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
