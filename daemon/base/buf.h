/* A growable byte buffer. Bytes [off, len) are unread; consuming moves |off|. Running out of memory
 * for the few bytes of control messages ends the process with a message (house rule: decided once);
 * sizes that a peer chose are checked by the caller before they come here. */
#ifndef ZD_BASE_BUF_H
#define ZD_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *data; /* owned */
    size_t off, len, cap;
};

/* Room for |n| more bytes; returns where they go. Then add n to |len|. */
uint8_t *buf_reserve(struct buf *b, size_t n);
void buf_append(struct buf *b, const void *bytes, size_t n);
void buf_consume(struct buf *b, size_t n);
void buf_free(struct buf *b);

static inline size_t buf_unread(const struct buf *b) {
    return b->len - b->off;
}
static inline const uint8_t *buf_bytes(const struct buf *b) {
    return b->data + b->off;
}

/* calloc that ends the process, with a message, when there is no memory. Never NULL, even for 0. */
void *mem_zeroed(size_t count, size_t size);
char *mem_text(const char *s); /* strdup likewise; NULL stays NULL */

#endif
