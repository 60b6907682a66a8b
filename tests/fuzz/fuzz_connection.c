/* libFuzzer: whole connections. Byte 0: bit 0 a server (else a client) is fed, bit 1 the HTTP/2
 * preface comes first; byte 1 the seed of how the rest is cut. Handlers must hear one on_done for
 * each call and nothing may be left. */
#include <stdlib.h>

#include "proto/grpc_client.h"
#include "tests/proto/echo.h"
#include "tests/proto/raw.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok) {
    if (!ok) {
        abort();
    }
}

static size_t next_piece(unsigned *seed, size_t left) {
    *seed = *seed * 1103515245 + 12345;
    size_t n = 1 + (*seed >> 16) % 61;
    return n > left ? left : n;
}

static void feed_server(unsigned seed, const uint8_t *data, size_t size) {
    struct echo echo = {0};
    struct grpc_service service = echo_service(&echo);
    struct grpc_server_options o = {
        .services = &service, .service_count = 1, .unix_socket = true, .role = GRPC_ADMIN};
    struct grpc_conn *c = grpc_server_new(&o, 0);
    int64_t now = 0;
    for (size_t at = 0, n; at < size && !grpc_server_over(c); at += n) {
        const uint8_t *bytes;
        n = next_piece(&seed, size - at);
        now += 1000000;
        if (grpc_server_receive(c, data + at, n, now, NULL)) {
            break;
        }
        grpc_server_sent(c, grpc_server_output(c, &bytes));
        grpc_server_tick(c, now);
    }
    grpc_server_free(c);
    must(echo.done >= echo.opened);
}

static void on_message(struct grpc_stream *s, const uint8_t *bytes, size_t len) {
    unsigned sum = 0;
    for (size_t i = 0; i < len; i++) {
        sum += bytes[i];
    }
    if (sum % 5 == 1) {
        grpc_client_cancel(s);
    }
}

static void on_done(struct grpc_stream *s, int code, const char *text) {
    (void)text;
    must(code >= ST_OK && code <= ST_UNAUTHENTICATED);
    ++*(unsigned *)grpc_stream_data(s);
}

static void feed_client(unsigned seed, const uint8_t *data, size_t size) {
    static const struct grpc_stream_handlers handlers = {.on_message = on_message,
                                                         .on_done = on_done};
    enum { CALLS = 3 };
    unsigned done[CALLS] = {0};
    struct grpc_client *c = grpc_client_new(NULL, NULL);
    const uint8_t *bytes;
    for (int i = 0; i < CALLS; i++) {
        struct grpc_stream *s =
            grpc_client_start(c, ECHO_BIDI, &handlers, &done[i], i ? GRPC_NEVER : 50000000, 0);
        Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
        (void)grpc_client_send(s, &t.base);
        if (i == 1) {
            grpc_client_half_close(s);
        }
    }
    grpc_client_sent(c, grpc_client_output(c, &bytes));
    int64_t now = 0;
    for (size_t at = 0, n; at < size && !grpc_client_over(c); at += n) {
        n = next_piece(&seed, size - at);
        now += 1000000;
        if (grpc_client_receive(c, data + at, n, now, NULL)) {
            break;
        }
        grpc_client_sent(c, grpc_client_output(c, &bytes));
        grpc_client_tick(c, now);
    }
    grpc_client_free(c);
    for (int i = 0; i < CALLS; i++) {
        must(done[i] == 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) {
        return 0;
    }
    struct buf b = {0};
    bool server = data[0] & 1;
    if ((data[0] & 2) && server) {
        raw_preface(&b);
    } else if (data[0] & 2) {
        raw_frame(&b, RAW_SETTINGS, 0, 0, NULL, 0);
    }
    buf_append(&b, data + 2, size - 2);
    (server ? feed_server : feed_client)(data[1], buf_bytes(&b), buf_unread(&b));
    buf_free(&b);
    return 0;
}
