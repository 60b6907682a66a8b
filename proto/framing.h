/* What gRPC puts around and beside its messages: the 5-byte prefix, grpc-timeout, grpc-message and
 * the two tables that turn HTTP and HTTP/2 failures into statuses. Bytes in, bytes out; no I/O. */
#ifndef ZD_PROTO_FRAMING_H
#define ZD_PROTO_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    GRPC_PREFIX = 5,                           /* bytes: flag, then length, big endian */
    GRPC_MESSAGE_MAX = 4 * 1024 * 1024,        /* bytes of one message, both directions */
    GRPC_TEXT_MAX = ERR_TEXT - 1,              /* bytes of a status text before encoding */
    GRPC_TEXT_ENCODED = 3 * GRPC_TEXT_MAX + 1, /* with the final NUL */
    GRPC_TIMEOUT_TEXT = 12,                    /* bytes of a formatted grpc-timeout with NUL */
};

/* Cuts a stream of bytes into messages. Zeroed storage is a ready deframer once |max| is set. */
struct deframer {
    struct buf body; /* of a message that came in pieces; owned */
    uint32_t max;    /* largest message, bytes */
    uint32_t need;   /* of the message being read */
    uint8_t head[GRPC_PREFIX];
    uint8_t head_len; /* bytes of |head| so far */
    bool failed;      /* nothing more is accepted */
};

/* Takes a complete message, valid during the call only. Nonzero stops the deframer for good. */
typedef int (*deframe_fn)(void *arg, const uint8_t *message, size_t len);

/* Feeds |n| bytes; |fn| is called for each message that they complete, in place where possible.
 * The length is checked before a byte of the message is stored. Returns 0, what |fn| returned,
 * -ST_UNIMPLEMENTED (compressed flag), -ST_INTERNAL (a flag that is neither 0 nor 1, or fed after a
 * failure) or -ST_RESOURCE_EXHAUSTED (larger than |max|). */
int deframer_push(struct deframer *d, const uint8_t *bytes, size_t n, deframe_fn fn, void *arg);
bool deframer_idle(const struct deframer *d); /* between two messages */
void deframer_free(struct deframer *d);

void grpc_prefix_write(uint8_t to[GRPC_PREFIX], uint32_t len);

/* "1S", "250m" and so on into ns, saturating at INT64_MAX. -1: not 1 to 8 digits and a unit. */
int64_t grpc_timeout_parse(const char *text, size_t n);
/* The shortest form that is not shorter in time than |ns|, at least 1n. Returns its length. */
size_t grpc_timeout_format(int64_t ns, char to[GRPC_TIMEOUT_TEXT]);

/* Percent coding of grpc-message. Encoding stops where |cap| (with the NUL) would be passed, at a
 * whole escape. Decoding never fails: a broken escape passes through. Both return the length. */
size_t grpc_text_encode(const char *text, size_t cap, char *to);
size_t grpc_text_decode(const char *text, size_t n, size_t cap, char *to);

/* 0 to 16 from the digits of grpc-status; ST_UNKNOWN for anything else. */
int grpc_status_parse(const char *text, size_t n);

int grpc_status_of_http(int http_status);       /* for an answer without grpc-status */
int grpc_status_of_reset(uint32_t http2_error); /* for a stream that was reset */

#endif
