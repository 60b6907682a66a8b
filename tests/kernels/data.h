/* Data for kernel tests: hostile floats from a printed seed, arrays that end exactly where they end
 * (so that a sanitizer sees one element too much), and comparisons by bits. */
#ifndef ZD_TESTS_KERNELS_DATA_H
#define ZD_TESTS_KERNELS_DATA_H

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "tests/base/seed.h"
#include "kernels/kernels.h"

static uint64_t data_state;

static inline uint64_t data_bits(void) {
    return mix64(data_state++);
}

/* Call in each test: Check runs each in a process of its own. */
static inline void data_seed(const char *test) {
    data_state = test_seed(test);
}

static inline uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Ordinary values around 1, of either sign. */
static inline float data_plain(void) {
    float x = (float)((double)(int64_t)data_bits() / 0x1p63);
    return ldexpf(x, (int)(data_bits() % 20) - 12);
}

/* Any bits, edges and ordinary values. */
static inline float data_hostile(void) {
    static const uint32_t edges[] = {
        0x00000000, 0x80000000,                                     /* +-0 */
        0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, /* denormals and their edge */
        0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,             /* largest, infinities */
        0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, /* NaNs, quiet and signalling */
        0x3F7F8000, 0x3F808000, 0x3F818000, 0x7F7F8000,             /* halfway between two bf16 */
    };
    switch (data_bits() % 8) {
    case 0:
        return float_of(edges[data_bits() % (sizeof edges / sizeof edges[0])]);
    case 1:
    case 2:
        return float_of((uint32_t)data_bits());
    default:
        return data_plain();
    }
}

/* |n| floats that begin |shift| elements behind a 64-byte line; free(array.base). */
struct array {
    float *base, *at;
};

static inline struct array array_new(size_t n, size_t shift) {
    struct array a;
    void *p = NULL;
    ck_assert_int_eq(posix_memalign(&p, 64, (n + shift + 1) * sizeof(float)), 0);
    a.base = p;
    a.at = a.base + shift;
    return a;
}

static inline void fill(float *x, size_t n, float (*source)(void)) {
    for (size_t i = 0; i < n; i++) {
        x[i] = source();
    }
}

/* Asserts of Check cost a system call each: only failures get there. */
static inline void same_bits(const char *isa, const char *what, size_t n, const float *got,
                             const float *expected) {
    for (size_t i = 0; i < n; i++) {
        if (bits_of(got[i]) != bits_of(expected[i])) {
            ck_abort_msg("%s: %s[%zu] of %zu is %a (%08x), not %a (%08x)", isa, what, i, n,
                         (double)got[i], bits_of(got[i]), (double)expected[i],
                         bits_of(expected[i]));
        }
    }
}

/* Lengths 0 to 130 and some beyond, odd ones too. */
enum { LENGTHS = 131 + 9, LONGEST = 5003 };

static inline size_t data_length(size_t i) {
    static const size_t more[] = {255, 256, 257, 1023, 1024, 1025, 2048, 4099, LONGEST};
    return i <= 130 ? i : more[i - 131];
}

/* Every set that this CPU has; says which it could not try. */
static inline size_t data_sets(const struct kernels *list[3]) {
    size_t n = kernels_available(list);
    if (n < 3) {
        printf("only %zu of 3 instruction sets: best here is %s\n", n, list[n - 1]->isa);
    }
    return n;
}

#endif
