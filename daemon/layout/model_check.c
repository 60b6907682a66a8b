/* model_check: everything about a registered model that needs no world size, before any of it is
 * used. Names, numbers and plans have their own files. */
#include <inttypes.h>
#include <math.h>

#include "layout/model_inner.h"

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

static int check_multiplier(const struct tensor *t, const char *what, float value, struct err *e) {
    if (isfinite(value) && value >= 0) {
        return 0;
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "tensor \"%s\": %s multiplier %g must be finite and at least 0", t->name, what,
                   (double)value);
}

static int check_init(const struct tensor *t, struct err *e) {
    const struct initializer *i = &t->init;
    switch (i->kind) {
    case INIT_LOADED:
    case INIT_ZEROS:
        return 0;
    case INIT_CONSTANT:
        if (isfinite(i->a)) {
            return 0;
        }
        return err_set(e, ST_INVALID_ARGUMENT, "tensor \"%s\": first value %g must be finite",
                       t->name, i->a);
    case INIT_NORMAL:
        if (isfinite(i->a) && isfinite(i->b) && i->b >= 0) {
            return 0;
        }
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%s\": first values of mean %g and standard deviation %g: both "
                       "must be finite, the second at least 0",
                       t->name, i->a, i->b);
    case INIT_UNIFORM:
        if (isfinite(i->a) && isfinite(i->b) && i->a <= i->b) {
            return 0;
        }
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "tensor \"%s\": first values from %g to %g: both must be finite and in order", t->name,
            i->a, i->b);
    }
    return err_set(e, ST_INVALID_ARGUMENT, "tensor \"%s\": unknown initialiser (number %d)",
                   t->name, (int)i->kind);
}

static int check_tensor(struct tensor *t, struct err *e) {
    if (!product(t, &t->elements)) {
        char shape[SHAPE_TEXT];
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%s\" of shape %s has more than %" PRIu64 " elements", t->name,
                       shape_text(t, shape), MODEL_MAX_ELEMENTS);
    }
    if (t->dtype < DTYPE_NONE || t->dtype > DTYPE_FP16) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor \"%s\": unknown dtype (number %d)", t->name,
                       (int)t->dtype);
    }
    int rc = check_multiplier(t, "weight decay", t->decay_multiplier, e);
    if (!rc) {
        rc = check_multiplier(t, "learning rate", t->lr_multiplier, e);
    }
    return rc ? rc : check_init(t, e);
}

static int check_units(const struct model *m, struct err *e) {
    if (!m->unit_count) {
        return err_set(e, ST_INVALID_ARGUMENT, "the model has no unit");
    }
    for (size_t u = 0; u < m->unit_count; u++) {
        if (!m->units[u].contributions) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "unit \"%s\" has 0 contributions: must be at least 1", m->units[u].name);
        }
    }
    return 0;
}

int model_check(struct model *m, struct err *e) {
    int rc = model_check_numbers(m, e);
    if (!rc) {
        rc = check_units(m, e);
    }
    for (size_t i = 0; i < m->tensor_count && !rc; i++) {
        rc = check_tensor(&m->tensors[i], e);
    }
    if (!rc) {
        rc = model_check_names(m, e);
    }
    return rc ? rc : model_check_plans(m, e);
}

bool model_unit_may_be_absent(const struct model *m, size_t unit) {
    const struct unit *u = &m->units[unit];
    bool any = false;
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (tensor_is_trainable(t) && !t->absent_ok) {
            return false;
        }
        any = any || tensor_is_trainable(t);
    }
    return any;
}

bool model_unit_is_loaded(const struct model *m, size_t unit) {
    const struct unit *u = &m->units[unit];
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        if (tensor_has_place(&m->tensors[i]) && m->tensors[i].init.kind == INIT_LOADED) {
            return true;
        }
    }
    return false;
}
