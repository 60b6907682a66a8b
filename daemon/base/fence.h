/* The fence (design §8): names one try at one step. It is on every message, slot tag and record; a
 * receiver with a higher one refuses. */
#ifndef ZD_BASE_FENCE_H
#define ZD_BASE_FENCE_H

#include <stdbool.h>
#include <stdint.h>

struct fence {
    uint64_t generation, step, attempt; /* attempt from 1 */
};

/* Generation first, then step, then attempt: negative, 0 or positive. */
static inline int fence_compare(const struct fence *a, const struct fence *b) {
    if (a->generation != b->generation) {
        return a->generation < b->generation ? -1 : 1;
    }
    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return a->attempt == b->attempt ? 0 : a->attempt < b->attempt ? -1 : 1;
}

static inline bool fence_equal(const struct fence *a, const struct fence *b) {
    return fence_compare(a, b) == 0;
}

#endif
