#include "tests/proto/seen.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

enum { HEAD = 9, LONGEST = 200 };

size_t seen_frames(const uint8_t *bytes, size_t n, struct seen_frame *to) {
    size_t count = 0;
    for (size_t at = 0; at + HEAD <= n; count++) {
        const uint8_t *f = bytes + at;
        assert(count < SEEN_FRAMES);
        to[count] = (struct seen_frame){.type = f[3],
                                        .flags = f[4],
                                        .stream = (uint32_t)f[5] << 24 | (uint32_t)f[6] << 16 |
                                                  (uint32_t)f[7] << 8 | f[8],
                                        .payload = f + HEAD,
                                        .len = (size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2]};
        at += HEAD + to[count].len;
    }
    return count;
}

const char *seen_header(nghttp2_hd_inflater *inflater, const struct seen_frame *f,
                        const char *name) {
    static char value[LONGEST];
    bool found = false;
    const uint8_t *at = f->payload;
    size_t len = f->len;
    for (int flags = 0; !(flags & NGHTTP2_HD_INFLATE_FINAL);) {
        nghttp2_nv nv;
        ssize_t n = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, at, len, 1);
        assert(n >= 0);
        at += n;
        len -= (size_t)n;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) && nv.namelen == strlen(name) &&
            memcmp(nv.name, name, nv.namelen) == 0 && nv.valuelen < sizeof value) {
            memcpy(value, nv.value, nv.valuelen);
            value[nv.valuelen] = 0;
            found = true;
        }
    }
    nghttp2_hd_inflate_end_headers(inflater);
    return found ? value : NULL;
}
