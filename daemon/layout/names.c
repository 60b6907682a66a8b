/* Names of strategies and dtypes, as flags, messages and files spell them. */
#include <string.h>

#include "layout/model.h"

static const char *const strategies[] = {
    [STRATEGY_NONE] = "none",
    [STRATEGY_DDP] = "ddp",
    [STRATEGY_ZERO1] = "zero1",
    [STRATEGY_ZERO2] = "zero2",
    [STRATEGY_ZERO3] = "zero3",
    [STRATEGY_HYBRID_SHARD] = "hybrid_shard",
    [STRATEGY_HYBRID_ZERO2] = "hybrid_zero2",
};

enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

const char *strategy_name(enum strategy s) {
    return (unsigned)s < STRATEGIES ? strategies[s] : "unknown";
}

enum strategy strategy_parse(const char *s) {
    static const struct {
        const char *word; /* PyTorch's */
        enum strategy strategy;
    } others[] = {
        {"full_shard", STRATEGY_ZERO3},
        {"shard_grad_op", STRATEGY_ZERO2},
        {"no_shard", STRATEGY_DDP},
        {"_hybrid_shard_zero2", STRATEGY_HYBRID_ZERO2},
    };
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (!strcmp(s, others[i].word)) {
            return others[i].strategy;
        }
    }
    for (unsigned i = STRATEGY_NONE + 1; i < STRATEGIES; i++) {
        if (!strcmp(s, strategies[i])) {
            return (enum strategy)i;
        }
    }
    return STRATEGY_NONE;
}

enum strategy strategy_without_reshard(enum strategy s) {
    switch (s) {
    case STRATEGY_ZERO3:
        return STRATEGY_ZERO2;
    case STRATEGY_HYBRID_SHARD:
        return STRATEGY_HYBRID_ZERO2;
    default:
        return s; /* its parameters are replicated anyway */
    }
}

const char *dtype_name(enum dtype d) {
    switch (d) {
    case DTYPE_NONE:
        return "none";
    case DTYPE_FP32:
        return "fp32";
    case DTYPE_BF16:
        return "bf16";
    case DTYPE_FP16:
        return "fp16";
    }
    return "unknown";
}

enum dtype dtype_parse(const char *s) {
    for (enum dtype d = DTYPE_FP32; d <= DTYPE_FP16; d++) {
        if (!strcmp(s, dtype_name(d))) {
            return d;
        }
    }
    return DTYPE_NONE;
}

size_t dtype_bytes(enum dtype d) {
    switch (d) {
    case DTYPE_FP32:
        return 4;
    case DTYPE_BF16:
    case DTYPE_FP16:
        return 2;
    case DTYPE_NONE:
        break;
    }
    return 0;
}
