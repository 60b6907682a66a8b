/* Products and sums that stop at the top instead of wrapping round: of sizes from trainers. */
#ifndef ZD_BASE_SATURATE_H
#define ZD_BASE_SATURATE_H

#include <stdint.h>

static inline uint64_t times(uint64_t a, uint64_t b) {
    uint64_t c;
    return __builtin_mul_overflow(a, b, &c) ? UINT64_MAX : c;
}

static inline uint64_t plus(uint64_t a, uint64_t b) {
    uint64_t c;
    return __builtin_add_overflow(a, b, &c) ? UINT64_MAX : c;
}

#endif
