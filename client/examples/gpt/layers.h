/* The layers that need matrix products or look things up: linear, attention, embedding; forward and
 * backward. Layers of single rows (layer norm, GELU, cross-entropy) are in rows.h.
 *
 * Matrices are row major and dense: w[o,i] is what PyTorch's Linear calls weight. n counts rows,
 * that is tokens: n = batch * t. Products are OpenBLAS's, one for all rows (attention: one per
 * sequence and head). Buffers are the caller's; none may overlap another.
 */
#ifndef GPT_LAYERS_H
#define GPT_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include "rows.h"

/* y[n,o] = x[n,i] w[o,i]^T + bias[o] + add[n,o]; bias and add may be NULL (0); add needs a bias. */
void linear(const struct rows *k, size_t n, size_t i, size_t o, const real *x, const real *w,
            const real *bias, const real *add, real *y);

/* dx[n,i] = dy[n,o] w[o,i], dw[o,i] = dy^T x, dbias[o] = column sums of dy (NULL: none). All are
 * overwritten. */
void linear_back(const struct rows *k, size_t n, size_t i, size_t o, const real *dy, const real *x,
                 const real *w, real *dx, real *dw, real *dbias);

struct attention_shape {
    size_t batch, t, heads, channels; /* channels = heads * d */
};

/* Causal self-attention. qkv[batch*t, 3*channels]: a row holds q, k, v, each [heads, d].
 * p[batch, heads, t, t]: softmax(q k^T / sqrt(d)), kept for the backward pass, 0 above the
 * diagonal. y[batch*t, channels], a row [heads, d]. */
void attention(const struct rows *k, const struct attention_shape *s, const real *qkv, real *p,
               real *y);

/* dqkv is overwritten; tile[t,t] is scratch. */
void attention_back(const struct rows *k, const struct attention_shape *s, const real *dy,
                    const real *qkv, const real *p, real *dqkv, real *tile);

/* y[batch*t, c] = wte[token, c] + wpe[position, c] */
void embed(size_t batch, size_t t, size_t c, const uint8_t *token, const real *wte, const real *wpe,
           real *y);

/* dwte[vocab, c] and dwpe[t, c] are overwritten; tokens are added in order. */
void embed_back(size_t batch, size_t t, size_t c, size_t vocab, const uint8_t *token,
                const real *dy, real *dwte, real *dwpe);

#endif
