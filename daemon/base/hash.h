/* mix64: the finaliser of splitmix64, the one mixing function of zerod. param_hash, initial-value
 * checksums and counter-based random numbers are sums or chains of it. Bijective on 64 bits. */
#ifndef ZD_BASE_HASH_H
#define ZD_BASE_HASH_H

#include <stdint.h>

static inline uint64_t mix64(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* The term of one element: |index| is its place in the whole model (registration order, without
 * padding), |bits| the bits of its fp32 value. */
static inline uint64_t hash_element(uint64_t index, uint32_t bits) {
    return mix64(mix64(index) ^ bits);
}

#endif
