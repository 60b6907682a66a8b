/* Shared by grpc_server.c (the connection), grpc_headers.c and grpc_call.c (its calls). Internal to
 * proto/. */
#ifndef ZD_PROTO_SERVER_CORE_H
#define ZD_PROTO_SERVER_CORE_H

#include "proto/grpc_server.h"
#include "proto/h2.h"

/* From connect to the peer's SETTINGS, and from the first to the last byte of headers. */
#define OWED_CAP_NS INT64_C(10000000000)

struct grpc_conn {
    struct h2 h2; /* first: nghttp2's user data points here */
    struct grpc_server_options options;
    int64_t owed_by; /* the peer's SETTINGS, or the rest of begun headers; GRPC_NEVER: nothing */
    int64_t idle_by; /* without a call by then the peer is sent away; GRPC_NEVER: not looked yet */
    size_t calls;
    unsigned empty_in_row; /* DATA frames without data */
    bool draining;
};

struct grpc_call {
    struct h2_stream s; /* first */
    const struct grpc_method *method;
    void *context;
    void *data;
    int64_t deadline;
    int64_t taken_by;   /* what was finished must be gone by then; GRPC_NEVER: not looked yet */
    struct buf request; /* unary and server stream: the one message, packed */
    int code;           /* once ended */
    char text[GRPC_TEXT_MAX + 1];
    unsigned pseudo; /* enum of grpc_headers.c: which headers were seen */
    bool malformed, too_many_headers, not_grpc;
    bool has_timeout, has_request;
    bool answered;    /* response headers are submitted */
    bool half_closed; /* by the peer */
    bool heard;       /* a handler knows of it */
    bool told;        /* on_done was called: no handler may be called any more */
    bool reset_due;   /* trailers are out, the peer still sends */
    bool closed;      /* no stream any more */
};

static inline struct grpc_conn *call_conn(const struct grpc_call *call) {
    return (struct grpc_conn *)call->s.h2;
}

/* nghttp2's callbacks for headers, and what follows once they are all here (grpc_headers.c). */
int headers_begin(nghttp2_session *session, const nghttp2_frame *f, void *user);
int headers_field(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                  size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                  void *user);
void headers_complete(struct grpc_call *call);

/* The server answers by itself; the handler hears of it at once. */
void call_end(struct grpc_call *call, int code, const char *text);
/* on_done, once, if a handler knows the call. */
void call_tell(struct grpc_call *call);
void call_settle(struct h2_stream *s);
void call_trailers(struct h2_stream *s);
void call_free(struct grpc_call *call);

#endif
