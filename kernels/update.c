/* The optimizers' element-wise updates (kernels.h gives every rounding). What an update may leave
 * out (clamping, momentum) is decided once, outside the loop, so that each loop stays free of
 * branches. Compiled once per instruction set (variant.h). */
#include "kernels/variant.h"

/* Averaged, clipped by the norm, then by value. A NaN passes both comparisons and stays. */
static ALWAYS_INLINE float gradient(const struct update_numbers *c, bool clamp, float g) {
    float x = g * c->multiplier;
    if (clamp) {
        x = x > c->clip_value ? c->clip_value : x;
        x = x < -c->clip_value ? -c->clip_value : x;
    }
    return x;
}

/* ---- AdamW, Adam ---- */

/* |decoupled|: the decay is AdamW's, of the parameter; else Adam's, in the gradient. */
static ALWAYS_INLINE void adam_loop(const struct update_numbers *u, bool decoupled, bool clamp,
                                    size_t n, const float *g, const float *p, const float *m,
                                    const float *v, float *p_out, float *m_out, float *v_out) {
    const struct update_numbers c = *u; /* a copy: the stores below cannot alias it */
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float gi = gradient(&c, clamp, g[i]);
        gi = decoupled ? gi : fmaf(c.l2, p[i], gi);
        float mi = fmaf(c.one_minus_b1, gi - m[i], m[i]);
        float vi = fmaf(c.beta2, v[i], c.one_minus_b2 * (gi * gi));
        float den = fmaf(sqrtf(vi), c.inv_sqrt_c2, c.epsilon);
        float pi = decoupled ? fmaf(c.decay, p[i], p[i]) : p[i];
        pi = fmaf(c.step_size, mi / den, pi);
        p_out[i] = one_nan(pi);
        m_out[i] = one_nan(mi);
        v_out[i] = one_nan(vi);
    }
}

void VARIANT(update_adamw)(const struct update_numbers *u, size_t n, const float *g, const float *p,
                           const float *s1, const float *s2, float *p_out, float *s1_out,
                           float *s2_out) {
    if (u->clip_value > 0) {
        adam_loop(u, true, true, n, g, p, s1, s2, p_out, s1_out, s2_out);
    } else {
        adam_loop(u, true, false, n, g, p, s1, s2, p_out, s1_out, s2_out);
    }
}

void VARIANT(update_adam)(const struct update_numbers *u, size_t n, const float *g, const float *p,
                          const float *s1, const float *s2, float *p_out, float *s1_out,
                          float *s2_out) {
    if (u->clip_value > 0) {
        adam_loop(u, false, true, n, g, p, s1, s2, p_out, s1_out, s2_out);
    } else {
        adam_loop(u, false, false, n, g, p, s1, s2, p_out, s1_out, s2_out);
    }
}

/* ---- SGD ---- */

enum momentum { NO_MOMENTUM, FIRST, MOMENTUM, FIRST_NESTEROV, NESTEROV };

static ALWAYS_INLINE void sgd_loop(const struct update_numbers *u, enum momentum kind, bool clamp,
                                   size_t n, const float *g, const float *p, const float *b,
                                   float *p_out, float *b_out) {
    const struct update_numbers c = *u;
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float gi = fmaf(c.l2, p[i], gradient(&c, clamp, g[i]));
        float bi = kind == MOMENTUM || kind == NESTEROV ? fmaf(c.momentum, b[i], gi) : gi;
        float d = kind == FIRST_NESTEROV || kind == NESTEROV ? fmaf(c.momentum, bi, gi) : bi;
        p_out[i] = one_nan(fmaf(c.step_size, d, p[i]));
        if (kind != NO_MOMENTUM) {
            b_out[i] = one_nan(bi);
        }
    }
}

static ALWAYS_INLINE void sgd(const struct update_numbers *u, bool clamp, size_t n, const float *g,
                              const float *p, const float *b, float *p_out, float *b_out) {
    if (u->momentum == 0) {
        sgd_loop(u, NO_MOMENTUM, clamp, n, g, p, b, p_out, b_out);
    } else if (u->nesterov && u->first) {
        sgd_loop(u, FIRST_NESTEROV, clamp, n, g, p, b, p_out, b_out);
    } else if (u->nesterov) {
        sgd_loop(u, NESTEROV, clamp, n, g, p, b, p_out, b_out);
    } else if (u->first) {
        sgd_loop(u, FIRST, clamp, n, g, p, b, p_out, b_out);
    } else {
        sgd_loop(u, MOMENTUM, clamp, n, g, p, b, p_out, b_out);
    }
}

void VARIANT(update_sgd)(const struct update_numbers *u, size_t n, const float *g, const float *p,
                         const float *s1, const float *s2, float *p_out, float *s1_out,
                         float *s2_out) {
    (void)s2;
    (void)s2_out;
    if (u->clip_value > 0) {
        sgd(u, true, n, g, p, s1, p_out, s1_out);
    } else {
        sgd(u, false, n, g, p, s1, p_out, s1_out);
    }
}

/* ---- Lion ---- */

static ALWAYS_INLINE void lion_loop(const struct update_numbers *u, bool clamp, size_t n,
                                    const float *g, const float *p, const float *m, float *p_out,
                                    float *m_out) {
    const struct update_numbers c = *u;
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float gap = gradient(&c, clamp, g[i]) - m[i];
        float ci = fmaf(c.one_minus_b1, gap, m[i]);
        float sign = (ci > 0 ? 1.0f : 0.0f) - (ci < 0 ? 1.0f : 0.0f);
        float pi = fmaf(c.decay, p[i], p[i]) + c.step_size * sign;
        /* The sign of a NaN is one. (& and not &&: no branch in the loop.) */
        p_out[i] = ((ci == ci) & (pi == pi)) ? pi : NAN;
        m_out[i] = one_nan(fmaf(c.one_minus_b2, gap, m[i]));
    }
}

void VARIANT(update_lion)(const struct update_numbers *u, size_t n, const float *g, const float *p,
                          const float *s1, const float *s2, float *p_out, float *s1_out,
                          float *s2_out) {
    (void)s2;
    (void)s2_out;
    if (u->clip_value > 0) {
        lion_loop(u, true, n, g, p, s1, p_out, s1_out);
    } else {
        lion_loop(u, false, n, g, p, s1, p_out, s1_out);
    }
}
