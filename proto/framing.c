/* See framing.h. A message that lies whole in the bytes given is passed on where it lies; only one
 * that straddles two pushes is copied together. */
#include "proto/framing.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

enum { KEPT_BODY = 64 * 1024 }; /* bytes of buffer that a deframer keeps between messages */

static uint32_t read_length(const uint8_t head[GRPC_PREFIX]) {
    return (uint32_t)head[1] << 24 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 8 | head[4];
}

/* Takes what is missing of the prefix; returns how many bytes, or a negative status. */
static int take_head(struct deframer *d, const uint8_t *bytes, size_t n) {
    size_t take = GRPC_PREFIX - (size_t)d->head_len;
    if (take > n) {
        take = n;
    }
    memcpy(d->head + d->head_len, bytes, take);
    d->head_len = (uint8_t)(d->head_len + take);
    if (d->head_len == GRPC_PREFIX) {
        d->need = read_length(d->head);
        if (d->head[0] > 1) {
            return -ST_INTERNAL;
        }
        if (d->head[0] == 1) {
            return -ST_UNIMPLEMENTED;
        }
        if (d->need > d->max) {
            return -ST_RESOURCE_EXHAUSTED;
        }
    }
    return (int)take;
}

static int deliver_body(struct deframer *d, deframe_fn fn, void *arg) {
#ifdef ZEROD_PLANTED_OVERFLOW
    /* Planted for tests/fuzz/run, never in a product build: one byte past the buffer when a message
     * that came in pieces is 3 bytes long. */
    if (d->need == 3) {
        d->body.data[d->body.cap] = 0;
    }
#endif
    int rv = fn(arg, buf_bytes(&d->body), d->need);
    buf_consume(&d->body, d->need);
    if (d->body.cap > KEPT_BODY) {
        buf_free(&d->body);
    }
    return rv;
}

/* Takes body bytes of the message being read and delivers it when complete. */
static int take_body(struct deframer *d, const uint8_t *bytes, size_t n, deframe_fn fn, void *arg,
                     size_t *taken) {
    size_t have = buf_unread(&d->body);
    size_t take = d->need - have;
    if (take > n) {
        take = n;
    }
    *taken = take;
    if (have == 0 && take == d->need) {
        d->head_len = 0;
        return fn(arg, bytes, d->need);
    }
    buf_append(&d->body, bytes, take);
    if (have + take < d->need) {
        return 0;
    }
    d->head_len = 0;
    return deliver_body(d, fn, arg);
}

int deframer_push(struct deframer *d, const uint8_t *bytes, size_t n, deframe_fn fn, void *arg) {
    int rv = d->failed ? -ST_INTERNAL : 0;
    while (rv == 0 && n > 0) {
        size_t taken = 0;
        if (d->head_len < GRPC_PREFIX) {
            int head = take_head(d, bytes, n);
            rv = head < 0 ? head : 0;
            taken = head < 0 ? 0 : (size_t)head;
        }
        bytes += taken;
        n -= taken;
        if (rv == 0 && d->head_len == GRPC_PREFIX && (n > 0 || d->need == 0)) {
            rv = take_body(d, bytes, n, fn, arg, &taken);
            bytes += taken;
            n -= taken;
        }
    }
    d->failed = d->failed || rv != 0;
    return rv;
}

bool deframer_idle(const struct deframer *d) {
    return d->head_len == 0;
}

void deframer_free(struct deframer *d) {
    buf_free(&d->body);
}

void grpc_prefix_write(uint8_t to[GRPC_PREFIX], uint32_t len) {
    to[0] = 0;
    to[1] = (uint8_t)(len >> 24);
    to[2] = (uint8_t)(len >> 16);
    to[3] = (uint8_t)(len >> 8);
    to[4] = (uint8_t)len;
}

struct timeout_unit {
    char letter;
    int64_t ns;
};

static const struct timeout_unit timeout_units[] = {
    {'n', 1},          {'u', 1000},        {'m', 1000000},
    {'S', 1000000000}, {'M', 60000000000}, {'H', 3600000000000},
};
enum { TIMEOUT_UNITS = sizeof timeout_units / sizeof timeout_units[0], TIMEOUT_DIGITS = 8 };

int64_t grpc_timeout_parse(const char *text, size_t n) {
    if (n < 2 || n > TIMEOUT_DIGITS + 1) {
        return -1;
    }
    int64_t value = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
        value = value * 10 + (text[i] - '0');
    }
    for (size_t u = 0; u < TIMEOUT_UNITS; u++) {
        if (timeout_units[u].letter == text[n - 1]) {
            int64_t ns = timeout_units[u].ns;
            return value > INT64_MAX / ns ? INT64_MAX : value * ns;
        }
    }
    return -1;
}

size_t grpc_timeout_format(int64_t ns, char to[GRPC_TIMEOUT_TEXT]) {
    const int64_t most = 99999999; /* what TIMEOUT_DIGITS can say */
    int64_t value = ns < 1 ? 1 : ns;
    size_t u = 0;
    while (value > most && u + 1 < TIMEOUT_UNITS) {
        u++;
        int64_t unit = timeout_units[u].ns;
        value = ns / unit + (ns % unit != 0);
    }
    if (value > most) {
        value = most;
    }
    return (size_t)snprintf(to, GRPC_TIMEOUT_TEXT, "%lld%c", (long long)value,
                            timeout_units[u].letter);
}

size_t grpc_text_encode(const char *text, size_t cap, char *to) {
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = c >= 0x20 && c <= 0x7e && c != '%';
        if (n + (plain ? 1 : 3) >= cap) {
            break;
        }
        if (plain) {
            to[n++] = (char)c;
        } else {
            to[n++] = '%';
            to[n++] = hex[c >> 4];
            to[n++] = hex[c & 15];
        }
    }
    to[n] = 0;
    return n;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t grpc_text_decode(const char *text, size_t n, size_t cap, char *to) {
    size_t out = 0;
    for (size_t i = 0; i < n && out + 1 < cap; i++) {
        if (text[i] == '%' && n - i > 2 && hex_value(text[i + 1]) >= 0 &&
            hex_value(text[i + 2]) >= 0) {
            to[out++] = (char)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2]));
            i += 2;
        } else {
            to[out++] = text[i];
        }
    }
    to[out] = 0;
    return out;
}

int grpc_status_parse(const char *text, size_t n) {
    int code = 0;
    if (n < 1 || n > 2) {
        return ST_UNKNOWN;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return ST_UNKNOWN;
        }
        code = code * 10 + (text[i] - '0');
    }
    return code <= ST_UNAUTHENTICATED ? code : ST_UNKNOWN;
}

/* gRPC's http-grpc-status-mapping.md. */
int grpc_status_of_http(int http_status) {
    switch (http_status) {
    case 400:
        return ST_INTERNAL;
    case 401:
        return ST_UNAUTHENTICATED;
    case 403:
        return ST_PERMISSION_DENIED;
    case 404:
        return ST_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return ST_UNAVAILABLE;
    default:
        return ST_UNKNOWN;
    }
}

/* gRPC's PROTOCOL-HTTP2.md, "Errors". */
int grpc_status_of_reset(uint32_t http2_error) {
    enum { REFUSED_STREAM = 7, CANCEL = 8, ENHANCE_YOUR_CALM = 11, INADEQUATE_SECURITY = 12 };
    switch (http2_error) {
    case REFUSED_STREAM:
        return ST_UNAVAILABLE;
    case CANCEL:
        return ST_CANCELLED;
    case ENHANCE_YOUR_CALM:
        return ST_RESOURCE_EXHAUSTED;
    case INADEQUATE_SECURITY:
        return ST_PERMISSION_DENIED;
    default:
        return ST_INTERNAL;
    }
}
