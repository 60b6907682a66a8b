/* A client and a server joined in memory, with a clock that only the test moves. */
#ifndef ZD_TESTS_PAIR_H
#define ZD_TESTS_PAIR_H

#include "proto/grpc_client.h"
#include "tests/proto/echo.h"

struct pair {
    struct grpc_conn *server;
    struct grpc_client *client;
    struct grpc_service service;
    struct echo echo;
    int64_t now;
    size_t chunk;     /* bytes moved at a time; 0: all */
    bool deaf_client; /* does not read */
    bool deaf_server;
};

void pair_open(struct pair *p);
void pair_close(struct pair *p);
/* Moves bytes until neither side has any; returns how many. */
size_t pair_pump(struct pair *p);
/* Lets the clock run and both sides look at it. */
void pair_wait(struct pair *p, int64_t ns);
/* Raw bytes to the server, as from a peer that is no client. Returns grpc_server_receive's. */
int pair_feed(struct pair *p, const void *bytes, size_t n);

/* What happened to one call of the client. */
struct call_outcome {
    unsigned messages, done, writable;
    int code;
    char text[512];
    size_t bytes; /* of token in the messages */
    bool cancel_at_first;
};

struct grpc_stream *pair_start(struct pair *p, const char *path, struct call_outcome *o,
                               int64_t timeout_ns);
/* Queues a ticket with |len| bytes of token and |text|. */
int pair_send(struct grpc_stream *s, size_t len, const char *text);
/* start, send one, half-close, pump. */
struct grpc_stream *pair_unary(struct pair *p, const char *path, size_t len, const char *text,
                               struct call_outcome *o);

#endif
