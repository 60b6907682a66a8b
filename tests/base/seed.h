/* Where a test's randomness starts: $ZEROD_SEED, else the clock; printed, so that a run can be
 * repeated. tests/run sets one, so that what passes on one machine passes on another. */
#ifndef ZD_TESTS_SEED_H
#define ZD_TESTS_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

static inline uint64_t test_seed(const char *test) {
    const char *given = getenv("ZEROD_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)clock_ns();
    printf("%s: ZEROD_SEED=%llu\n", test, (unsigned long long)seed);
    (void)fflush(stdout);
    return seed;
}

#endif
