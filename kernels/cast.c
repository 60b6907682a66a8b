/* Between fp32 and the two 16-bit types, in integers, branch-free so that it vectorises; the
 * conversion instructions that some CPUs have would treat NaNs and denormals in their own way.
 * Compiled once per instruction set (variant.h). */
#include <string.h>

#include "kernels/variant.h"

static ALWAYS_INLINE uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static ALWAYS_INLINE float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- bf16: the upper half of an fp32 ---- */

void VARIANT(to_bf16)(size_t n, const float *from, uint16_t *to) {
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = bits_of(from[i]);
        uint32_t nearest = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
        uint32_t quiet = (u >> 16) | 0x40u;
        to[i] = (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : nearest);
    }
}

void VARIANT(from_bf16)(size_t n, const uint16_t *from, float *to) {
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        to[i] = float_of((uint32_t)from[i] << 16);
    }
}

/* ---- fp16: 5 bits of exponent with bias 15, 10 of mantissa ---- */

enum {
    FP16_REBIAS = (127 - 15) << 23, /* between the two biases, in fp32's exponent field */
    FP16_NORMAL = 113 << 23,        /* bits of 2^-14, from where fp16 is normal */
    FP16_OVER = 0x47800000,         /* bits of 2^16: the rounding below reaches it from 65520 */
    FP32_INFINITY = 0x7F800000,
};

/* x >> shift, nearest even; shift from 1 to 31, x < 2^31 */
static ALWAYS_INLINE uint32_t shift_nearest(uint32_t x, uint32_t shift) {
    return (x + (UINT32_C(1) << (shift - 1)) - 1u + ((x >> shift) & 1u)) >> shift;
}

static ALWAYS_INLINE uint32_t fp16_of(uint32_t u) {
    const uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    /* The carry of rounding runs into the exponent as it should, at 65520 into infinity's. */
    const uint32_t normal = shift_nearest((a < FP16_OVER ? a : FP16_OVER) - FP16_REBIAS, 13);
    /* In units of 2^-24, fp16's smallest: the mantissa with its leading bit, moved down. Below
     * 2^-25 the whole of it is gone, and fp32's own denormals are far below that. */
    const uint32_t exponent = a >> 23, mantissa = (a & 0x7FFFFFu) | 0x800000u;
    const uint32_t above = exponent > 101 ? exponent : 101, within = above < 112 ? above : 112;
    const uint32_t denormal = shift_nearest(mantissa, 126 - within);
    const uint32_t nan = 0x7E00u | (a >> 13 & 0x3FFu);
    const uint32_t finite = a < FP16_NORMAL ? denormal : normal;
    return sign | (a > FP32_INFINITY ? nan : finite);
}

void VARIANT(to_fp16)(size_t n, const float *from, uint16_t *to) {
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        to[i] = (uint16_t)fp16_of(bits_of(from[i]));
    }
}

void VARIANT(from_fp16)(size_t n, const uint16_t *from, float *to) {
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        const uint32_t h = from[i], sign = (h & 0x8000u) << 16, a = (h & 0x7FFFu) << 13;
        const uint32_t top = a >= 0x0F800000u ? FP16_REBIAS : 0; /* infinity, NaN: the top again */
        const uint32_t normal = a + FP16_REBIAS + top;
        const uint32_t denormal = bits_of((float)(int32_t)(h & 0x3FFu) * 0x1p-24f); /* exact */
        /* By a mask: a choice would become a branch, and the loop no vector. */
        const uint32_t is_normal = 0u - ((h & 0x7C00u) != 0);
        to[i] = float_of(sign | (normal & is_normal) | (denormal & ~is_normal));
    }
}
