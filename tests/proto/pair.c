#include "tests/proto/pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "proto/unpack.h"

void pair_open(struct pair *p) {
    size_t chunk = p->chunk;
    *p = (struct pair){.now = 1, .chunk = chunk};
    p->service = echo_service(&p->echo);
    struct grpc_server_options o = {
        .services = &p->service, .service_count = 1, .unix_socket = true, .role = GRPC_ADMIN};
    p->server = grpc_server_new(&o, p->now);
    p->client = grpc_client_new(NULL, NULL);
}

void pair_close(struct pair *p) {
    grpc_client_free(p->client);
    grpc_server_free(p->server);
}

int pair_feed(struct pair *p, const void *bytes, size_t n) {
    struct err e;
    return grpc_server_receive(p->server, bytes, n, p->now, &e);
}

static size_t piece(const struct pair *p, size_t n) {
    return p->chunk && n > p->chunk ? p->chunk : n;
}

static size_t to_server(struct pair *p) {
    const uint8_t *bytes;
    struct err e;
    size_t n = p->deaf_server ? 0 : piece(p, grpc_client_output(p->client, &bytes));
    if (n) {
        (void)grpc_server_receive(p->server, bytes, n, p->now, &e);
        grpc_client_sent(p->client, n);
    }
    return n;
}

static size_t to_client(struct pair *p) {
    const uint8_t *bytes;
    struct err e;
    size_t n = piece(p, grpc_server_output(p->server, &bytes));
    if (p->deaf_client) { /* the server's transport is full: it fills its buffer, no more */
        return 0;
    }
    if (n) {
        (void)grpc_client_receive(p->client, bytes, n, p->now, &e);
        grpc_server_sent(p->server, n);
    }
    return n;
}

size_t pair_pump(struct pair *p) {
    size_t moved = 0, n;
    do {
        n = to_server(p) + to_client(p);
        moved += n;
    } while (n);
    return moved;
}

void pair_wait(struct pair *p, int64_t ns) {
    p->now += ns;
    grpc_client_tick(p->client, p->now);
    grpc_server_tick(p->server, p->now);
    pair_pump(p);
}

static void on_message(struct grpc_stream *s, const uint8_t *bytes, size_t len) {
    struct call_outcome *o = grpc_stream_data(s);
    ProtobufCMessage *m = unpack_message(&zerod__v1__ticket__descriptor, bytes, len);
    o->messages++;
    if (m) {
        o->bytes += ((Zerod__V1__Ticket *)m)->token.len;
        protobuf_c_message_free_unpacked(m, NULL);
    }
    if (o->cancel_at_first) {
        grpc_client_cancel(s);
    }
}

static void on_writable(struct grpc_stream *s) {
    ((struct call_outcome *)grpc_stream_data(s))->writable++;
}

static void on_done(struct grpc_stream *s, int code, const char *text) {
    struct call_outcome *o = grpc_stream_data(s);
    o->done++;
    o->code = code;
    (void)snprintf(o->text, sizeof o->text, "%s", text);
}

static const struct grpc_stream_handlers handlers = {
    .on_message = on_message, .on_writable = on_writable, .on_done = on_done};

struct grpc_stream *pair_start(struct pair *p, const char *path, struct call_outcome *o,
                               int64_t timeout_ns) {
    int64_t deadline = timeout_ns < 0 ? GRPC_NEVER : p->now + timeout_ns;
    return grpc_client_start(p->client, path, &handlers, o, deadline, p->now);
}

int pair_send(struct grpc_stream *s, size_t len, const char *text) {
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    uint8_t *bytes = mem_zeroed(len, 1);
    t.token = (ProtobufCBinaryData){.len = len, .data = bytes};
    t.socket_path = (char *)text;
    int rv = grpc_client_send(s, &t.base);
    free(bytes);
    return rv;
}

struct grpc_stream *pair_unary(struct pair *p, const char *path, size_t len, const char *text,
                               struct call_outcome *o) {
    struct grpc_stream *s = pair_start(p, path, o, -1);
    (void)pair_send(s, len, text);
    grpc_client_half_close(s);
    pair_pump(p);
    return s;
}
