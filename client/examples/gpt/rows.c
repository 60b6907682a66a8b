/* See rows.h. Compiled per instruction set with -DROWS_TABLE=rows_avx2 -DROWS_ISA="avx2" and so on;
 * all functions are static and reached through that table. Loops are written so that the compiler
 * can vectorise them without being allowed to reorder sums. */
#include "rows.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

static inline real fold_sum(real *lane) {
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t j = 0; j < width; j++) {
            lane[j] += lane[j + width];
        }
    }
    return lane[0];
}

static inline real row_sum(size_t n, const real *restrict x) {
    real lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lane[j] += x[i + j];
        }
    }
    for (size_t j = 0; i + j < n; j++) {
        lane[j] += x[i + j];
    }
    return fold_sum(lane);
}

static inline real row_dot(size_t n, const real *restrict x, const real *restrict y) {
    real lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lane[j] += x[i + j] * y[i + j];
        }
    }
    for (size_t j = 0; i + j < n; j++) {
        lane[j] += x[i + j] * y[i + j];
    }
    return fold_sum(lane);
}

/* n >= 1. A NaN may be lost here; it comes back through the sum of exponentials. */
static inline real row_max(size_t n, const real *restrict x) {
    real lane[LANES];
    for (size_t j = 0; j < LANES; j++) {
        lane[j] = x[0];
    }
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        }
    }
    for (size_t j = 0; i + j < n; j++) {
        lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    }
    for (size_t j = 1; j < LANES; j++) {
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    }
    return lane[0];
}

#ifdef GPT_DOUBLE
static inline real exponential(real x) {
    return exp(x);
}
#else
/* exp(x) = 2^k exp(r), k = round(x / ln 2), |r| <= ln 2 / 2; ln 2 is split so that k * high is
 * exact. */
static inline real exponential(real x) {
    const real high = 0.693359375f, low = -2.12194440e-4f;
    const real round_to_int = 12582912.0f; /* 1.5 * 2^23: adding it leaves no fraction bits */
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const real k = (x * 1.44269504f + round_to_int) - round_to_int;
    const real r = (x - k * high) - k * low;
    real p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* A NaN has no integer: take 2^0, the product stays NaN. */
    const int32_t bits = ((int32_t)(k == k ? k : 0.0f) + 127) * (1 << 23);
    real scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}
#endif

static void rows_exp(size_t n, const real *restrict x, real *restrict y) {
    for (size_t i = 0; i < n; i++) {
        y[i] = exponential(x[i]);
    }
}

static void rows_fill(size_t n, size_t c, const real *restrict bias, const real *restrict add,
                      real *restrict y) {
    for (size_t i = 0; i < n; i++) {
        if (!add) {
            memcpy(y + i * c, bias, c * sizeof *y);
            continue;
        }
        for (size_t j = 0; j < c; j++) {
            y[i * c + j] = bias[j] + add[i * c + j];
        }
    }
}

static void rows_add(size_t n, const real *restrict x, real *restrict y) {
    for (size_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

static void rows_column_sum(size_t n, size_t c, const real *restrict x, real *restrict sum) {
    memset(sum, 0, c * sizeof *sum);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < c; j++) {
            sum[j] += x[i * c + j];
        }
    }
}

static void rows_layernorm(size_t n, size_t c, const real *restrict x, const real *restrict w,
                           const real *restrict b, real *restrict y, real *restrict mean,
                           real *restrict rstd) {
    for (size_t i = 0; i < n; i++) {
        const real *row = x + i * c;
        real *out = y + i * c;
        const real m = row_sum(c, row) / (real)c;
        for (size_t j = 0; j < c; j++) {
            out[j] = row[j] - m;
        }
        const real r = REAL(1.0) / real_sqrt(row_dot(c, out, out) / (real)c + REAL(1e-5));
        for (size_t j = 0; j < c; j++) {
            out[j] = out[j] * r * w[j] + b[j];
        }
        mean[i] = m;
        rstd[i] = r;
    }
}

/* With x^ = (x - mean) rstd and g = dy w: dx += rstd (g - avg(g) - x^ avg(g x^)). */
static void rows_layernorm_back(size_t n, size_t c, const real *restrict dy, const real *restrict x,
                                const real *restrict w, const real *restrict mean,
                                const real *restrict rstd, real *restrict dx, real *restrict dw,
                                real *restrict db) {
#ifdef GPT_PLANTED_SIGN_ERROR /* the gradient check must find this */
    const real sign = REAL(-1.0);
#else
    const real sign = REAL(1.0);
#endif
    memset(dw, 0, c * sizeof *dw);
    memset(db, 0, c * sizeof *db);
    for (size_t i = 0; i < n; i++) {
        const real *d = dy + i * c, *row = x + i * c;
        const real m = mean[i], r = rstd[i];
        const real g_avg = row_dot(c, d, w) / (real)c;
        real lane[LANES] = {0};
        for (size_t j = 0; j < c; j++) {
            const real hat = (row[j] - m) * r;
            dw[j] += d[j] * hat;
            db[j] += d[j];
        }
        size_t j0 = 0;
        for (; j0 + LANES <= c; j0 += LANES) {
            for (size_t k = 0; k < LANES; k++) {
                lane[k] += d[j0 + k] * w[j0 + k] * ((row[j0 + k] - m) * r);
            }
        }
        for (size_t k = 0; j0 + k < c; k++) {
            lane[k] += d[j0 + k] * w[j0 + k] * ((row[j0 + k] - m) * r);
        }
        const real gx_avg = sign * (fold_sum(lane) / (real)c);
        for (size_t j = 0; j < c; j++) {
            dx[i * c + j] += r * ((d[j] * w[j] - g_avg) - (row[j] - m) * r * gx_avg);
        }
    }
}

static const real gelu_2k = REAL(1.5957691216057308); /* 2 sqrt(2/pi) */
static const real gelu_cubic = REAL(0.044715);

static void rows_gelu(size_t n, const real *restrict x, real *restrict y) {
    for (size_t i = 0; i < n; i++) {
        const real v = x[i];
        const real u2 = gelu_2k * (v + gelu_cubic * v * v * v);
        y[i] = v / (REAL(1.0) + exponential(-u2));
    }
}

static void rows_gelu_back(size_t n, const real *restrict x, real *restrict dy) {
    for (size_t i = 0; i < n; i++) {
        const real v = x[i];
        const real u2 = gelu_2k * (v + gelu_cubic * v * v * v);
        const real u2_slope = gelu_2k * (REAL(1.0) + REAL(3.0) * gelu_cubic * v * v);
        const real e = exponential(-u2), s = REAL(1.0) / (REAL(1.0) + e);
        dy[i] *= s + v * (e * s * s) * u2_slope; /* 1 - s = e s, without cancellation */
    }
}

static void rows_causal_softmax(size_t t, real *restrict s) {
    for (size_t i = 0; i < t; i++) {
        real *row = s + i * t;
        const real top = row_max(i + 1, row);
        for (size_t j = 0; j <= i; j++) {
            row[j] = exponential(row[j] - top);
        }
        const real scale = REAL(1.0) / row_sum(i + 1, row);
        for (size_t j = 0; j <= i; j++) {
            row[j] *= scale;
        }
        memset(row + i + 1, 0, (t - i - 1) * sizeof *row);
    }
}

static void rows_causal_softmax_back(size_t t, const real *restrict p, real *restrict dp) {
    for (size_t i = 0; i < t; i++) {
        const real *prob = p + i * t;
        real *row = dp + i * t;
        const real dot = row_dot(i + 1, prob, row);
        for (size_t j = 0; j <= i; j++) {
            row[j] = prob[j] * (row[j] - dot);
        }
        memset(row + i + 1, 0, (t - i - 1) * sizeof *row);
    }
}

static double rows_cross_entropy(size_t n, size_t v, const uint8_t *restrict target, real scale,
                                 real *restrict logits) {
    double loss = 0;
    for (size_t i = 0; i < n; i++) {
        real *row = logits + i * v;
        const real top = row_max(v, row), wanted = row[target[i]];
        for (size_t j = 0; j < v; j++) {
            row[j] = exponential(row[j] - top);
        }
        const real sum = row_sum(v, row);
        loss += log((double)sum) + ((double)top - (double)wanted);
        const real factor = scale / sum;
        for (size_t j = 0; j < v; j++) {
            row[j] *= factor;
        }
        row[target[i]] -= scale;
    }
    return loss;
}

extern const struct rows ROWS_TABLE;
const struct rows ROWS_TABLE = {
    .isa = ROWS_ISA,
    .fill = rows_fill,
    .add = rows_add,
    .column_sum = rows_column_sum,
    .layernorm = rows_layernorm,
    .layernorm_back = rows_layernorm_back,
    .gelu = rows_gelu,
    .gelu_back = rows_gelu_back,
    .causal_softmax = rows_causal_softmax,
    .causal_softmax_back = rows_causal_softmax_back,
    .cross_entropy = rows_cross_entropy,
    .exp = rows_exp,
};
