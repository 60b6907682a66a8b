#include "tests/proto/raw.h"

#include <string.h>

enum { HEAD = 9 };

void raw_preface(struct buf *b) {
    static const char magic[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    buf_append(b, magic, sizeof magic - 1);
    raw_frame(b, RAW_SETTINGS, 0, 0, NULL, 0);
}

void raw_frame(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream, const void *payload,
               size_t n) {
    const uint8_t head[HEAD] = {(uint8_t)(n >> 16),
                                (uint8_t)(n >> 8),
                                (uint8_t)n,
                                type,
                                flags,
                                (uint8_t)(stream >> 24),
                                (uint8_t)(stream >> 16),
                                (uint8_t)(stream >> 8),
                                (uint8_t)stream};
    buf_append(b, head, sizeof head);
    if (n) {
        buf_append(b, payload, n);
    }
}

void raw_field(struct buf *b, const char *name, const char *value) {
    const uint8_t literal = 0, name_len = (uint8_t)strlen(name), value_len = (uint8_t)strlen(value);
    buf_append(b, &literal, 1);
    buf_append(b, &name_len, 1);
    buf_append(b, name, name_len);
    buf_append(b, &value_len, 1);
    buf_append(b, value, value_len);
}

void raw_request(struct buf *b, const char *path, const char *authority) {
    raw_field(b, ":method", "POST");
    raw_field(b, ":scheme", "http");
    raw_field(b, ":path", path);
    raw_field(b, ":authority", authority);
    raw_field(b, "content-type", "application/grpc");
}

bool raw_has(const uint8_t *bytes, size_t n, uint8_t type, uint32_t stream) {
    for (size_t at = 0; at + HEAD <= n;) {
        const uint8_t *f = bytes + at;
        uint32_t id = (uint32_t)f[5] << 24 | (uint32_t)f[6] << 16 | (uint32_t)f[7] << 8 | f[8];
        if (f[3] == type && id == stream) {
            return true;
        }
        at += HEAD + ((size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2]);
    }
    return false;
}
