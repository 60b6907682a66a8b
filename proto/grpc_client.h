/* The client side of one gRPC connection, without I/O: bytes in, bytes out, time as an argument.
 *
 * A transport (grpc_channel.h with poll, rpc/dial.h with libuv) moves the bytes; after each receive
 * and tick it asks for output. Handlers are
 * called from inside grpc_client_receive, _output, _tick, _close and _free; they only queue, so
 * they may start, send, cancel any call, but must not feed, drain or free the client. One thread at
 * a time.
 *
 * Every stream that was started ends in exactly one on_done, never from inside the function that
 * started, sent, or cancelled it; after it returns the stream is gone. A deadline is kept here: at
 * its time on_done says DEADLINE_EXCEEDED whatever the server does. After GOAWAY or a lost
 * connection new streams end in UNAVAILABLE. */
#ifndef ZD_PROTO_GRPC_CLIENT_H
#define ZD_PROTO_GRPC_CLIENT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct grpc_client;
struct grpc_stream; /* a call, seen from here */

struct grpc_stream_handlers {
    /* A message of the server; |bytes| are valid during the call. May be NULL. */
    void (*on_message)(struct grpc_stream *s, const uint8_t *bytes, size_t len);
    /* The queue was full (GRPC_HIGH_MARK) and has room again. May be NULL. */
    void (*on_writable)(struct grpc_stream *s);
    /* The end. |text| is the server's or ours, never NULL. */
    void (*on_done)(struct grpc_stream *s, int code, const char *text);
};

/* |on_output| (may be NULL) is called when output or an earlier deadline appears outside of
 * grpc_client_receive/output/tick; it must only take a note. */
struct grpc_client *grpc_client_new(void (*on_output)(void *user), void *user);

/* As grpc_server_receive, _output, _sent, _over, _next_deadline and _tick. */
int grpc_client_receive(struct grpc_client *c, const uint8_t *bytes, size_t n, int64_t now,
                        struct err *e);
size_t grpc_client_output(struct grpc_client *c, const uint8_t **bytes);
void grpc_client_sent(struct grpc_client *c, size_t n);
bool grpc_client_over(const struct grpc_client *c);
int64_t grpc_client_next_deadline(const struct grpc_client *c);
void grpc_client_tick(struct grpc_client *c, int64_t now);

/* False after GOAWAY, loss or close: a new call needs a new connection. */
bool grpc_client_usable(const struct grpc_client *c);
/* Handler calls so far: lets a transport see whether something was dispatched. */
uint64_t grpc_client_events(const struct grpc_client *c);
/* The connection is lost: all streams end with |code| and |text|. */
void grpc_client_close(struct grpc_client *c, int code, const char *text);
/* As close with CANCELLED for what is still open, then frees. */
void grpc_client_free(struct grpc_client *c);
/* Frees without a word to the server or a handler: for a forked child. */
void grpc_client_forget(struct grpc_client *c);

/* Starts a call to |path| (copied). |deadline| is absolute like |now|, GRPC_NEVER: none; it is sent
 * as grpc-timeout too. |handlers| is borrowed until on_done, |data| is grpc_stream_data(). Never
 * NULL: a call that cannot be is ended at the next receive, output or tick. */
struct grpc_stream *grpc_client_start(struct grpc_client *c, const char *path,
                                      const struct grpc_stream_handlers *handlers, void *data,
                                      int64_t deadline, int64_t now);

/* Queues a message. 0; -ST_CANCELLED: half-closed or over; -ST_RESOURCE_EXHAUSTED: larger than
 * GRPC_MESSAGE_MAX, or GRPC_BUFFER_MAX reached. Nothing is queued then. */
int grpc_client_send(struct grpc_stream *s, const ProtobufCMessage *message);
void grpc_client_half_close(struct grpc_stream *s); /* no more messages */
/* Ends the call: RST CANCEL to the server, on_done with CANCELLED at the next occasion. */
void grpc_client_cancel(struct grpc_stream *s);

size_t grpc_stream_queued(const struct grpc_stream *s); /* bytes not yet taken by the wire */
bool grpc_stream_full(const struct grpc_stream *s);     /* at or above GRPC_HIGH_MARK */
void *grpc_stream_data(const struct grpc_stream *s);
void grpc_stream_set_data(struct grpc_stream *s, void *data);
struct grpc_client *grpc_stream_client(const struct grpc_stream *s);

#endif
