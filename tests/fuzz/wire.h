/* Calls and streams without a connection: proto/grpc_server.h's and proto/grpc_client.h's functions
 * for handlers, the dialling, the hand-over and the rest that stands between a daemon and sockets.
 * What a handler sends goes, packed, to a function. Every call must end with a status, and with a
 * text where that is not OK. One thread. */
#ifndef ZD_FUZZ_WIRE_H
#define ZD_FUZZ_WIRE_H

#include "proto/framing.h"
#include "proto/grpc_client.h"
#include "proto/grpc_server.h"

typedef void wire_hear(void *user, const uint8_t *bytes, size_t n);

/* The server's end of a call; zero it, then wire_open. */
struct grpc_call {
    const struct grpc_method *method;
    void *context, *data;
    struct grpc_peer peer;
    bool is_open, done; /* done: on_done was called; the call may not be used any more */
    int code;
    wire_hear *hear;
    void *user;
};

void wire_open(struct grpc_call *call, const struct grpc_service *service, wire_hear *hear,
               void *user);
/* The peer says something; nothing is heard of it once the call is finished. */
void wire_say(struct grpc_call *call, const uint8_t *bytes, size_t n);
void wire_half_close(struct grpc_call *call);
void wire_settle(struct grpc_call *call); /* on_done, if it was finished */
void wire_gone(struct grpc_call *call);   /* the peer's connection broke */

/* The client's end: there is one, which grpc_client_start opens. */
struct grpc_stream {
    const struct grpc_stream_handlers *handlers;
    void *data;
    bool is_open;
    wire_hear *hear;
    void *user;
};

extern struct grpc_stream wire_stream;
/* What the server says; nothing is heard of it once the stream is over. */
void wire_answer(const uint8_t *bytes, size_t n);
void wire_stream_end(int code, const char *text);

/* What handover_take gives next: |n| descriptors, or fewer than asked for: an error. Taken ones are
 * the callee's. They come with the call of wire_hand_over. */
enum { WIRE_FDS = 4 };
void wire_will_give(const int *fds, size_t n);
void wire_hand_over(void);
bool wire_hands_over(void); /* somebody waits for it */
void wire_reset(void);

#endif
