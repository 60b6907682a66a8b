#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { SMALLEST = 256 };

static void out_of_memory(size_t bytes) {
    log_error("out of memory: %zu bytes for a control message or table", bytes);
    abort();
}

void *mem_zeroed(size_t count, size_t size) {
    void *p = calloc(count ? count : 1, size ? size : 1);
    if (!p) {
        out_of_memory(count * size);
    }
    return p;
}

char *mem_text(const char *s) {
    if (!s) {
        return NULL;
    }
    size_t n = strlen(s) + 1;
    return memcpy(mem_zeroed(n, 1), s, n);
}

static void grow(struct buf *b, size_t n) {
    size_t cap = b->cap ? b->cap : SMALLEST;
    while (cap < b->len + n) {
        cap *= 2;
    }
    uint8_t *data = realloc(b->data, cap);
    if (!data) {
        out_of_memory(cap);
    }
    b->data = data;
    b->cap = cap;
}

uint8_t *buf_reserve(struct buf *b, size_t n) {
    if (b->off == b->len) {
        b->off = b->len = 0;
    }
    if (b->cap - b->len >= n && b->data) {
        return b->data + b->len;
    }
    if (b->off) { /* slide down before growing */
        memmove(b->data, b->data + b->off, buf_unread(b));
        b->len -= b->off;
        b->off = 0;
    }
    if (b->cap - b->len < n || !b->data) {
        grow(b, n);
    }
    return b->data + b->len;
}

void buf_append(struct buf *b, const void *bytes, size_t n) {
    uint8_t *to = buf_reserve(b, n);
    if (n) {
        memcpy(to, bytes, n);
    }
    b->len += n;
}

void buf_consume(struct buf *b, size_t n) {
    b->off += n;
}

void buf_free(struct buf *b) {
    free(b->data);
    *b = (struct buf){0};
}
