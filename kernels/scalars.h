/* The numbers of a step that are computed once, in fp64, and carried by the decision (design §8,
 * §14): the clipping multiplier and AdamW's bias corrections. Pure; the coordinator and the
 * stand-alone trainer call the same functions, so both get the same bits. */
#ifndef ZD_KERNELS_SCALARS_H
#define ZD_KERNELS_SCALARS_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Optimizer constants as registered. */
struct adamw_options {
    double beta1, beta2, epsilon, weight_decay;
};

struct step_scalars {
    double grad_norm;  /* of the averaged gradient, before clipping */
    float multiplier;  /* min(1, clip / (norm + 1e-6)) / divisor, rounded once */
    float decay;       /* -lr * weight_decay */
    float step_size;   /* -lr / (1 - beta1^t) */
    float inv_sqrt_c2; /* 1 / sqrt(1 - beta2^t) */
};

/* |sum_squares|: of the summed (not averaged) gradient, all ranks added in rank order. |divisor|:
 * what the sum is divided by (sum of weights times loss scale), > 0. |clip| 0: none. |t| from 1.
 * Powers by repeated squaring, so that no libm is involved but sqrt. */
struct step_scalars step_scalars(const struct adamw_options *o, double sum_squares, double divisor,
                                 double clip, double lr, uint64_t t);

/* The update's numbers for a tensor with this weight-decay multiplier. */
struct adamw adamw_numbers(const struct adamw_options *o, const struct step_scalars *s,
                           float decay_multiplier);

#endif
