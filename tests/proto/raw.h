/* HTTP/2 frames by hand, for peers that break the rules. */
#ifndef ZD_TESTS_RAW_H
#define ZD_TESTS_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    RAW_DATA = 0,
    RAW_HEADERS = 1,
    RAW_RST = 3,
    RAW_SETTINGS = 4,
    RAW_PING = 6,
    RAW_GOAWAY = 7,
    RAW_CONTINUATION = 9
};
enum { RAW_END_STREAM = 1, RAW_END_HEADERS = 4 };

void raw_preface(struct buf *b);
void raw_frame(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream, const void *payload,
               size_t n);
/* One header field, literal, not indexed; name and value under 127 bytes. */
void raw_field(struct buf *b, const char *name, const char *value);
/* Headers of a gRPC request for |path| with |authority|; more fields may follow. */
void raw_request(struct buf *b, const char *path, const char *authority);
/* True when |bytes| hold a frame of |type| on |stream|. */
bool raw_has(const uint8_t *bytes, size_t n, uint8_t type, uint32_t stream);

#endif
