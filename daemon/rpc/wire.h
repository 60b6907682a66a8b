/* One connected socket on a loop, moving the bytes of one end of a connection that has no I/O of
 * its own (server or client). Internal to rpc/.
 *
 * recv and send on a descriptor that uv_poll watches, not a uv_pipe_t: libuv 1.44 writes without
 * MSG_NOSIGNAL, and a daemon's signals are not ours to change. Output is tried at once: after bytes
 * came in, after a deadline, and once in the next turn of the loop for what handlers queued on
 * other connections (an idle handle that runs only then). */
#ifndef ZD_RPC_WIRE_H
#define ZD_RPC_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"

enum { WIRE_READ_CHUNK = 64 * 1024 };

/* The functions of grpc_server.h and grpc_client.h of the same names. */
struct wire_ops {
    int (*receive)(void *end, const uint8_t *bytes, size_t n, int64_t now, struct err *e);
    size_t (*output)(void *end, const uint8_t **bytes);
    void (*sent)(void *end, size_t n);
    bool (*over)(const void *end);
    int64_t (*next_deadline)(const void *end);
    void (*tick)(void *end, int64_t now);
    /* The connection is at its end: tell |end|'s calls. |end| is not used any more after it. */
    void (*lost)(void *end, const struct err *reason);
    /* All handles are closed: |owner| may free itself and this wire. */
    void (*closed)(void *owner, const struct err *reason);
};

struct wire {
    uv_poll_t poll;
    uv_idle_t idle;
    uv_timer_t timer;
    int fd; /* owned */
    const struct wire_ops *ops;
    void *end, *owner;
    uint8_t *in;   /* WIRE_READ_CHUNK bytes, may be shared by the wires of a loop; borrowed */
    int64_t armed; /* when |timer| fires, ns; GRPC_NEVER: not */
    int handles;   /* not closed yet */
    struct err reason;
    bool blocked; /* the socket is full: waiting for room */
    bool shut, shut_asked;
};

/* Takes the connected, non-blocking |fd| (also on failure); the fields from |ops| to |in| are set.
 * 0 or libuv's error: nothing is open then, closed() will not come. */
int wire_start(struct wire *w, uv_loop_t *loop, int fd);
/* The end has output or an earlier deadline: to be called from on_output. */
void wire_note(struct wire *w);
void wire_flush(struct wire *w); /* not from a handler */
/* Ends it in the next turn of the loop, so that handlers may ask. |reason| is copied; the first one
 * counts. */
void wire_ask_shut(struct wire *w, enum status code, const char *text);
/* Ends it now; not from a handler. */
void wire_shut(struct wire *w, enum status code, const char *text);

#endif
