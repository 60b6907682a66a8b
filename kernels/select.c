/* Which set of kernels runs here: asks the CPU (and, through it, the operating system) once per
 * call; nothing is cached, callers keep the pointer. */
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

extern const struct kernels kernels_plain;

#if defined __x86_64__
extern const struct kernels kernels_avx2, kernels_avx512;

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

size_t kernels_available(const struct kernels *list[3]) {
    size_t n = 0;
    list[n++] = &kernels_plain;
#if defined __x86_64__
    if (has_avx2()) {
        list[n++] = &kernels_avx2;
    }
    if (has_avx512()) {
        list[n++] = &kernels_avx512;
    }
#endif
    return n;
}

static bool is_known(const char *isa) {
    return !strcmp(isa, "plain") || !strcmp(isa, "avx2") || !strcmp(isa, "avx512");
}

int kernels_select(const char *isa, const struct kernels **k, struct err *e) {
    const struct kernels *list[3];
    size_t n = kernels_available(list);
    if (!isa || !*isa) {
        isa = getenv("ZEROD_ISA");
    }
    if (!isa || !*isa) {
        *k = list[n - 1];
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(isa, list[i]->isa)) {
            *k = list[i];
            return 0;
        }
    }
    if (is_known(isa)) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "instruction set %s: this CPU lacks it; its best is %s", isa,
                       list[n - 1]->isa);
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "instruction set \"%.64s\": known are plain, avx2 and avx512", isa);
}

double kernels_norm(const struct kernels *k, size_t n, const float *x) {
    double total = 0;
    for (size_t at = 0; at < n; at += NORM_BLOCK) {
        total += k->sum_squares(n - at < NORM_BLOCK ? n - at : NORM_BLOCK, x + at);
    }
    return total;
}
