/* What both sides of a gRPC connection share: an nghttp2 session fed from and drained into memory,
 * and streams that queue messages. Internal to proto/.
 *
 * nghttp2 is never entered from its own callbacks. Whatever a handler queues only marks its stream;
 * h2_receive and h2_output settle marked streams (submit, resume, reset) when nghttp2 is outside.
 * The one exception, which nghttp2 allows, is the trailer inside the read callback. */
#ifndef ZD_PROTO_H2_H
#define ZD_PROTO_H2_H

#include <nghttp2/nghttp2.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "proto/framing.h"

struct h2;

struct h2_stream {
    struct h2 *h2;
    int32_t id; /* 0: not submitted yet (client) */
    struct deframer in;
    struct buf out;      /* messages on their way, prefixes included */
    size_t header_bytes; /* received so far, 32 a field added */
    bool ended;          /* nothing follows |out| */
    bool was_full;       /* reached GRPC_HIGH_MARK since the last on_writable */
    bool deferred;       /* nghttp2 waits for nghttp2_session_resume_data */
    bool marked;         /* is in the list of streams to settle */
    struct h2_stream *marked_prev, *marked_next;
    struct h2_stream *prev, *next; /* all streams */
};

struct h2 {
    nghttp2_session *session; /* its user data is this struct */
    void (*settle)(struct h2_stream *s);
    /* Called inside the read callback when all of an ended stream went out; NULL: END_STREAM. */
    void (*trailers)(struct h2_stream *s);
    void (*on_output)(void *user);
    void *user;
    int64_t now;
    int64_t next_deadline; /* may be early, never late */
    struct buf out;        /* frames on their way */
    size_t queued, held;   /* bytes in all streams' |out|; in their deframers and requests */
    struct h2_stream *streams;
    struct h2_stream *marked, *marked_last; /* first come, first settled */
    struct err error;
    bool inside; /* one of the entry points runs: no need to call on_output */
    bool noted;  /* on_output was called since the last h2_output */
    bool broken;
};

#define H2_NV(n, v, vlen)                                                                          \
    {                                                                                              \
        .name = (uint8_t *)(n), .value = (uint8_t *)(v), .namelen = sizeof(n) - 1,                 \
        .valuelen = (vlen), .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME                                  \
    }
#define H2_NV_TEXT(n, v)                                                                           \
    {                                                                                              \
        .name = (uint8_t *)(n), .value = (uint8_t *)(v), .namelen = sizeof(n) - 1,                 \
        .valuelen = sizeof(v) - 1,                                                                 \
        .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE                      \
    }

/* |callbacks| gets the common ones added and is deleted. */
void h2_init(struct h2 *h, bool server, bool lenient, nghttp2_session_callbacks *callbacks);
void h2_free(struct h2 *h); /* streams must be gone */

int h2_receive(struct h2 *h, const uint8_t *bytes, size_t n, int64_t now, struct err *e);
size_t h2_output(struct h2 *h, const uint8_t **bytes);
void h2_sent(struct h2 *h, size_t n);
bool h2_over(const struct h2 *h);
void h2_break(struct h2 *h, enum status code, const char *text);
/* Settles every marked stream once; true when some are marked again. */
bool h2_settle(struct h2 *h);
/* The transport should come for output (or look at the deadline again). */
void h2_note(struct h2 *h);
void h2_deadline(struct h2 *h, int64_t at); /* next_deadline falls to |at| */

void h2_stream_init(struct h2 *h, struct h2_stream *s);
void h2_stream_gone(struct h2_stream *s); /* unlinks and frees what it holds, not itself */
void h2_stream_mark(struct h2_stream *s);
int h2_stream_send(struct h2_stream *s, const ProtobufCMessage *message);
/* Room after having been full; asked when settling, clears the flag. */
bool h2_stream_writable(struct h2_stream *s);
void h2_stream_resume(struct h2_stream *s);
nghttp2_data_provider h2_stream_provider(void);
/* Deframes received bytes, keeping the connection's account. As deframer_push; also
 * -ST_RESOURCE_EXHAUSTED when the connection holds too much. */
int h2_stream_deframe(struct h2_stream *s, const uint8_t *bytes, size_t n, deframe_fn fn,
                      void *arg);
void h2_stream_drop_input(struct h2_stream *s); /* frees the deframer's buffer */
/* Counts a header field; true while within GRPC_HEADERS_MAX. */
bool h2_stream_header(struct h2_stream *s, size_t name_len, size_t value_len);
struct h2_stream *h2_stream_of(nghttp2_session *session, int32_t id);

#endif
