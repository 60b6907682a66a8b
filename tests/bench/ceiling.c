/* What memory gives to the simplest loops. Each is compiled for plain x86-64 and for AVX2 and
 * chosen at run time; wider vectors change nothing once the data is larger than the caches. */
#include "tests/bench/table.h"

#define BODY_MULTIPLY                                                                              \
    for (size_t i = 0; i < n; i++) {                                                               \
        x[i] *= by;                                                                                \
    }

#define BODY_READ                                                                                  \
    uint64_t total = 0;                                                                            \
    for (size_t i = 0; i < n; i++) {                                                               \
        total += words[i];                                                                         \
    }                                                                                              \
    return total;

static void multiply_plain(size_t n, float by, float *x) {
    BODY_MULTIPLY
}

static uint64_t read_plain(size_t n, const uint64_t *words) {
    BODY_READ
}

#if defined __x86_64__
__attribute__((target("avx2"))) static void multiply_avx2(size_t n, float by, float *x) {
    BODY_MULTIPLY
}

__attribute__((target("avx2"))) static uint64_t read_avx2(size_t n, const uint64_t *words) {
    BODY_READ
}
#else
#define multiply_avx2 multiply_plain
#define read_avx2 read_plain
#endif

static int has_avx2(void) {
#if defined __x86_64__
    return __builtin_cpu_supports("avx2");
#else
    return 0;
#endif
}

void ceiling_multiply(size_t n, float by, float *x) {
    (has_avx2() ? multiply_avx2 : multiply_plain)(n, by, x);
}

uint64_t ceiling_read(size_t n, const uint64_t *words) {
    return (has_avx2() ? read_avx2 : read_plain)(n, words);
}
