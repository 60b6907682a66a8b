/* The numbers of a step that are computed once, in fp64, and carried by the decision (design §8,
 * §14): clipping, bias corrections, the loss scale. Pure; the coordinator and the stand-alone
 * trainer call the same functions, so both get the same bits. */
#ifndef ZD_KERNELS_SCALARS_H
#define ZD_KERNELS_SCALARS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* Optimizer constants as registered. */
struct optimizer_options {
    enum optimizer kind;
    double beta1, beta2, epsilon; /* AdamW, Adam; Lion: beta1, beta2 */
    double weight_decay;          /* decoupled (AdamW, Lion) or added to the gradient (Adam, SGD) */
    double momentum;              /* SGD; 0: none, and no state */
    bool nesterov;                /* SGD with momentum */
    double clip_value;            /* each averaged gradient is held within +- this; 0: not */
};

/* AdamW with betas 0.9, 0.95, epsilon 1e-8, no decay. */
struct optimizer_options optimizer_defaults(void);
/* INVALID_ARGUMENT naming the constant, its value and its limits: all finite; betas in [0, 1);
 * epsilon > 0 where it is used; momentum in [0, 1), and none too small for fp32; nesterov needs
 * momentum; the rest >= 0. Constants that the optimizer has no use for are not looked at. */
int optimizer_check(const struct optimizer_options *o, struct err *e);
/* fp32 states beside the master: 2 AdamW and Adam, 1 Lion and SGD with momentum, 0 SGD without.
 * Bytes of optimizer state an element: 4 * (1 + this). */
unsigned optimizer_states(const struct optimizer_options *o);
const char *optimizer_name(enum optimizer kind); /* "adamw" */
enum optimizer optimizer_parse(const char *s);   /* OPTIMIZER_NONE: unknown */

struct step_scalars {
    double grad_norm;  /* of the averaged (and unscaled) gradient, before clipping */
    float multiplier;  /* min(1, clip / (norm + 1e-6)) / divisor, rounded once */
    float decay;       /* AdamW, Lion: -lr * weight_decay */
    float step_size;   /* AdamW, Adam: -lr / (1 - beta1^t); SGD, Lion: -lr */
    float inv_sqrt_c2; /* AdamW, Adam: 1 / sqrt(1 - beta2^t); else 1 */
    bool first;        /* t is 1: SGD's momentum starts as the gradient itself */
};

/* |sum_squares|: of the summed (not averaged) gradient, all ranks added in rank order. |divisor|:
 * what the sum is divided by (sum of weights, or the registered divisor, times the loss scale), >
 * 0. |clip| 0: none. |t| from 1. Powers by repeated squaring, so that no libm is involved but sqrt.
 */
struct step_scalars step_scalars(const struct optimizer_options *o, double sum_squares,
                                 double divisor, double clip, double lr, uint64_t t);

/* The update's numbers for a tensor with these multipliers of weight decay and learning rate:
 * step_size and decay times lr_multiplier, decay and l2 times decay_multiplier, in fp32; 1 changes
 * no bit. */
struct update_numbers update_numbers(const struct optimizer_options *o,
                                     const struct step_scalars *s, float decay_multiplier,
                                     float lr_multiplier);

/* ---- loss scaling (fp16) ---- */

/* Dynamic: the scale starts at |start|. A step that is not finite uses up one of |hysteresis|; the
 * step that uses up the last, and each one after it, divides the scale by |factor|, but not to
 * below |floor|: at the floor that is an error. |window| good steps in a row multiply it by
 * |factor| (while fp32 can hold that) and restore the hysteresis. So hysteresis 2 is DeepSpeed's
 * default, and hysteresis 1 with a tiny floor is PyTorch's GradScaler. */
struct loss_scaling {
    bool dynamic;
    double start;    /* also the constant scale when not dynamic; 0 means 1 (65536 when dynamic) */
    double factor;   /* 0 means 2 */
    double floor;    /* 0 means 1 */
    uint32_t window; /* 0 means 1000 */
    uint32_t hysteresis; /* 0 means 2 */
};

/* What a decision carries on to the next. */
struct scale_state {
    double scale;
    uint32_t good;       /* good steps in a row */
    uint32_t hysteresis; /* overflows until the scale falls, that one included; from 1 */
};

/* Fills in what 0 means; INVALID_ARGUMENT naming what is out of range: start and floor > 0, factor
 * > 1, all within fp32; floor <= start when dynamic. Not dynamic: factor, floor, window and
 * hysteresis have no use, and are checked all the same. */
int scaling_check(struct loss_scaling *s, struct err *e);
struct scale_state scaling_start(const struct loss_scaling *s);
/* After a step. False: the floor is reached, |state| is unchanged. Not dynamic: nothing changes. */
bool scaling_next(const struct loss_scaling *s, bool overflow, struct scale_state *state);

#endif
