/* The kernels that run over ranges as a whole: sums over ranks, copies, norms and hashes; and the
 * table of one instruction set. Compiled once for each (variant.h); only the non-temporal stores of
 * copy() have no C and use intrinsics. */
#include "kernels/variant.h"

#include <assert.h>
#include <string.h>

#if defined __SSE2__
#include <immintrin.h>
#endif

#include "base/hash.h"

enum {
    SUM_TILE = 1024, /* elements of a sum's running total: 4 KiB, stays in the first cache */
    GROUP = 4,       /* sources that one loop reads */
};

/* A source's element: fp32, or the upper half of one. */
static ALWAYS_INLINE float element(const void *source, size_t i, bool bf16) {
    if (!bf16) {
        return ((const float *)source)[i];
    }
    const uint32_t u = (uint32_t)((const uint16_t *)source)[i] << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* total += the next |count| sources, in order. Inlined with constants: a loop of its own for each
 * count, reading its sources side by side (one after the other takes half as long again). */
static ALWAYS_INLINE void add_group(size_t n, const void *const s[GROUP], size_t count, bool bf16,
                                    float *total) {
    const void *a = s[0], *b = s[1], *c = s[2], *d = s[3];
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float x = total[i] + element(a, i, bf16);
        x = count > 1 ? x + element(b, i, bf16) : x;
        x = count > 2 ? x + element(c, i, bf16) : x;
        total[i] = count > 3 ? x + element(d, i, bf16) : x;
    }
}

static ALWAYS_INLINE void add_sources(size_t n, const void *const s[GROUP], size_t count, bool bf16,
                                      float *total) {
    switch (count) {
    case 1:
        add_group(n, s, 1, bf16, total);
        break;
    case 2:
        add_group(n, s, 2, bf16, total);
        break;
    case 3:
        add_group(n, s, 3, bf16, total);
        break;
    default:
        add_group(n, s, GROUP, bf16, total);
    }
}

/* to = total or to + total */
static void sum_finish(size_t n, const float *total, bool add, float *to) {
    if (add) {
        INDEPENDENT
        for (size_t i = 0; i < n; i++) {
            to[i] = one_nan(to[i] + total[i]);
        }
    } else {
        INDEPENDENT
        for (size_t i = 0; i < n; i++) {
            to[i] = one_nan(total[i]);
        }
    }
}

static void sum_start(size_t n, float *total) {
    for (size_t i = 0; i < n; i++) {
        total[i] = -0.0f; /* x + -0 is x, also for both zeros */
    }
}

/* Any number of ranks, elements [at, at + n) with n <= SUM_TILE: |to| is written last, when every
 * source was read, so it may be one of them. */
static void sum_tile(size_t at, size_t n, size_t ranks, const float *const *from, bool add,
                     float *to) {
    float total[SUM_TILE];
    sum_start(n, total);
    for (size_t r = 0; r < ranks; r += GROUP) {
        const size_t count = ranks - r < GROUP ? ranks - r : GROUP;
        const void *s[GROUP] = {0};
        for (size_t i = 0; i < count; i++) {
            s[i] = from[r + i] + at;
        }
        add_sources(n, s, count, false, total);
    }
    sum_finish(n, total, add, to + at);
}

static void sum(size_t n, size_t ranks, const float *const *from, bool add, float *to) {
    assert(ranks >= 1);
    for (size_t at = 0; at < n; at += SUM_TILE) {
        size_t here = n - at < SUM_TILE ? n - at : SUM_TILE;
        sum_tile(at, here, ranks, from, add, to);
    }
}

static void sum_bf16_tile(size_t at, size_t n, size_t ranks, const uint16_t *const *from, bool add,
                          float *to) {
    float total[SUM_TILE];
    sum_start(n, total);
    for (size_t r = 0; r < ranks; r += GROUP) {
        const size_t count = ranks - r < GROUP ? ranks - r : GROUP;
        const void *s[GROUP] = {0};
        for (size_t i = 0; i < count; i++) {
            s[i] = from[r + i] + at;
        }
        add_sources(n, s, count, true, total);
    }
    sum_finish(n, total, add, to + at);
}

static void sum_bf16(size_t n, size_t ranks, const uint16_t *const *from, bool add, float *to) {
    assert(ranks >= 1);
    for (size_t at = 0; at < n; at += SUM_TILE) {
        size_t here = n - at < SUM_TILE ? n - at : SUM_TILE;
        sum_bf16_tile(at, here, ranks, from, add, to);
    }
}

enum { LINE = 64, SMALL_COPY = 4096 };

/* |lines| whole cache lines; |to| lies on a line. */
static void copy_lines(size_t lines, const unsigned char *from, unsigned char *to) {
#if defined __AVX512F__
    for (size_t i = 0; i < lines; i++, from += LINE, to += LINE) {
        _mm512_stream_si512((void *)to, _mm512_loadu_si512((const void *)from));
    }
#elif defined __AVX2__
    for (size_t i = 0; i < lines; i++, from += LINE, to += LINE) {
        __m256i a = _mm256_loadu_si256((const void *)from);
        __m256i b = _mm256_loadu_si256((const void *)(from + 32));
        _mm256_stream_si256((void *)to, a);
        _mm256_stream_si256((void *)(to + 32), b);
    }
#elif defined __SSE2__
    for (size_t i = 0; i < lines; i++, from += LINE, to += LINE) {
        for (size_t j = 0; j < LINE; j += 16) {
            _mm_stream_si128((void *)(to + j), _mm_loadu_si128((const void *)(from + j)));
        }
    }
#else
    memcpy(to, from, lines * LINE);
#endif
#if defined __SSE2__
    _mm_sfence(); /* other threads and processes see the data when they see what we publish next */
#endif
}

static void copy(size_t bytes, const void *from, void *to) {
    if (bytes < SMALL_COPY) {
        if (bytes) {
            memcpy(to, from, bytes);
        }
        return;
    }
    const unsigned char *f = from;
    unsigned char *t = to;
    size_t head = (LINE - (uintptr_t)t % LINE) % LINE;
    size_t lines = (bytes - head) / LINE;
    size_t done = head + lines * LINE;
    memcpy(t, f, head);
    copy_lines(lines, f + head, t + head);
    memcpy(t + done, f + done, bytes - done);
}

static void add_squares(size_t n, const float *x, double *lane) {
    for (size_t j = 0; j < n; j++) {
        lane[j] += (double)x[j] * (double)x[j]; /* the product is exact: 48 bits */
    }
}

static double sum_squares(size_t n, const float *x) {
    assert(n <= NORM_BLOCK);
    double lane[NORM_LANES] = {0};
    size_t at = 0;
    for (; at + NORM_LANES <= n; at += NORM_LANES) {
        add_squares(NORM_LANES, x + at, lane);
    }
    add_squares(n - at, x + at, lane);
    for (size_t width = NORM_LANES / 2; width >= 1; width /= 2) {
        for (size_t j = 0; j < width; j++) {
            lane[j] += lane[j + width];
        }
    }
    return lane[0] == lane[0] ? lane[0] : (double)NAN;
}

static uint64_t hash(uint64_t first, size_t n, const float *x) {
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        total += hash_element(first + i, bits);
    }
    return total;
}

#define TEXT2(isa) #isa
#define TEXT(isa) TEXT2(isa)

extern const struct kernels VARIANT(kernels); /* declared for the others in select.c */
const struct kernels VARIANT(kernels) = {
    .isa = TEXT(KERNELS_ISA),
    .update = {[OPTIMIZER_ADAMW] = VARIANT(update_adamw),
               [OPTIMIZER_ADAM] = VARIANT(update_adam),
               [OPTIMIZER_SGD] = VARIANT(update_sgd),
               [OPTIMIZER_LION] = VARIANT(update_lion)},
    .to_bf16 = VARIANT(to_bf16),
    .from_bf16 = VARIANT(from_bf16),
    .to_fp16 = VARIANT(to_fp16),
    .from_fp16 = VARIANT(from_fp16),
    .sum = sum,
    .sum_bf16 = sum_bf16,
    .copy = copy,
    .sum_squares = sum_squares,
    .hash = hash,
};
