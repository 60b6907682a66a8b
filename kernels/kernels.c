/* The kernels that run over ranges as a whole: sums over ranks, copies, norms and hashes; and the
 * table of one instruction set. Compiled once for each (variant.h); only non-temporal stores
 * (stream_line) have no C and use intrinsics. */
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

/* ---- stores past the caches ---- */

enum { LINE = 64, LINE_FLOATS = LINE / sizeof(float), SMALL_COPY = 4096 };

/* One whole cache line; |to| lies on one. */
static ALWAYS_INLINE void stream_line(const void *from, void *to) {
#if defined __AVX512F__
    _mm512_stream_si512(to, _mm512_loadu_si512(from));
#elif defined __AVX2__
    const __m256i *f = from;
    __m256i *t = to;
    const __m256i low = _mm256_loadu_si256(f), high = _mm256_loadu_si256(f + 1);
    _mm256_stream_si256(t, low);
    _mm256_stream_si256(t + 1, high);
#elif defined __SSE2__
    const __m128i *f = from;
    __m128i *t = to;
    for (int i = 0; i < 4; i++) {
        _mm_stream_si128(t + i, _mm_loadu_si128(f + i));
    }
#else
    memcpy(to, from, LINE);
#endif
}

/* Other threads and processes see what was streamed when they see what we publish next. */
static ALWAYS_INLINE void stream_end(void) {
#if defined __SSE2__
    _mm_sfence();
#endif
}

/* ---- sums ---- */

/* One pass over a group of sources. In element order: |before| (NULL: this is the first group)
 * plus each of |count| sources. A pass that is |last| adds what is in |to| (SUM_ADD) and makes NaNs
 * one. |to| is written after the element's sources are read, so it may be one of them. */
struct pass {
    const void *const *sources;
    const float *before;
    float *to;
    size_t count;
    bool bf16, last;
    enum sum_how how;
};

static ALWAYS_INLINE float pass_element(const struct pass *p, size_t count, size_t i) {
    const void *const *s = p->sources;
    float x = element(s[0], i, p->bf16);
    x = p->before ? p->before[i] + x : x;
    x = count > 1 ? x + element(s[1], i, p->bf16) : x;
    x = count > 2 ? x + element(s[2], i, p->bf16) : x;
    x = count > 3 ? x + element(s[3], i, p->bf16) : x;
    x = p->how == SUM_ADD ? p->to[i] + x : x;
    return p->last ? one_nan(x) : x;
}

/* Inlined with constants: a loop of its own for each case, reading its sources side by side (one
 * after the other takes half as long again). */
static ALWAYS_INLINE void pass_loop(const struct pass *p, size_t count, size_t n) {
    float *to = p->to;
    if (p->how == SUM_STREAM) {
        for (size_t at = 0; at < n; at += LINE_FLOATS) {
            float line[LINE_FLOATS];
            /* unrolled, GCC 12 finds no loop left to vectorise */
            NOT_UNROLLED
            for (size_t i = 0; i < LINE_FLOATS; i++) {
                line[i] = pass_element(p, count, at + i);
            }
            stream_line(line, to + at);
        }
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        to[i] = pass_element(p, count, i);
    }
}

static ALWAYS_INLINE void pass_counted(const struct pass *p, size_t n) {
    switch (p->count) {
    case 1:
        pass_loop(p, 1, n);
        break;
    case 2:
        pass_loop(p, 2, n);
        break;
    case 3:
        pass_loop(p, 3, n);
        break;
    default:
        pass_loop(p, GROUP, n);
    }
}

static ALWAYS_INLINE void point_at(const void *const *from, size_t count, size_t byte,
                                   const void *sources[GROUP]) {
    for (size_t i = 0; i < count; i++) {
        sources[i] = (const char *)from[i] + byte;
    }
}

/* Elements [at, at + n) with n <= SUM_TILE: one pass for up to GROUP ranks, else a running total
 * and a last pass. */
static ALWAYS_INLINE void sum_tile(size_t at, size_t n, size_t ranks, const void *const *from,
                                   bool bf16, enum sum_how how, float *to) {
    const size_t byte = at * (bf16 ? sizeof(uint16_t) : sizeof(float));
    const void *s[GROUP] = {0};
    float total[SUM_TILE];
    size_t r = GROUP;
    if (ranks <= GROUP) {
        point_at(from, ranks, byte, s);
        pass_counted(&(struct pass){s, NULL, to + at, ranks, bf16, true, how}, n);
        return;
    }
    point_at(from, GROUP, byte, s);
    pass_loop(&(struct pass){s, NULL, total, GROUP, bf16, false, SUM_SET}, GROUP, n);
    for (; ranks - r > GROUP; r += GROUP) {
        point_at(from + r, GROUP, byte, s);
        pass_loop(&(struct pass){s, total, total, GROUP, bf16, false, SUM_SET}, GROUP, n);
    }
    point_at(from + r, ranks - r, byte, s);
    pass_counted(&(struct pass){s, total, to + at, ranks - r, bf16, true, how}, n);
}

static ALWAYS_INLINE void sum_tiles(size_t from_element, size_t to_element, size_t ranks,
                                    const void *const *from, bool bf16, enum sum_how how,
                                    float *to) {
    for (size_t at = from_element; at < to_element; at += SUM_TILE) {
        const size_t n = to_element - at < SUM_TILE ? to_element - at : SUM_TILE;
        sum_tile(at, n, ranks, from, bf16, how, to);
    }
}

/* What lies before and after whole lines of |to| is written as usual. */
static ALWAYS_INLINE void sum_streamed(size_t n, size_t ranks, const void *const *from, bool bf16,
                                       float *to) {
    const size_t past = (uintptr_t)to % LINE / sizeof *to;
    const size_t wanted = past ? LINE_FLOATS - past : 0, head = wanted < n ? wanted : n;
    const size_t lines = head + (n - head) / LINE_FLOATS * LINE_FLOATS;
    sum_tiles(0, head, ranks, from, bf16, SUM_SET, to);
    sum_tiles(head, lines, ranks, from, bf16, SUM_STREAM, to);
    sum_tiles(lines, n, ranks, from, bf16, SUM_SET, to);
    stream_end();
}

static ALWAYS_INLINE void sum_any(size_t n, size_t ranks, const void *const *from, bool bf16,
                                  enum sum_how how, float *to) {
    assert(ranks >= 1);
    switch (how) {
    case SUM_STREAM:
        sum_streamed(n, ranks, from, bf16, to);
        break;
    case SUM_ADD:
        sum_tiles(0, n, ranks, from, bf16, SUM_ADD, to);
        break;
    default:
        sum_tiles(0, n, ranks, from, bf16, SUM_SET, to);
    }
}

static void sum(size_t n, size_t ranks, const float *const *from, enum sum_how how, float *to) {
    sum_any(n, ranks, (const void *const *)from, false, how, to);
}

static void sum_bf16(size_t n, size_t ranks, const uint16_t *const *from, enum sum_how how,
                     float *to) {
    sum_any(n, ranks, (const void *const *)from, true, how, to);
}

/* ---- copies ---- */

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
    size_t done = head + (bytes - head) / LINE * LINE;
    memcpy(t, f, head);
    for (size_t at = head; at < done; at += LINE) {
        stream_line(f + at, t + at);
    }
    stream_end();
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
