#include "kernels/scalars.h"

#include <assert.h>
#include <math.h>

/* Squares and multiplies from the lowest bit up: the same roundings on every machine, which pow()
 * does not promise. */
static double power(double base, uint64_t exponent) {
    double result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) {
            result *= base;
        }
        base *= base;
    }
    return result;
}

/* A norm that is no number clips nothing: such a step is skipped, its multiplier never used. */
static double clipping(double clip, double norm) {
    double scale = clip / (norm + 1e-6);
    return clip > 0 && scale < 1 ? scale : 1;
}

struct step_scalars step_scalars(const struct adamw_options *o, double sum_squares, double divisor,
                                 double clip, double lr, uint64_t t) {
    assert(divisor > 0 && t >= 1);
    double norm = sqrt(sum_squares) / divisor;
    return (struct step_scalars){
        .grad_norm = norm,
        .multiplier = (float)(clipping(clip, norm) / divisor),
        .decay = (float)(-lr * o->weight_decay),
        .step_size = (float)(-lr / (1 - power(o->beta1, t))),
        .inv_sqrt_c2 = (float)(1 / sqrt(1 - power(o->beta2, t))),
    };
}

struct adamw adamw_numbers(const struct adamw_options *o, const struct step_scalars *s,
                           float decay_multiplier) {
    return (struct adamw){
        .multiplier = s->multiplier,
        .beta2 = (float)o->beta2,
        .one_minus_b1 = (float)(1 - o->beta1),
        .one_minus_b2 = (float)(1 - o->beta2),
        .epsilon = (float)o->epsilon,
        .decay = s->decay * decay_multiplier,
        .step_size = s->step_size,
        .inv_sqrt_c2 = s->inv_sqrt_c2,
    };
}
