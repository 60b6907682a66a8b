/* What the Python tests of this folder load (ctypes): whole optimizer steps as the daemons compute
 * them, and the fp16 conversions. */
#include <stdlib.h>

#include "kernels/scalars.h"

#define SHIM __attribute__((visibility("default")))

SHIM int shim_steps(const char *isa, const struct optimizer_options *o, double clip, double lr,
                    uint64_t steps, size_t n, const float *g, float *p, float *s1, float *s2);
SHIM int shim_to_fp16(const char *isa, size_t n, const float *from, uint16_t *to);
SHIM int shim_from_fp16(const char *isa, size_t n, const uint16_t *from, float *to);

/* |g|: the gradients of each step, n each. 0, or a negative status. */
int shim_steps(const char *isa, const struct optimizer_options *o, double clip, double lr,
               uint64_t steps, size_t n, const float *g, float *p, float *s1, float *s2) {
    const struct kernels *k;
    struct err e;
    int code = kernels_select(isa, &k, &e);
    code = code ? code : optimizer_check(o, &e);
    for (uint64_t t = 1; code == 0 && t <= steps; t++, g += n) {
        const struct step_scalars s = step_scalars(o, kernels_norm(k, n, g), 1, clip, lr, t);
        const struct update_numbers u = update_numbers(o, &s, 1, 1);
        k->update[o->kind](&u, n, g, p, s1, s2, p, s1, s2);
    }
    return code;
}

int shim_to_fp16(const char *isa, size_t n, const float *from, uint16_t *to) {
    const struct kernels *k;
    struct err e;
    const int code = kernels_select(isa, &k, &e);
    if (code == 0) {
        k->to_fp16(n, from, to);
    }
    return code;
}

int shim_from_fp16(const char *isa, size_t n, const uint16_t *from, float *to) {
    const struct kernels *k;
    struct err e;
    const int code = kernels_select(isa, &k, &e);
    if (code == 0) {
        k->from_fp16(n, from, to);
    }
    return code;
}
