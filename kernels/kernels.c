/* The kernels of kernels.h in plain C. Compiled once per instruction set with KERNELS_ISA = plain,
 * avx2, avx512, and left to the compiler to vectorise; only the non-temporal stores of copy() have
 * no C and use intrinsics.
 *
 * Same bits everywhere, because every rounding is written down: fmaf where one is meant, no
 * contraction elsewhere, sqrt and division are correctly rounded on every target. Which NaN comes
 * out of two is the one thing that IEEE leaves to the target, so results that are NaN become *the*
 * NaN.
 */
#include "kernels/kernels.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#if defined __SSE2__
#include <immintrin.h>
#endif

#include "base/hash.h"

/* Outputs that equal their inputs are allowed, so restrict would be a lie; what holds is that no
 * iteration reads what another one wrote. Without this the compiler falls back to scalar code for
 * exactly the in-place case. */
#if defined __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

enum {
    SUM_TILE = 1024, /* elements of a sum's running total: 4 KiB, stays in the first cache */
    GROUP = 4,       /* sources that one loop reads */
};

static inline float one_nan(float x) {
    return x == x ? x : NAN;
}

static void adamw(const struct adamw *a, size_t n, const float *g, const float *p, const float *m,
                  const float *v, float *p_out, float *m_out, float *v_out) {
    const struct adamw c = *a; /* a copy: the stores below cannot alias it */
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float gi = g[i] * c.multiplier;
        float mi = fmaf(c.one_minus_b1, gi - m[i], m[i]);
        float vi = fmaf(c.beta2, v[i], c.one_minus_b2 * (gi * gi));
        float den = fmaf(sqrtf(vi), c.inv_sqrt_c2, c.epsilon);
        float pi = fmaf(c.decay, p[i], p[i]);
        pi = fmaf(c.step_size, mi / den, pi);
        p_out[i] = one_nan(pi);
        m_out[i] = one_nan(mi);
        v_out[i] = one_nan(vi);
    }
}

static void to_bf16(size_t n, const float *from, uint16_t *to) {
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &from[i], sizeof u);
        uint32_t nearest = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
        uint32_t quiet = (u >> 16) | 0x40u;
        to[i] = (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : nearest);
    }
}

static void from_bf16(size_t n, const uint16_t *from, float *to) {
    for (size_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)from[i] << 16;
        memcpy(&to[i], &u, sizeof u);
    }
}

/* total += the next |count| sources, in order. Inlined with constants: a loop of its own for each
 * count, reading its sources side by side (one after the other takes half as long again). */
static inline __attribute__((always_inline)) void add_group(size_t n, const float *const *s,
                                                            size_t at, size_t count, float *total) {
    const float *a = s[0] + at, *b = count > 1 ? s[1] + at : a;
    const float *c = count > 2 ? s[2] + at : a, *d = count > 3 ? s[3] + at : a;
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float x = total[i] + a[i];
        x = count > 1 ? x + b[i] : x;
        x = count > 2 ? x + c[i] : x;
        total[i] = count > 3 ? x + d[i] : x;
    }
}

static void add_sources(size_t n, const float *const *s, size_t at, size_t count, float *total) {
    switch (count) {
    case 1:
        add_group(n, s, at, 1, total);
        break;
    case 2:
        add_group(n, s, at, 2, total);
        break;
    case 3:
        add_group(n, s, at, 3, total);
        break;
    default:
        add_group(n, s, at, GROUP, total);
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

/* Any number of ranks, elements [at, at + n) with n <= SUM_TILE: |to| is written last, when every
 * source was read, so it may be one of them. */
static void sum_tile(size_t at, size_t n, size_t ranks, const float *const *from, bool add,
                     float *to) {
    float total[SUM_TILE];
    for (size_t i = 0; i < n; i++) {
        total[i] = -0.0f; /* x + -0 is x, also for both zeros */
    }
    for (size_t r = 0; r < ranks; r += GROUP) {
        add_sources(n, from + r, at, ranks - r < GROUP ? ranks - r : GROUP, total);
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

#define NAME2(isa) kernels_##isa
#define NAME(isa) NAME2(isa)
#define TEXT2(isa) #isa
#define TEXT(isa) TEXT2(isa)

extern const struct kernels NAME(KERNELS_ISA); /* declared for the others in select.c */
const struct kernels NAME(KERNELS_ISA) = {
    .isa = TEXT(KERNELS_ISA),
    .adamw = adamw,
    .to_bf16 = to_bf16,
    .from_bf16 = from_bf16,
    .sum = sum,
    .copy = copy,
    .sum_squares = sum_squares,
    .hash = hash,
};
