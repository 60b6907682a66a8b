/* See layers.h. Compiles for float and for double (real.h). */
#include "layers.h"

#include <math.h>
#include <string.h>

/* c[rows,columns] = alpha a b + beta c, all row major; ta, tb: that operand is stored transposed.
 * ld*: elements from one stored row to the next. */
struct product {
    CBLAS_TRANSPOSE ta, tb;
    size_t rows, columns, inner;
    size_t lda, ldb, ldc;
    real alpha, beta;
};

static void multiply(const struct product *m, const real *a, const real *b, real *c) {
    real_gemm(CblasRowMajor, m->ta, m->tb, (blasint)m->rows, (blasint)m->columns, (blasint)m->inner,
              m->alpha, a, (blasint)m->lda, b, (blasint)m->ldb, m->beta, c, (blasint)m->ldc);
}

void linear(const struct rows *k, size_t n, size_t i, size_t o, const real *x, const real *w,
            const real *bias, const real *add, real *y) {
    if (bias) {
        k->fill(n, o, bias, add, y);
    }
    const struct product m = {CblasNoTrans, CblasTrans, n, o, i, i, i, o, 1, bias ? 1 : 0};
    multiply(&m, x, w, y);
}

void linear_back(const struct rows *k, size_t n, size_t i, size_t o, const real *dy, const real *x,
                 const real *w, real *dx, real *dw, real *dbias) {
    const struct product to_x = {CblasNoTrans, CblasNoTrans, n, i, o, o, i, i, 1, 0};
    multiply(&to_x, dy, w, dx);
    const struct product to_w = {CblasTrans, CblasNoTrans, o, i, n, o, i, i, 1, 0};
    multiply(&to_w, dy, x, dw);
    if (dbias) {
        k->column_sum(n, o, dy, dbias);
    }
}

void attention(const struct rows *k, const struct attention_shape *s, const real *qkv, real *p,
               real *y) {
    const size_t t = s->t, c = s->channels, d = c / s->heads;
    const real scale = REAL(1.0) / real_sqrt((real)d);
    const struct product scores = {CblasNoTrans, CblasTrans, t, t, d, 3 * c, 3 * c, t, scale, 0};
    const struct product values = {CblasNoTrans, CblasNoTrans, t, d, t, t, 3 * c, c, 1, 0};
    for (size_t b = 0; b < s->batch; b++) {
        for (size_t h = 0; h < s->heads; h++) {
            const real *q = qkv + b * t * 3 * c + h * d; /* rows 3*c apart, [t,d] */
            real *prob = p + (b * s->heads + h) * t * t; /* [t,t] */
            multiply(&scores, q, q + c, prob);
            k->causal_softmax(t, prob);
            multiply(&values, prob, q + 2 * c, y + b * t * c + h * d);
        }
    }
}

void attention_back(const struct rows *k, const struct attention_shape *s, const real *dy,
                    const real *qkv, const real *p, real *dqkv, real *tile) {
    const size_t t = s->t, c = s->channels, d = c / s->heads;
    const real scale = REAL(1.0) / real_sqrt((real)d);
    const struct product to_p = {CblasNoTrans, CblasTrans, t, t, d, c, 3 * c, t, 1, 0};
    const struct product to_v = {CblasTrans, CblasNoTrans, t, d, t, t, c, 3 * c, 1, 0};
    const struct product to_q = {CblasNoTrans, CblasNoTrans, t, d, t, t, 3 * c, 3 * c, scale, 0};
    const struct product to_k = {CblasTrans, CblasNoTrans, t, d, t, t, 3 * c, 3 * c, scale, 0};
    for (size_t b = 0; b < s->batch; b++) {
        for (size_t h = 0; h < s->heads; h++) {
            const size_t at = b * t * 3 * c + h * d;
            const real *q = qkv + at, *key = q + c, *v = q + 2 * c; /* [t,d], rows 3*c apart */
            const real *g = dy + b * t * c + h * d;                 /* [t,d], rows c apart */
            const real *prob = p + (b * s->heads + h) * t * t;      /* [t,t] */
            multiply(&to_v, prob, g, dqkv + at + 2 * c);
            multiply(&to_p, g, v, tile);
            k->causal_softmax_back(t, prob, tile);
            multiply(&to_q, tile, key, dqkv + at);
            multiply(&to_k, tile, q, dqkv + at + c);
        }
    }
}

void embed(size_t batch, size_t t, size_t c, const uint8_t *token, const real *wte, const real *wpe,
           real *y) {
    for (size_t row = 0; row < batch * t; row++) {
        const real *byte = wte + token[row] * c, *place = wpe + row % t * c;
        for (size_t j = 0; j < c; j++) {
            y[row * c + j] = byte[j] + place[j];
        }
    }
}

void embed_back(size_t batch, size_t t, size_t c, size_t vocab, const uint8_t *token,
                const real *dy, real *dwte, real *dwpe) {
    memset(dwte, 0, vocab * c * sizeof *dwte);
    memset(dwpe, 0, t * c * sizeof *dwpe);
    for (size_t row = 0; row < batch * t; row++) {
        real *byte = dwte + token[row] * c, *place = dwpe + row % t * c;
        for (size_t j = 0; j < c; j++) {
            byte[j] += dy[row * c + j];
            place[j] += dy[row * c + j];
        }
    }
}
