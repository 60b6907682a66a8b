/* model_difference's part on what is not about units. */
#include "layout/difference_inner.h"

static int compare_optimizers(const struct pair *p) {
    const struct optimizer_options *a = &p->a->optimizer, *b = &p->b->optimizer;
    const struct {
        const char *what;
        double a, b;
    } reals[] = {
        {"beta1", a->beta1, b->beta1},          {"beta2", a->beta2, b->beta2},
        {"epsilon", a->epsilon, b->epsilon},    {"weight decay", a->weight_decay, b->weight_decay},
        {"momentum", a->momentum, b->momentum}, {"clip value", a->clip_value, b->clip_value},
    };
    int rc = compare_names(p, "optimizer", optimizer_name(a->kind), optimizer_name(b->kind));
    for (size_t i = 0; i < sizeof reals / sizeof *reals && !rc; i++) {
        rc = compare_reals(p, reals[i].what, reals[i].a, reals[i].b);
    }
    return rc ? rc : compare_flags(p, "nesterov", a->nesterov, b->nesterov);
}

static int compare_dtypes(const struct pair *p) {
    const struct model *a = p->a, *b = p->b;
    int rc = compare_names(p, "dtype of parameters", dtype_name(a->param_dtype),
                           dtype_name(b->param_dtype));
    if (!rc) {
        rc = compare_names(p, "dtype of gradients on the wire", dtype_name(a->wire_dtype),
                           dtype_name(b->wire_dtype));
    }
    return rc ? rc
              : compare_names(p, "dtype of kept gradients", dtype_name(a->kept_dtype),
                              dtype_name(b->kept_dtype));
}

static int compare_strategies(const struct pair *p) {
    const struct model *a = p->a, *b = p->b;
    int rc = compare_names(p, "strategy", strategy_name(a->strategy), strategy_name(b->strategy));
    if (!rc && (a->strategy == STRATEGY_HYBRID_SHARD || a->strategy == STRATEGY_HYBRID_ZERO2)) {
        rc = compare_counts(p, "shard size", a->shard_size, b->shard_size);
    }
    return rc;
}

static int compare_scaling(const struct pair *p) {
    const struct loss_scaling *a = &p->a->scaling, *b = &p->b->scaling;
    int rc = compare_flags(p, "dynamic loss scaling", a->dynamic, b->dynamic);
    if (!rc) {
        rc = compare_reals(p, "loss scale at the start", a->start, b->start);
    }
    if (rc || !a->dynamic) {
        return rc;
    }
    rc = compare_reals(p, "loss scale factor", a->factor, b->factor);
    if (!rc) {
        rc = compare_reals(p, "loss scale floor", a->floor, b->floor);
    }
    if (!rc) {
        rc = compare_counts(p, "loss scale window", a->window, b->window);
    }
    return rc ? rc : compare_counts(p, "loss scale hysteresis", a->hysteresis, b->hysteresis);
}

int compare_numbers(const struct pair *p) {
    int rc = compare_optimizers(p);
    if (!rc) {
        rc = compare_dtypes(p);
    }
    if (!rc) {
        rc = compare_strategies(p);
    }
    if (!rc) {
        rc = compare_counts(p, "number of micro-batches", p->a->micro_batches, p->b->micro_batches);
    }
    if (!rc) {
        rc = compare_reals(p, "gradient divisor", p->a->gradient_divisor, p->b->gradient_divisor);
    }
    return rc ? rc : compare_scaling(p);
}
