/* model_check's part on what is not about units: strategy, dtypes, optimizer, loss scaling. */
#include <inttypes.h>
#include <math.h>

#include "layout/model_inner.h"

static int check_strategy(enum strategy s, struct err *e) {
    if (s >= STRATEGY_DDP && s <= STRATEGY_HYBRID_ZERO2) {
        return 0;
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "unknown strategy (number %d): use ddp, zero1, zero2, zero3, hybrid_shard or "
                   "hybrid_zero2",
                   (int)s);
}

static int check_dtypes(const struct model *m, struct err *e) {
    if (m->param_dtype < DTYPE_FP32 || m->param_dtype > DTYPE_FP16) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "unknown dtype of parameters (number %d): use fp32, bf16 or fp16",
                       (int)m->param_dtype);
    }
    if (m->wire_dtype != DTYPE_FP32 && m->wire_dtype != DTYPE_BF16) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "dtype of gradients on the wire is %s (number %d): use fp32 or bf16",
                       dtype_name(m->wire_dtype), (int)m->wire_dtype);
    }
    if (m->kept_dtype != DTYPE_FP32 && m->kept_dtype != DTYPE_BF16) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "dtype of kept gradients is %s (number %d): use fp32 or bf16",
                       dtype_name(m->kept_dtype), (int)m->kept_dtype);
    }
    return 0;
}

/* Small gradients vanish in fp16 unless the loss is scaled; a scale of 1 is none. */
static int check_half(const struct model *m, struct err *e) {
    if (m->scaling.dynamic || m->scaling.start != 1) {
        return 0;
    }
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct tensor *t = &m->tensors[i];
        if (tensor_is_trainable(t) && tensor_dtype(m, t) == DTYPE_FP16) {
            return err_set(
                e, ST_INVALID_ARGUMENT,
                "tensor \"%s\" is gathered as fp16 and there is no loss scaling: its "
                "small gradients would be lost; ask for dynamic loss scaling or use bf16",
                t->name);
        }
    }
    return 0;
}

int model_check_numbers(struct model *m, struct err *e) {
    int rc = check_strategy(m->strategy, e);
    if (!rc) {
        rc = check_dtypes(m, e);
    }
    if (!rc && (m->micro_batches < 1 || m->micro_batches > MODEL_MAX_MICRO_BATCHES)) {
        rc = err_set(e, ST_INVALID_ARGUMENT, "%" PRIu32 " micro-batches: must be 1 to %d",
                     m->micro_batches, MODEL_MAX_MICRO_BATCHES);
    }
    if (!rc && !(isfinite(m->gradient_divisor) && m->gradient_divisor >= 0)) {
        rc = err_set(e, ST_INVALID_ARGUMENT,
                     "gradient divisor %g: must be finite and above 0, or 0 for the mean",
                     m->gradient_divisor);
    }
    if (!rc) {
        rc = optimizer_check(&m->optimizer, e);
    }
    if (!rc) {
        rc = scaling_check(&m->scaling, e);
    }
    return rc ? rc : check_half(m, e);
}
