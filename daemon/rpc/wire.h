/* One connected socket on a loop, moving the bytes of one end of a connection that has no I/O of
 * its own (server or client). Internal to rpc/.
 *
 * Output is tried at once: after bytes came in, after a deadline, and once in the next turn of the
 * loop for what handlers queued on other connections (an idle handle that runs only then). */
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
    uv_pipe_t pipe;
    uv_idle_t idle;
    uv_timer_t timer;
    uv_write_t write;
    const struct wire_ops *ops;
    void *end, *owner;
    uint8_t *in;      /* WIRE_READ_CHUNK bytes, may be shared by the wires of a loop; borrowed */
    size_t in_flight; /* bytes that |write| carries */
    int64_t armed;    /* when |timer| fires, ns; GRPC_NEVER: not */
    int handles;      /* not closed yet */
    struct err reason;
    bool writing, shut, shut_asked;
};

/* |w->pipe| is initialised; then connect it (uv_accept, uv_pipe_open), set ops, end, owner and in,
 * and start. */
void wire_init(struct wire *w, uv_loop_t *loop);
int wire_start(struct wire *w);
/* The end has output or an earlier deadline: to be called from on_output. */
void wire_note(struct wire *w);
void wire_flush(struct wire *w); /* not from a handler */
/* Ends it in the next turn of the loop, so that handlers may ask. |reason| is copied; the first one
 * counts. */
void wire_ask_shut(struct wire *w, enum status code, const char *text);
/* Ends it now; not from a handler. */
void wire_shut(struct wire *w, enum status code, const char *text);

#endif
