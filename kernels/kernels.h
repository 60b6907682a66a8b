/* Arithmetic on flat ranges: no ranks, no units, no I/O, no allocation.
 *
 * Plain C (kernels.c, update.c, cast.c), compiled once per instruction set and chosen at run time;
 * every variant gives the same bits (design §14: explicit fmaf, -ffp-contract=off, no libm call
 * where results could differ; a result of an update, a sum or sum_squares that is NaN is the one
 * quiet NaN, since which of two NaNs survives is up to the instruction set). Pointers need no
 * alignment beyond their type's, but run fastest on 64 bytes; ranges must not overlap unless a
 * comment allows it.
 */
#ifndef ZD_KERNELS_H
#define ZD_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    NORM_BLOCK = 65536, /* elements that are summed together, see sum_squares */
    NORM_LANES = 256,
    KERNELS_MAX_RANKS = 64, /* sources of one sum */
};

enum optimizer {
    OPTIMIZER_NONE = 0,
    OPTIMIZER_ADAMW = 1,
    OPTIMIZER_ADAM = 2, /* weight decay added to the gradient (L2) */
    OPTIMIZER_SGD = 3,
    OPTIMIZER_LION = 4,
    OPTIMIZERS = 5,
};

enum sum_how {
    SUM_SET,    /* to = sum */
    SUM_ADD,    /* to = to + sum */
    SUM_STREAM, /* to = sum, past the caches: for what is not read again soon */
};

/* An optimizer's numbers for one range of one step; all from the decision (kernels/scalars.h),
 * fp32. */
struct update_numbers {
    float multiplier;   /* of the gradient: clip / divisor */
    float clip_value;   /* then held within +- this; 0: not */
    float beta1, beta2; /* fp32 of the registered values */
    float one_minus_b1; /* fp32 of 1 - beta1 computed in fp64 */
    float one_minus_b2; /* fp32 of 1 - beta2 computed in fp64 */
    float epsilon;
    float decay;     /* AdamW, Lion: -lr * weight decay * both of the tensor's multipliers */
    float l2;        /* Adam, SGD: weight decay * the tensor's multiplier, added to the gradient */
    float step_size; /* -lr / (1 - beta1^t) or -lr, times the tensor's multiplier */
    float inv_sqrt_c2; /* 1 / sqrt(1 - beta2^t) */
    float momentum;
    bool nesterov, first;
};

/* Reads g, p, s1, s2; writes p_out, s1_out, s2_out, each n long; outputs may equal inputs. s1, s2
 * are the optimizer's states (scalars.h: optimizer_states); those it lacks are not touched and may
 * be NULL. */
typedef void update_kernel(const struct update_numbers *u, size_t n, const float *g, const float *p,
                           const float *s1, const float *s2, float *p_out, float *s1_out,
                           float *s2_out);

struct kernels {
    const char *isa; /* "plain", "avx2", "avx512" */

    /* By enum optimizer; [OPTIMIZER_NONE] is NULL. With g' = g * multiplier (one rounding), then
     * clamped to +- clip_value:
     *
     * AdamW (design §14), m in s1, v in s2:
     *   m' = fma(one_minus_b1, g' - m, m);  v' = fma(beta2, v, one_minus_b2 * (g' * g'))
     *   den = fma(sqrt(v'), inv_sqrt_c2, epsilon)
     *   p' = fma(decay, p, p);  p'' = fma(step_size, m' / den, p')
     * Adam: g'' = fma(l2, p, g'), then as AdamW without decay.
     *
     * SGD, g'' = fma(l2, p, g'); with momentum (which is not 0) b in s1:
     *   b' = first ? g'' : fma(momentum, b, g'');  d = nesterov ? fma(momentum, b', g'') : b'
     * and without d = g'';  p' = fma(step_size, d, p)
     *
     * Lion, m in s1:
     *   c = fma(one_minus_b1, g' - m, m);  m' = fma(one_minus_b2, g' - m, m)
     *   p' = fma(decay, p, p);  p'' = p' + step_size * sign(c), where sign(+-0) is 0 */
    update_kernel *update[OPTIMIZERS];

    /* fp32 to bf16, nearest even; NaN stays NaN (quiet). */
    void (*to_bf16)(size_t n, const float *from, uint16_t *to);
    void (*from_bf16)(size_t n, const uint16_t *from, float *to);
    /* fp32 to fp16 (IEEE binary16), nearest even, denormals kept, from 65520 infinity; NaN stays
     * NaN (quiet). */
    void (*to_fp16)(size_t n, const float *from, uint16_t *to);
    void (*from_fp16)(size_t n, const uint16_t *from, float *to);

    /* to[i] = ((from[0][i] + from[1][i]) + from[2][i]) + ..., fp32, in rank order;
     * with SUM_ADD that sum is then added to to[i]. |to| may equal one of the sources.
     * ranks >= 1. */
    void (*sum)(size_t n, size_t ranks, const float *const *from, enum sum_how how, float *to);

    /* The same with bf16 sources, widened; |to| is fp32 and none of them. */
    void (*sum_bf16)(size_t n, size_t ranks, const uint16_t *const *from, enum sum_how how,
                     float *to);

    /* Copy for data that will not be read again soon: non-temporal stores where they exist. */
    void (*copy)(size_t bytes, const void *from, void *to);

    /* Sum of squares in fp64 of x[0, n), n <= NORM_BLOCK, one block: element i joins lane
     * i mod NORM_LANES in ascending order, lanes are added by a fixed binary tree
     * (lane j += lane j + width, width = 128, 64, ..., 1). Non-finite in, non-finite out. */
    double (*sum_squares)(size_t n, const float *x);

    /* Sum mod 2^64 of hash_element(first + i, bits of x[i]) (base/hash.h). */
    uint64_t (*hash)(uint64_t first, size_t n, const float *x);
};

/* The named set ("plain", "avx2", "avx512"); NULL or "" takes the environment's ZEROD_ISA, and
 * without it the best that this CPU has. INVALID_ARGUMENT: no such name. FAILED_PRECONDITION: this
 * CPU lacks it. Static storage. */
int kernels_select(const char *isa, const struct kernels **k, struct err *e);

/* The sets this CPU can run, best last; returns how many (at most 3). */
size_t kernels_available(const struct kernels *list[3]);

/* Sum of squares of a whole shard: blocks of NORM_BLOCK from x[0], added in order (design §14). */
double kernels_norm(const struct kernels *k, size_t n, const float *x);

#endif
