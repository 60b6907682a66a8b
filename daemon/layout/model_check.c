/* model_check: everything about a registered model that needs no world size, before any of it is
 * used. Plans have their own file. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "layout/model_inner.h"

static int check_strategy(enum strategy s, struct err *e) {
    switch (s) {
    case STRATEGY_DDP:
    case STRATEGY_ZERO2:
    case STRATEGY_ZERO3:
        return 0;
    case STRATEGY_ZERO1:
    case STRATEGY_HYBRID_SHARD:
    case STRATEGY_HYBRID_ZERO2:
        return err_set(e, ST_UNIMPLEMENTED,
                       "strategy %s is not built in this version: use ddp, zero2 or zero3",
                       strategy_name(s));
    case STRATEGY_NONE:
        break;
    }
    return err_set(e, ST_INVALID_ARGUMENT, "unknown strategy (number %d): use ddp, zero2 or zero3",
                   (int)s);
}

static int check_numbers(const struct model *m, struct err *e) {
    const struct adamw_options *o = &m->adamw;
    if (m->param_dtype != DTYPE_FP32 && m->param_dtype != DTYPE_BF16) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "unknown dtype of parameters (number %d): use fp32 or bf16",
                       (int)m->param_dtype);
    }
    if (m->micro_batches < 1 || m->micro_batches > MODEL_MAX_MICRO_BATCHES) {
        return err_set(e, ST_INVALID_ARGUMENT, "%" PRIu32 " micro-batches: must be 1 to %d",
                       m->micro_batches, MODEL_MAX_MICRO_BATCHES);
    }
    if (!(o->beta1 >= 0 && o->beta1 < 1)) {
        return err_set(e, ST_INVALID_ARGUMENT, "beta1 %g: must be in [0, 1)", o->beta1);
    }
    if (!(o->beta2 >= 0 && o->beta2 < 1)) {
        return err_set(e, ST_INVALID_ARGUMENT, "beta2 %g: must be in [0, 1)", o->beta2);
    }
    if (!(isfinite(o->epsilon) && o->epsilon > 0)) {
        return err_set(e, ST_INVALID_ARGUMENT, "epsilon %g: must be finite and above 0",
                       o->epsilon);
    }
    if (!(isfinite(o->weight_decay) && o->weight_decay >= 0)) {
        return err_set(e, ST_INVALID_ARGUMENT, "weight decay %g: must be finite and at least 0",
                       o->weight_decay);
    }
    return 0;
}

/* False: over MODEL_MAX_ELEMENTS. A dimension of 0 makes it 0, whatever the others are. */
static bool product(const struct tensor *t, uint64_t *elements) {
    uint64_t n = 1;
    bool fits = true;
    for (uint32_t i = 0; i < t->dims; i++) {
        if (t->shape[i] == 0) {
            *elements = 0;
            return true;
        }
        fits = fits && !__builtin_mul_overflow(n, t->shape[i], &n) && n <= MODEL_MAX_ELEMENTS;
    }
    *elements = n;
    return fits;
}

static int check_tensor(struct tensor *t, struct err *e) {
    if (!product(t, &t->elements)) {
        char shape[SHAPE_TEXT];
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%s\" of shape %s has more than %" PRIu64 " elements", t->name,
                       shape_text(t, shape), MODEL_MAX_ELEMENTS);
    }
    if (!(isfinite(t->decay_multiplier) && t->decay_multiplier >= 0)) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%s\": weight decay multiplier %g must be finite and at least 0",
                       t->name, (double)t->decay_multiplier);
    }
    return 0;
}

/* By name, equal names in order of registration (they lie in one array). */
static int by_name(const void *a, const void *b) {
    const char *const *x = a, *const *y = b; /* the name is the first member of both structs */
    int order = strcmp(*x, *y);
    return order ? order : (*x > *y) - (*x < *y);
}

/* The first two equal names of |count| structs of |size| bytes that begin with their name. */
static bool find_twins(const void *array, size_t count, size_t size, size_t *a, size_t *b) {
    const char *base = array;
    const char **names = mem_zeroed(count, sizeof *names);
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        names[i] = base + i * size;
    }
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 1; i < count && !found; i++) {
        if (!strcmp(names[i - 1], names[i])) {
            *a = (size_t)(names[i - 1] - base) / size;
            *b = (size_t)(names[i] - base) / size;
            found = true;
        }
    }
    free(names);
    return found;
}

static const struct unit *unit_of(const struct model *m, size_t tensor) {
    size_t u = 0;
    while (tensor >= m->units[u].first + m->units[u].tensors) {
        u++;
    }
    return &m->units[u];
}

static int check_unique(const struct model *m, struct err *e) {
    size_t a, b;
    if (find_twins(m->units, m->unit_count, sizeof *m->units, &a, &b)) {
        return err_set(e, ST_INVALID_ARGUMENT, "units %zu and %zu have the same name \"%s\"", a, b,
                       m->units[a].name);
    }
    if (!find_twins(m->tensors, m->tensor_count, sizeof *m->tensors, &a, &b)) {
        return 0;
    }
    const struct unit *of_a = unit_of(m, a), *of_b = unit_of(m, b);
    if (of_a == of_b) {
        return err_set(e, ST_INVALID_ARGUMENT, "unit \"%.90s\" has two tensors \"%.127s\"",
                       of_a->name, m->tensors[a].name);
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "tensor \"%.120s\" is in unit \"%.70s\" and in unit \"%.70s\"",
                   m->tensors[a].name, of_a->name, of_b->name);
}

int model_check(struct model *m, struct err *e) {
    int rc = check_strategy(m->strategy, e);
    if (!rc) {
        rc = check_numbers(m, e);
    }
    if (!rc && !m->unit_count) {
        rc = err_set(e, ST_INVALID_ARGUMENT, "the model has no unit");
    }
    for (size_t i = 0; i < m->tensor_count && !rc; i++) {
        rc = check_tensor(&m->tensors[i], e);
    }
    if (!rc) {
        rc = check_unique(m, e);
    }
    return rc ? rc : model_check_plans(m, e);
}
