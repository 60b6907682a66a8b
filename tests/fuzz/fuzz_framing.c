/* libFuzzer: the deframer and the parsers of header texts. Byte 0 says which; then
 *   0 deframer  byte 1 the seed of how the rest is cut. Whole and cut must give the same messages.
 *   1 timeout   what parses, formatted and parsed again, is no shorter
 *   2 text      what is encoded decodes to itself
 *   3 status */
#include <stdlib.h>
#include <string.h>

#include "proto/framing.h"

enum { LARGEST = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct heard {
    uint64_t count, sum;
};

static int take(void *arg, const uint8_t *message, size_t len) {
    struct heard *h = arg;
    h->count++;
    for (size_t i = 0; i < len; i++) {
        h->sum = h->sum * 31 + message[i] + 1;
    }
    return 0;
}

static void must(bool ok) {
    if (!ok) {
        abort();
    }
}

static void deframe(const uint8_t *data, size_t size) {
    struct deframer whole = {.max = LARGEST}, cut = {.max = LARGEST};
    struct heard all = {0}, pieces = {0};
    unsigned seed = data[0];
    data++;
    size--;
    int rv = deframer_push(&whole, data, size, take, &all), cut_rv = 0;
    for (size_t at = 0; at < size && cut_rv == 0;) {
        seed = seed * 1103515245 + 12345;
        size_t n = 1 + (seed >> 16) % 13;
        n = n > size - at ? size - at : n;
        cut_rv = deframer_push(&cut, data + at, n, take, &pieces);
        at += n;
    }
    must(rv == cut_rv && all.count == pieces.count && all.sum == pieces.sum);
    must(deframer_idle(&whole) == deframer_idle(&cut));
    deframer_free(&whole);
    deframer_free(&cut);
}

static void timeout(const char *text, size_t n) {
    char again[GRPC_TIMEOUT_TEXT];
    int64_t ns = grpc_timeout_parse(text, n);
    if (ns > 0) {
        size_t len = grpc_timeout_format(ns, again);
        must(grpc_timeout_parse(again, len) >= ns);
    }
}

static void text(const char *bytes, size_t n) {
    char decoded[GRPC_TEXT_MAX + 1], encoded[GRPC_TEXT_ENCODED], back[GRPC_TEXT_MAX + 1];
    (void)grpc_text_decode(bytes, n, sizeof decoded, decoded);
    size_t len = grpc_text_encode(decoded, sizeof encoded, encoded);
    (void)grpc_text_decode(encoded, len, sizeof back, back);
    must(strcmp(decoded, back) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) {
        return 0;
    }
    const char *rest = (const char *)data + 1;
    switch (data[0] % 4) {
    case 0:
        deframe(data + 1, size - 1);
        break;
    case 1:
        timeout(rest, size - 1);
        break;
    case 2:
        text(rest, size - 1);
        break;
    default: {
        int code = grpc_status_parse(rest, size - 1);
        must(code >= ST_OK && code <= ST_UNAUTHENTICATED);
    }
    }
    return 0;
}
