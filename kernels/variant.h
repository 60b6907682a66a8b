/* One instruction set's functions: update.c, cast.c and kernels.c are compiled once for each with
 * KERNELS_ISA = plain, avx2, avx512 and left to the compiler to vectorise. VARIANT(name) is the
 * name that this compilation gives to |name|.
 *
 * Same bits everywhere, because every rounding is written down: fmaf where one is meant, no
 * contraction elsewhere, sqrt and division are correctly rounded on every target. Which NaN comes
 * out of two is the one thing that IEEE leaves to the target, so results that are NaN become *the*
 * NaN.
 */
#ifndef ZD_KERNELS_VARIANT_H
#define ZD_KERNELS_VARIANT_H

#include <math.h>

#include "kernels/kernels.h"

#define VARIANT_JOIN(name, isa) name##_##isa
#define VARIANT_OF(name, isa) VARIANT_JOIN(name, isa)
#define VARIANT(name) VARIANT_OF(name, KERNELS_ISA)

/* Outputs that equal their inputs are allowed, so restrict would be a lie; what holds is that no
 * iteration reads what another one wrote. Without this the compiler falls back to scalar code for
 * exactly the in-place case. */
#if defined __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define NOT_UNROLLED _Pragma("clang loop unroll(disable)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#define NOT_UNROLLED _Pragma("GCC unroll 1")
#endif

/* For a loop that is wanted once for each set of constant arguments. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE float one_nan(float x) {
    return x == x ? x : NAN;
}

/* update.c */
update_kernel VARIANT(update_adamw), VARIANT(update_adam), VARIANT(update_sgd),
    VARIANT(update_lion);

/* cast.c */
void VARIANT(to_bf16)(size_t n, const float *from, uint16_t *to);
void VARIANT(from_bf16)(size_t n, const uint16_t *from, float *to);
void VARIANT(to_fp16)(size_t n, const float *from, uint16_t *to);
void VARIANT(from_fp16)(size_t n, const uint16_t *from, float *to);

#endif
