/* Loops over the rows of a matrix: everything in the layers that is no matrix product.
 *
 * Plain C, compiled once per instruction set (rows.c) and chosen at run time; every variant gives
 * the same bits: no fused multiply-add, no libm where results could differ, sums in 16 lanes
 * (element i joins lane i mod 16) that a fixed tree folds. Matrices are row major and dense, shapes
 * are [rows, columns]. Buffers must not overlap unless a comment allows it.
 */
#ifndef GPT_ROWS_H
#define GPT_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "real.h"

struct rows {
    const char *isa; /* "plain", "avx2", "avx512" */

    /* y[n,c] = bias[c] + add[n,c]; |add| NULL: 0. What a product is then added to. */
    void (*fill)(size_t n, size_t c, const real *bias, const real *add, real *y);
    /* y[n] += x[n] */
    void (*add)(size_t n, const real *x, real *y);
    /* sum[c] = sum over rows of x[n,c], in row order */
    void (*column_sum)(size_t n, size_t c, const real *x, real *sum);

    /* y[n,c] = (x - mean) * rstd * w[c] + b[c], epsilon 1e-5; mean[n] and rstd[n] are kept for the
     * backward pass. */
    void (*layernorm)(size_t n, size_t c, const real *x, const real *w, const real *b, real *y,
                      real *mean, real *rstd);
    /* Adds the input's gradient to dx[n,c]; overwrites dw[c] and db[c]. */
    void (*layernorm_back)(size_t n, size_t c, const real *dy, const real *x, const real *w,
                           const real *mean, const real *rstd, real *dx, real *dw, real *db);

    /* tanh form, y = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3), which equals
     * 0.5 x (1 + tanh u). */
    void (*gelu)(size_t n, const real *x, real *y);
    /* dy[n] *= gelu'(x[n]) */
    void (*gelu_back)(size_t n, const real *x, real *dy);

    /* In place over scores s[t,t]: row i becomes the softmax of its first i + 1 elements, the rest
     * 0. */
    void (*causal_softmax)(size_t t, real *s);
    /* dp[t,t], the gradient of the probabilities p[t,t], becomes the gradient of the scores; what
     * lies above the diagonal becomes 0. */
    void (*causal_softmax_back)(size_t t, const real *p, real *dp);

    /* logits[n,v] become scale * (softmax - one hot of target). Returns the sum of the rows'
     * -log softmax[target], in row order. target[i] < v. */
    double (*cross_entropy)(size_t n, size_t v, const uint8_t *target, real scale, real *logits);

    /* y[n] = exp(x[n]): degree 7 polynomial after taking out powers of 2, relative error below
     * 2.5e-7 in float, libm's in double. Clamped at the ends of float's range: never 0, never
     * infinite; NaN stays NaN. */
    void (*exp)(size_t n, const real *x, real *y);
};

/* The variant of this name (kernels.h names them too), which this CPU must have. NULL: none such.
 */
const struct rows *rows_select(const char *isa);

#endif
