/* The server over a real socket, with the poll(2) channel. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/framing.h"
#include "proto/grpc_channel.h"
#include "tests/base/suite.h"
#include "tests/rpc/crowd.h"

#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)

static struct host h;

static void setup(void) {
    h.grace_ns = 0;
    host_start(&h);
}
static void teardown(void) {
    host_stop(&h);
}

static struct grpc_channel *dial(void) {
    struct grpc_channel *ch = NULL;
    struct err e;
    ck_assert_int_eq(grpc_channel_connect(h.path, SECOND, &ch, &e), 0);
    return ch;
}

static int echo(struct grpc_channel *ch, const char *method, size_t len, int64_t timeout,
                struct err *e) {
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    ProtobufCMessage *reply = NULL;
    t.token.len = len;
    t.token.data = calloc(len + 1, 1);
    int rv =
        grpc_channel_unary(ch, method, &t.base, &zerod__v1__ticket__descriptor, timeout, &reply, e);
    free(t.token.data);
    if (rv == 0) {
        ck_assert_uint_eq(((Zerod__V1__Ticket *)reply)->token.len, len);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return rv;
}

START_TEST(unary) {
    struct err e;
    struct grpc_channel *ch = dial();
    static const size_t sizes[] = {0, 64, 4096, 3 << 20};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(echo(ch, ECHO_UNARY, sizes[i], 5 * SECOND, &e), 0);
    }
    ck_assert_int_eq(echo(ch, "/test.Echo/Nothing", 1, SECOND, &e), -ST_UNIMPLEMENTED);
    ck_assert_int_eq(echo(ch, ECHO_UNARY, GRPC_MESSAGE_MAX, SECOND, &e), -ST_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(echo(ch, ECHO_UNARY, 1, SECOND, &e), 0);
    grpc_channel_close(ch);
}
END_TEST

START_TEST(deadline) {
    struct err e;
    struct grpc_channel *ch = dial();
    int64_t start = clock_ns();
    ck_assert_int_eq(echo(ch, ECHO_HOLD, 1, 50 * MS, &e), -ST_DEADLINE_EXCEEDED);
    ck_assert_int_ge(clock_ns() - start, 50 * MS);
    ck_assert_int_lt(clock_ns() - start, 2 * SECOND);
    ck_assert_int_eq(echo(ch, ECHO_UNARY, 1, SECOND, &e), 0);
    grpc_channel_close(ch);
}
END_TEST

struct heard {
    unsigned messages, done;
    int code;
};

static void on_message(struct grpc_stream *s, const uint8_t *bytes, size_t len) {
    (void)bytes;
    (void)len;
    ((struct heard *)grpc_stream_data(s))->messages++;
}

static void on_done(struct grpc_stream *s, int code, const char *text) {
    struct heard *x = grpc_stream_data(s);
    (void)text;
    x->done++;
    x->code = code;
}

static const struct grpc_stream_handlers handlers = {.on_message = on_message, .on_done = on_done};

START_TEST(bidi) {
    struct grpc_channel *ch = dial();
    struct heard x = {0};
    struct grpc_stream *s = grpc_client_start(grpc_channel_client(ch), ECHO_BIDI, &handlers, &x,
                                              GRPC_NEVER, clock_ns());
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    t.socket_path = (char *)"abcdefgh";
    for (unsigned i = 0; i < 10000; i++) {
        ck_assert_int_eq(grpc_client_send(s, &t.base), 0);
        while (i > x.messages + 100) {
            ck_assert_int_ge(grpc_channel_pump(ch, SECOND, NULL), 0);
        }
    }
    grpc_client_half_close(s);
    while (!x.done) {
        ck_assert_int_eq(grpc_channel_pump(ch, 10 * SECOND, NULL), 1);
    }
    ck_assert_uint_eq(x.messages, 10000);
    ck_assert_int_eq(x.code, ST_OK);
    grpc_channel_close(ch);
}
END_TEST

START_TEST(pump_times_out) {
    struct grpc_channel *ch = dial();
    int64_t start = clock_ns();
    ck_assert_int_eq(grpc_channel_pump(ch, 30 * MS, NULL), 0);
    ck_assert_int_ge(clock_ns() - start, 30 * MS);
    ck_assert_int_eq(grpc_channel_pump(ch, 0, NULL), 0);
    grpc_channel_close(ch);
}
END_TEST

static void look(struct host *host, void *arg) {
    *(struct echo *)arg = host->echo;
}

static struct echo looked(void) {
    struct echo e;
    host_do(&h, look, &e);
    return e;
}

START_TEST(client_vanishes) {
    struct heard x = {0};
    struct grpc_channel *ch = dial();
    grpc_client_start(grpc_channel_client(ch), ECHO_BIDI, &handlers, &x, GRPC_NEVER, clock_ns());
    ck_assert_int_eq(grpc_channel_flush(ch, NULL), 0);
    int64_t until = clock_ns() + 5 * SECOND;
    while (looked().opened == 0 && clock_ns() < until) {
    }
    grpc_channel_forget(ch); /* closed without a word */
    ck_assert_uint_eq(x.done, 0);
    while (looked().done == 0 && clock_ns() < until) {
    }
    struct echo e = looked();
    ck_assert_uint_eq(e.done, 1);
    ck_assert_int_eq(e.last_status, ST_CANCELLED);
    look_serves(&h);
}
END_TEST

/* With SIGPIPE as a host program may have it, deadly: neither our writes after the server went nor
 * the server's after we went raise it. */
START_TEST(trap_17_no_sigpipe) {
    struct heard x = {0};
    struct err e;
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    (void)signal(SIGPIPE, SIG_DFL);
    t.token.len = 100000;
    t.token.data = calloc(t.token.len, 1);
    for (int i = 0; i < 50; i++) { /* the server writes to nobody */
        struct grpc_channel *ch = dial();
        struct grpc_stream *s = grpc_client_start(grpc_channel_client(ch), ECHO_FLOOD, &handlers,
                                                  &x, GRPC_NEVER, clock_ns());
        ck_assert_int_eq(grpc_client_send(s, &t.base), 0);
        grpc_client_half_close(s);
        ck_assert_int_eq(grpc_channel_flush(ch, NULL), 0);
        grpc_channel_forget(ch);
    }
    look_serves(&h);
    struct grpc_channel *ch = dial();
    grpc_client_start(grpc_channel_client(ch), ECHO_SINK, &handlers, &x, GRPC_NEVER, clock_ns());
    ck_assert_int_eq(grpc_channel_flush(ch, NULL), 0);
    host_stop(&h);
    for (int i = 0; i < 50; i++) { /* we write to nobody */
        struct grpc_stream *g = grpc_client_start(grpc_channel_client(ch), ECHO_SINK, &handlers, &x,
                                                  GRPC_NEVER, clock_ns());
        (void)grpc_client_send(g, &t.base);
        (void)grpc_channel_flush(ch, &e);
    }
    int rv = 1;
    while (rv > 0) {
        rv = grpc_channel_pump(ch, SECOND, &e);
    }
    ck_assert_int_eq(rv, -ST_UNAVAILABLE);
    grpc_channel_close(ch);
    free(t.token.data);
    host_start(&h);
}
END_TEST

START_TEST(server_vanishes) {
    struct heard x = {0};
    struct grpc_channel *ch = dial();
    struct err e;
    grpc_client_start(grpc_channel_client(ch), ECHO_BIDI, &handlers, &x, GRPC_NEVER, clock_ns());
    ck_assert_int_eq(grpc_channel_flush(ch, NULL), 0);
    host_stop(&h);
    while (!x.done) {
        ck_assert_int_eq(grpc_channel_pump(ch, 5 * SECOND, NULL), 1);
    }
    ck_assert_int_eq(x.code, ST_UNAVAILABLE);
    ck_assert_int_eq(grpc_channel_pump(ch, 0, &e), -ST_UNAVAILABLE);
    ck_assert_int_eq(echo(ch, ECHO_UNARY, 1, SECOND, &e), -ST_UNAVAILABLE);
    grpc_channel_close(ch);
    ch = NULL;
    ck_assert_int_eq(grpc_channel_connect(h.path, 20 * MS, &ch, &e), -ST_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(e.text, h.path));
    host_start(&h);
}
END_TEST

/* A held call keeps a draining server; it ends well within the grace time. */
static void answer_held(struct host *host, void *arg) {
    (void)arg;
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    grpc_call_reply(host->echo.held, &t.base);
}

static void drain(struct host *host, void *arg) {
    (void)arg;
    rpc_server_drain(host->server, 5 * SECOND, NULL, NULL);
}

START_TEST(trap_10_drain_lets_calls_end) {
    struct heard x = {0};
    struct err e;
    struct grpc_channel *ch = dial(), *other = NULL;
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    struct grpc_stream *s = grpc_client_start(grpc_channel_client(ch), ECHO_HOLD, &handlers, &x,
                                              GRPC_NEVER, clock_ns());
    grpc_client_send(s, &t.base);
    grpc_client_half_close(s);
    (void)grpc_channel_flush(ch, NULL);
    while (looked().messages == 0) {
    }
    host_do(&h, drain, NULL);
    while (grpc_client_usable(grpc_channel_client(ch))) { /* until GOAWAY is here */
        ck_assert_int_eq(grpc_channel_pump(ch, 20 * MS, NULL), 0);
    }
    ck_assert_int_eq(grpc_channel_connect(h.path, 0, &other, &e), -ST_UNAVAILABLE);
    ck_assert_int_eq(echo(ch, ECHO_UNARY, 1, SECOND, &e), -ST_UNAVAILABLE);
    host_do(&h, answer_held, NULL);
    while (!x.done) {
        ck_assert_int_eq(grpc_channel_pump(ch, SECOND, NULL), 1);
    }
    ck_assert_int_eq(x.code, ST_OK);
    grpc_channel_close(ch);
    /* the server is gone by now or in a moment; host_stop must not touch it */
    h.server = NULL;
}
END_TEST

static void stop_from_handler(struct host *host, void *arg) {
    (void)arg;
    rpc_server_close(host->server, NULL, NULL);
    host->server = NULL;
}

START_TEST(close_with_open_calls) {
    struct heard x = {0};
    struct grpc_channel *ch = dial();
    grpc_client_start(grpc_channel_client(ch), ECHO_BIDI, &handlers, &x, GRPC_NEVER, clock_ns());
    (void)grpc_channel_flush(ch, NULL);
    while (looked().opened == 0) {
    }
    host_do(&h, stop_from_handler, NULL);
    while (!x.done) {
        ck_assert_int_eq(grpc_channel_pump(ch, SECOND, NULL), 1);
    }
    ck_assert_int_eq(x.code, ST_UNAVAILABLE);
    ck_assert_uint_eq(looked().done, 1);
    grpc_channel_close(ch);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server");
    TCase *t = tcase_create("server");
    tcase_set_timeout(t, 30);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, unary);
    tcase_add_test(t, deadline);
    tcase_add_test(t, bidi);
    tcase_add_test(t, pump_times_out);
    tcase_add_test(t, client_vanishes);
    tcase_add_test(t, trap_17_no_sigpipe);
    tcase_add_test(t, server_vanishes);
    tcase_add_test(t, trap_10_drain_lets_calls_end);
    tcase_add_test(t, close_with_open_calls);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
