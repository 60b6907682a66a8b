/* model_difference's part on one tensor. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layout/difference_inner.h"

enum { WHAT = 200 };

const char *shape_text(const struct tensor *t, char text[static SHAPE_TEXT]) {
    size_t n = 0;
    text[n++] = '[';
    for (uint32_t i = 0; i < t->dims && i < MODEL_DIMS; i++) {
        n += (size_t)snprintf(text + n, SHAPE_TEXT - n, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    }
    (void)snprintf(text + n, SHAPE_TEXT - n, "]");
    return text;
}

static const char *init_name(enum init_kind k) {
    switch (k) {
    case INIT_LOADED:
        return "loaded";
    case INIT_ZEROS:
        return "zeros";
    case INIT_CONSTANT:
        return "constant";
    case INIT_NORMAL:
        return "normal";
    case INIT_UNIFORM:
        return "uniform";
    }
    return "unknown";
}

/* "<aspect> of tensor "name"" */
static const char *of_tensor(const char *aspect, const struct tensor *t, char text[static WHAT]) {
    (void)snprintf(text, WHAT, "%s of tensor \"%.127s\"", aspect, t->name);
    return text;
}

static int compare_inits(const struct pair *p, const struct tensor *a, const struct tensor *b) {
    const struct initializer *x = &a->init, *y = &b->init;
    char what[WHAT];
    int rc =
        compare_names(p, of_tensor("initialiser", a, what), init_name(x->kind), init_name(y->kind));
    if (rc || x->kind == INIT_LOADED || x->kind == INIT_ZEROS) {
        return rc; /* whose numbers mean nothing */
    }
    rc = compare_reals(p, of_tensor("initialiser's a", a, what), x->a, y->a);
    if (rc || x->kind == INIT_CONSTANT) {
        return rc;
    }
    rc = compare_reals(p, of_tensor("initialiser's b", a, what), x->b, y->b);
    return rc ? rc : compare_counts(p, of_tensor("initialiser's seed", a, what), x->seed, y->seed);
}

static int compare_attributes(const struct pair *p, const struct tensor *a,
                              const struct tensor *b) {
    char what[WHAT];
    int rc = compare_reals(p, of_tensor("weight decay multiplier", a, what),
                           (double)a->decay_multiplier, (double)b->decay_multiplier);
    if (!rc) {
        rc = compare_reals(p, of_tensor("learning rate multiplier", a, what),
                           (double)a->lr_multiplier, (double)b->lr_multiplier);
    }
    if (!rc) {
        rc = compare_flags(p, of_tensor("frozen flag", a, what), a->frozen, b->frozen);
    }
    if (!rc) {
        rc = compare_flags(p, of_tensor("ignored flag", a, what), a->ignored, b->ignored);
    }
    if (!rc) {
        rc = compare_flags(p, of_tensor("absent_ok flag", a, what), a->absent_ok, b->absent_ok);
    }
    if (!rc) {
        rc = compare_names(p, of_tensor("alias", a, what), a->alias, b->alias);
    }
    return rc;
}

int compare_tensors(const struct pair *p, size_t i, const char *unit, size_t at) {
    const struct tensor *a = &p->a->tensors[i], *b = &p->b->tensors[i];
    char what[WHAT], one[SHAPE_TEXT], other[SHAPE_TEXT];
    (void)snprintf(what, sizeof what, "name of tensor %zu in unit \"%.64s\"", at, unit);
    int rc = compare_names(p, what, a->name, b->name);
    if (rc) {
        return rc;
    }
    if (a->dims != b->dims || memcmp(a->shape, b->shape, a->dims * sizeof *a->shape)) {
        return differ(p, of_tensor("shape", a, what), shape_text(a, one), shape_text(b, other));
    }
    rc = compare_attributes(p, a, b);
    if (!rc) {
        rc = compare_names(p, of_tensor("dtype", a, what), dtype_name(a->dtype),
                           dtype_name(b->dtype));
    }
    return rc ? rc : compare_inits(p, a, b);
}
