/* What an end of a connection sent, frame by frame, as a peer sees it. */
#ifndef ZD_TESTS_SEEN_H
#define ZD_TESTS_SEEN_H

#include <nghttp2/nghttp2.h>
#include <stddef.h>
#include <stdint.h>

enum { SEEN_FRAMES = 64, SEEN_ACK = 1 };

struct seen_frame {
    uint8_t type, flags;
    uint32_t stream;
    const uint8_t *payload; /* borrowed */
    size_t len;
};

/* Cuts |bytes| into frames, at most SEEN_FRAMES; returns how many. */
size_t seen_frames(const uint8_t *bytes, size_t n, struct seen_frame *to);

/* The value of header |name| in a HEADERS frame, or NULL; valid until the next call. HPACK has a
 * state: the frames of a connection must come in order, each once. */
const char *seen_header(nghttp2_hd_inflater *inflater, const struct seen_frame *f,
                        const char *name);

#endif
