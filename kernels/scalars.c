/* Optimizer constants, and a step's numbers from them (scalars.h). */
#include "kernels/scalars.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- constants ---- */

struct optimizer_options optimizer_defaults(void) {
    return (struct optimizer_options){
        .kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
}

static const char *const names[OPTIMIZERS] = {
    [OPTIMIZER_ADAMW] = "adamw",
    [OPTIMIZER_ADAM] = "adam",
    [OPTIMIZER_SGD] = "sgd",
    [OPTIMIZER_LION] = "lion",
};

static bool is_known(enum optimizer kind) {
    return kind > OPTIMIZER_NONE && kind < OPTIMIZERS;
}

const char *optimizer_name(enum optimizer kind) {
    return is_known(kind) ? names[kind] : "none";
}

enum optimizer optimizer_parse(const char *s) {
    for (enum optimizer kind = OPTIMIZER_NONE + 1; kind < OPTIMIZERS; kind++) {
        if (strcmp(s, names[kind]) == 0) {
            return kind;
        }
    }
    return OPTIMIZER_NONE;
}

static bool has_epsilon(enum optimizer kind) {
    return kind == OPTIMIZER_ADAMW || kind == OPTIMIZER_ADAM;
}

static int fraction(enum optimizer kind, const char *what, double x, struct err *e) {
    if (!(x >= 0 && x < 1)) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %s is %g, it must be in [0, 1)", names[kind],
                       what, x);
    }
    return 0;
}

static int not_negative(enum optimizer kind, const char *what, double x, struct err *e) {
    if (!(x >= 0)) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %s is %g, it must not be negative", names[kind],
                       what, x);
    }
    return 0;
}

static int check_sgd(const struct optimizer_options *o, struct err *e) {
    int code = fraction(o->kind, "momentum", o->momentum, e);
    if (code) {
        return code;
    }
    if (o->momentum > 0 && !((float)o->momentum > 0)) {
        return err_set(e, ST_INVALID_ARGUMENT, "sgd: momentum is %g, which is 0 in fp32",
                       o->momentum);
    }
    if (o->nesterov && o->momentum == 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "sgd: nesterov needs a momentum, which is 0");
    }
    return 0;
}

static int check_betas(const struct optimizer_options *o, struct err *e) {
    int code = fraction(o->kind, "beta1", o->beta1, e);
    code = code ? code : fraction(o->kind, "beta2", o->beta2, e);
    if (code == 0 && has_epsilon(o->kind) && !(o->epsilon > 0)) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s: epsilon is %g, it must be above 0",
                       names[o->kind], o->epsilon);
    }
    return code;
}

/* Also of the constants that this kind leaves unused: two ranks' nan would differ for ever. */
static int all_finite(const struct optimizer_options *o, struct err *e) {
    const struct {
        const char *what;
        double x;
    } reals[] = {{"beta1", o->beta1},       {"beta2", o->beta2},
                 {"epsilon", o->epsilon},   {"weight decay", o->weight_decay},
                 {"momentum", o->momentum}, {"clip value", o->clip_value}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        if (!isfinite(reals[i].x)) {
            return err_set(e, ST_INVALID_ARGUMENT, "%s: %s is %g, it must be finite",
                           names[o->kind], reals[i].what, reals[i].x);
        }
    }
    return 0;
}

int optimizer_check(const struct optimizer_options *o, struct err *e) {
    if (!is_known(o->kind)) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "optimizer %d: known are 1 adamw, 2 adam, 3 sgd and 4 lion", (int)o->kind);
    }
    int code = all_finite(o, e);
    if (code == 0) {
        code = o->kind == OPTIMIZER_SGD ? check_sgd(o, e) : check_betas(o, e);
    }
    code = code ? code : not_negative(o->kind, "weight decay", o->weight_decay, e);
    return code ? code : not_negative(o->kind, "clip value", o->clip_value, e);
}

unsigned optimizer_states(const struct optimizer_options *o) {
    if (has_epsilon(o->kind)) {
        return 2;
    }
    return o->kind == OPTIMIZER_LION || (o->kind == OPTIMIZER_SGD && o->momentum > 0);
}

/* ---- a step ---- */

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

static bool is_decoupled(enum optimizer kind) {
    return kind == OPTIMIZER_ADAMW || kind == OPTIMIZER_LION;
}

struct step_scalars step_scalars(const struct optimizer_options *o, double sum_squares,
                                 double divisor, double clip, double lr, uint64_t t) {
    assert(divisor > 0 && t >= 1);
    const double norm = sqrt(sum_squares) / divisor;
    const bool corrected = has_epsilon(o->kind);
    return (struct step_scalars){
        .grad_norm = norm,
        .multiplier = (float)(clipping(clip, norm) / divisor),
        .decay = is_decoupled(o->kind) ? (float)(-lr * o->weight_decay) : 0,
        .step_size = corrected ? (float)(-lr / (1 - power(o->beta1, t))) : (float)-lr,
        .inv_sqrt_c2 = corrected ? (float)(1 / sqrt(1 - power(o->beta2, t))) : 1,
        .first = t == 1,
    };
}

struct update_numbers update_numbers(const struct optimizer_options *o,
                                     const struct step_scalars *s, float decay_multiplier,
                                     float lr_multiplier) {
    const float l2 = is_decoupled(o->kind) ? 0 : (float)o->weight_decay;
    return (struct update_numbers){
        .multiplier = s->multiplier,
        .clip_value = (float)o->clip_value,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .one_minus_b1 = (float)(1 - o->beta1),
        .one_minus_b2 = (float)(1 - o->beta2),
        .epsilon = (float)o->epsilon,
        .decay = s->decay * decay_multiplier * lr_multiplier,
        .l2 = l2 * decay_multiplier,
        .step_size = s->step_size * lr_multiplier,
        .inv_sqrt_c2 = s->inv_sqrt_c2,
        .momentum = (float)o->momentum,
        .nesterov = o->nesterov,
        .first = s->first,
    };
}
