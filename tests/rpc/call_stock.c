/* Our client against a stock server: call_stock SOCKET. test_grpcio.py starts both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "proto/grpc_channel.h"
#include "proto/unpack.h"
#include "tests/proto/echo.h"

#define SECOND INT64_C(1000000000)

static struct grpc_channel *ch;

static void must(bool ok, const char *what, const struct err *e) {
    if (!ok) {
        (void)fprintf(stderr, "call_stock: %s: %s %s\n", what, e ? status_name(e->code) : "",
                      e ? e->text : "");
        exit(1);
    }
}

static int call(const char *method, size_t len, const char *text, int64_t timeout, size_t *got,
                struct err *e) {
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    ProtobufCMessage *reply = NULL;
    *e = (struct err){0};
    t.token = (ProtobufCBinaryData){.len = len, .data = mem_zeroed(len, 1)};
    t.socket_path = (char *)text;
    int rv =
        grpc_channel_unary(ch, method, &t.base, &zerod__v1__ticket__descriptor, timeout, &reply, e);
    free(t.token.data);
    if (rv == 0) {
        *got = ((Zerod__V1__Ticket *)reply)->token.len;
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return rv;
}

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
    struct heard *h = grpc_stream_data(s);
    (void)text;
    h->done++;
    h->code = code;
}

static const struct grpc_stream_handlers handlers = {.on_message = on_message, .on_done = on_done};

static struct grpc_stream *start(const char *path, struct heard *h, size_t len) {
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    t.token = (ProtobufCBinaryData){.len = len, .data = mem_zeroed(len, 1)};
    struct grpc_stream *s =
        grpc_client_start(grpc_channel_client(ch), path, &handlers, h, GRPC_NEVER, clock_ns());
    must(grpc_client_send(s, &t.base) == 0, "send", NULL);
    free(t.token.data);
    return s;
}

static void pump(const struct heard *h, unsigned messages, unsigned done) {
    int64_t until = clock_ns() + 10 * SECOND;
    struct err e = {0};
    while (h->messages < messages || h->done < done) {
        int rv = grpc_channel_pump(ch, SECOND, &e);
        must(rv >= 0 && clock_ns() < until, "pump", &e);
    }
}

static void unary(void) {
    static const size_t sizes[] = {0, 100, 70000, 3 << 20};
    struct err e;
    size_t got;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        must(call(ECHO_UNARY, sizes[i], "", 10 * SECOND, &got, &e) == 0, "unary", &e);
        must(got == sizes[i], "size of the echo", NULL);
    }
    int rv = call(ECHO_FAIL, 0, "100 % Größe", SECOND, &got, &e);
    must(rv == -ST_ABORTED && strcmp(e.text, "100 % Größe") == 0, "status text", &e);
    rv = call("/test.Echo/Nothing", 0, "", SECOND, &got, &e);
    must(rv == -ST_UNIMPLEMENTED, "unknown method", &e);
    rv = call(ECHO_HOLD, 0, "", SECOND / 10, &got, &e);
    must(rv == -ST_DEADLINE_EXCEEDED, "deadline", &e);
    rv = call("/test.Echo/Huge", 0, "", 10 * SECOND, &got, &e);
    must(rv == -ST_RESOURCE_EXHAUSTED, "an answer that is too large", &e);
}

static void streams(void) {
    struct heard flood = {0}, cancelled = {0}, bidi = {0};
    grpc_client_half_close(start(ECHO_FLOOD, &flood, 3000));
    pump(&flood, 3000, 1);
    must(flood.code == ST_OK && flood.messages == 3000, "server stream", NULL);
    struct grpc_stream *s = start(ECHO_FLOOD, &cancelled, 100000);
    pump(&cancelled, 10, 0);
    grpc_client_cancel(s);
    pump(&cancelled, 0, 1);
    must(cancelled.code == ST_CANCELLED && cancelled.messages < 100000, "cancel", NULL);
    s = start(ECHO_BIDI, &bidi, 1);
    for (unsigned i = 1; i < 500; i++) { /* one at a time */
        Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
        pump(&bidi, i, 0);
        must(grpc_client_send(s, &t.base) == 0, "send", NULL);
    }
    pump(&bidi, 500, 0);
    grpc_client_half_close(s);
    pump(&bidi, 500, 1);
    must(bidi.code == ST_OK, "bidi", NULL);
}

int main(int argc, char **argv) {
    struct err e;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: call_stock SOCKET\n");
        return 2;
    }
    must(grpc_channel_connect(argv[1], 5 * SECOND, &ch, &e) == 0, "connect", &e);
    unary();
    streams();
    unary();
    grpc_channel_close(ch);
    return 0;
}
