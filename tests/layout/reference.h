/* The formulas of design §5, worked out from registered sizes alone: no code of daemon/layout. */
#ifndef ZD_TESTS_LAYOUT_REFERENCE_H
#define ZD_TESTS_LAYOUT_REFERENCE_H

#include "tests/layout/sizes.h"

/* What is laid out together. */
struct kind {
    enum dtype dtype;
    bool frozen;
};

static const struct kind kinds[] = {{DTYPE_FP32, false}, {DTYPE_BF16, false}, {DTYPE_FP16, false},
                                    {DTYPE_FP32, true},  {DTYPE_BF16, true},  {DTYPE_FP16, true}};
enum { ALL_KINDS = sizeof kinds / sizeof kinds[0] };

static inline uint64_t up(uint64_t n, uint64_t to) {
    return n % to ? n + to - n % to : n;
}

static inline bool is_of(const struct model *m, const struct tensor *t, struct kind k) {
    return !t->ignored && !t->alias[0] && t->frozen == k.frozen &&
           (t->dtype ? t->dtype : m->param_dtype) == k.dtype;
}

/* Padded length of a unit's tensors of one kind. */
static inline uint64_t padded_of(const struct model *m, size_t u, struct kind k, unsigned n) {
    uint64_t end = 0;
    for (size_t i = m->units[u].first; i < m->units[u].first + m->units[u].tensors; i++) {
        if (is_of(m, &m->tensors[i], k)) {
            end = up(end, 64) + m->tensors[i].shape[0];
        }
    }
    return up(end, 64 * (uint64_t)n);
}

/* Real elements of share |index| of |shares|: shares are whole blocks of 64, so count by block. */
static inline uint64_t real_of(const struct model *m, size_t u, struct kind k, unsigned n,
                               unsigned index, unsigned shares) {
    uint64_t blocks = padded_of(m, u, k, n) / 64 / shares, block = 0, real = 0;
    for (size_t i = m->units[u].first; i < m->units[u].first + m->units[u].tensors; i++) {
        uint64_t left = is_of(m, &m->tensors[i], k) ? m->tensors[i].shape[0] : 0;
        for (; left; block++) {
            uint64_t here = left < 64 ? left : 64;
            real += block / blocks == index ? here : 0;
            left -= here;
        }
    }
    return real;
}

static inline uint64_t bytes_of(enum dtype d) {
    return d == DTYPE_FP32 ? 4 : 2;
}

/* Into how many shares each state is cut. */
struct cut {
    unsigned params, grads, optimizer;
};

static inline struct cut cut_of(enum strategy s, unsigned n, unsigned shard) {
    const unsigned g = shard ? shard : n;
    switch (s) {
    case STRATEGY_ZERO1:
        return (struct cut){1, 1, n};
    case STRATEGY_ZERO2:
        return (struct cut){1, n, n};
    case STRATEGY_ZERO3:
        return (struct cut){n, n, n};
    case STRATEGY_HYBRID_SHARD:
        return (struct cut){g, g, g};
    case STRATEGY_HYBRID_ZERO2:
        return (struct cut){1, g, g};
    case STRATEGY_DDP:
    case STRATEGY_NONE:
        break;
    }
    return (struct cut){1, 1, 1};
}

static inline bool gathers_shards(enum strategy s) {
    return s == STRATEGY_ZERO3 || s == STRATEGY_HYBRID_SHARD;
}

#endif
