/* First values of tensors, counter-based: element i of a tensor is a pure function of (kind, seed,
 * a, b, first + i), so they are the same for every world size, strategy, shard and instruction set.
 * |first| is the element's index in its tensor; the tensor's identity is mixed into |seed| by the
 * caller. Plain C in fp64, no libm but sqrt; speed does not matter (once in a job's life). */
#ifndef ZD_KERNELS_INIT_H
#define ZD_KERNELS_INIT_H

#include <stddef.h>
#include <stdint.h>

void init_constant(size_t n, double value, float *to);
/* [low, high): low + (high - low) * u, u a multiple of 2^-53 in [0, 1), rounded to fp32 (never to
 * high). */
void init_uniform(uint64_t seed, uint64_t first, size_t n, double low, double high, float *to);
/* mean + std * z, z standard normal by an inverse distribution function (accurate to 1e-8),
 * |z| < 8.3. */
void init_normal(uint64_t seed, uint64_t first, size_t n, double mean, double std, float *to);

/* The seed of one tensor: |seed| as registered, |model_start| the index of its first element. */
uint64_t init_seed(uint64_t seed, uint64_t model_start);

#endif
