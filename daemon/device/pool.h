/* Threads that share one piece of work: the caller and its helpers, which sleep in between. Their
 * number is fixed at the start. One caller at a time. */
#ifndef ZD_DEVICE_POOL_H
#define ZD_DEVICE_POOL_H

#include <stdint.h>

#include "base/err.h"

struct pool;

enum { POOL_MAX_THREADS = 256 };

/* |threads| from 1, the caller included; threads - 1 are started, with all signals blocked.
 * INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
int pool_new(unsigned threads, struct pool **p, struct err *e);
void pool_del(struct pool *p); /* NULL is allowed */

/* Calls part(ctx, i, threads) for i = 0 .. threads - 1, the 0th on the caller's thread, and returns
 * when all have. |threads| is at most the pool's. */
void pool_run(struct pool *p, unsigned threads,
              void (*part)(void *ctx, unsigned thread, unsigned threads), void *ctx);

/* The |thread|th of |threads| shares of [0, n); shares start at multiples of |grain|. */
void pool_share(uint64_t n, uint64_t grain, unsigned thread, unsigned threads, uint64_t *from,
                uint64_t *to);

#endif
