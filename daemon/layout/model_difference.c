/* model_difference: the first thing in which two ranks' models differ, in words. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layout/model_inner.h"

/* Two models and who registered them. */
struct pair {
    const struct model *a, *b;
    unsigned rank_a, rank_b;
    struct err *e;
};

const char *shape_text(const struct tensor *t, char text[static SHAPE_TEXT]) {
    size_t n = 0;
    text[n++] = '[';
    for (uint32_t i = 0; i < t->dims && i < MODEL_DIMS; i++) {
        n += (size_t)snprintf(text + n, SHAPE_TEXT - n, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    }
    (void)snprintf(text + n, SHAPE_TEXT - n, "]");
    return text;
}

/* "<what>: <one> on rank 0, <other> on rank 1" */
static int differ(const struct pair *p, const char *what, const char *one, const char *other) {
    return err_set(p->e, ST_FAILED_PRECONDITION,
                   "ranks %u and %u registered different models: %s: %s on rank %u, %s on rank %u",
                   p->rank_a, p->rank_b, what, one, p->rank_a, other, p->rank_b);
}

static int compare_counts(const struct pair *p, const char *what, uint64_t a, uint64_t b) {
    if (a == b) {
        return 0;
    }
    char one[24], other[24];
    (void)snprintf(one, sizeof one, "%" PRIu64, a);
    (void)snprintf(other, sizeof other, "%" PRIu64, b);
    return differ(p, what, one, other);
}

/* 17 digits tell any two doubles apart. */
static int compare_reals(const struct pair *p, const char *what, double a, double b) {
    if (a == b) {
        return 0;
    }
    char one[32], other[32];
    (void)snprintf(one, sizeof one, "%.17g", a);
    (void)snprintf(other, sizeof other, "%.17g", b);
    return differ(p, what, one, other);
}

static int compare_names(const struct pair *p, const char *what, const char *a, const char *b) {
    if (!strcmp(a, b)) {
        return 0;
    }
    char one[80], other[80];
    (void)snprintf(one, sizeof one, "\"%.76s\"", a);
    (void)snprintf(other, sizeof other, "\"%.76s\"", b);
    return differ(p, what, one, other);
}

static int compare_tensors(const struct pair *p, size_t unit, size_t i) {
    const struct tensor *a = &p->a->tensors[i], *b = &p->b->tensors[i];
    char what[160], one[SHAPE_TEXT], other[SHAPE_TEXT];
    (void)snprintf(what, sizeof what, "name of tensor %zu in unit \"%.64s\"",
                   i - p->a->units[unit].first, p->a->units[unit].name);
    int rc = compare_names(p, what, a->name, b->name);
    if (rc) {
        return rc;
    }
    if (a->dims != b->dims || memcmp(a->shape, b->shape, a->dims * sizeof *a->shape)) {
        (void)snprintf(what, sizeof what, "shape of tensor \"%.127s\"", a->name);
        return differ(p, what, shape_text(a, one), shape_text(b, other));
    }
    (void)snprintf(what, sizeof what, "weight decay multiplier of tensor \"%.110s\"", a->name);
    return compare_reals(p, what, (double)a->decay_multiplier, (double)b->decay_multiplier);
}

static int compare_unit(const struct pair *p, size_t u) {
    const struct unit *a = &p->a->units[u], *b = &p->b->units[u];
    char what[160];
    (void)snprintf(what, sizeof what, "name of unit %zu", u);
    int rc = compare_names(p, what, a->name, b->name);
    if (rc) {
        return rc;
    }
    for (size_t i = 0; i < a->tensors && i < b->tensors && !rc; i++) {
        rc = compare_tensors(p, u, a->first + i);
    }
    if (!rc) {
        (void)snprintf(what, sizeof what, "number of tensors in unit \"%.120s\"", a->name);
        rc = compare_counts(p, what, a->tensors, b->tensors);
    }
    return rc;
}

static const char *op_text(const struct model *m, const struct plan_op *op, char text[static 96]) {
    const char *unit = op->unit < m->unit_count ? m->units[op->unit].name : "?";
    (void)snprintf(text, 96, "%s of unit \"%.76s\"", op->kind == PLAN_GATHER ? "gather" : "reduce",
                   unit);
    return text;
}

static int compare_plan(const struct pair *p, size_t i) {
    const struct plan *a = &p->a->plans[i], *b = &p->b->plans[i];
    char what[96], one[96], other[96];
    (void)snprintf(what, sizeof what, "name of plan %zu", i);
    int rc = compare_names(p, what, a->name, b->name);
    if (rc) {
        return rc;
    }
    for (size_t j = 0; j < a->count && j < b->count; j++) {
        if (a->ops[j].kind != b->ops[j].kind || a->ops[j].unit != b->ops[j].unit) {
            (void)snprintf(what, sizeof what, "plan \"%.40s\" position %zu", a->name, j);
            return differ(p, what, op_text(p->a, &a->ops[j], one),
                          op_text(p->b, &b->ops[j], other));
        }
    }
    (void)snprintf(what, sizeof what, "number of operations in plan \"%.40s\"", a->name);
    return compare_counts(p, what, a->count, b->count);
}

static int compare_structure(const struct pair *p) {
    int rc = compare_counts(p, "number of units", p->a->unit_count, p->b->unit_count);
    for (size_t u = 0; u < p->a->unit_count && !rc; u++) {
        rc = compare_unit(p, u);
    }
    if (!rc) {
        rc = compare_counts(p, "number of plans", p->a->plan_count, p->b->plan_count);
    }
    for (size_t i = 0; i < p->a->plan_count && !rc; i++) {
        rc = compare_plan(p, i);
    }
    return rc;
}

static int compare_optimizer(const struct pair *p) {
    const struct adamw_options *a = &p->a->adamw, *b = &p->b->adamw;
    int rc = compare_reals(p, "beta1", a->beta1, b->beta1);
    if (!rc) {
        rc = compare_reals(p, "beta2", a->beta2, b->beta2);
    }
    if (!rc) {
        rc = compare_reals(p, "epsilon", a->epsilon, b->epsilon);
    }
    return rc ? rc : compare_reals(p, "weight decay", a->weight_decay, b->weight_decay);
}

int model_difference(const struct model *a, unsigned rank_a, const struct model *b, unsigned rank_b,
                     struct err *e) {
    struct pair p = {.a = a, .b = b, .rank_a = rank_a, .rank_b = rank_b, .e = e};
    int rc = compare_structure(&p);
    if (!rc) {
        rc = compare_optimizer(&p);
    }
    if (!rc) {
        rc = compare_names(&p, "dtype of parameters", dtype_name(a->param_dtype),
                           dtype_name(b->param_dtype));
    }
    if (!rc) {
        rc = compare_names(&p, "strategy", strategy_name(a->strategy), strategy_name(b->strategy));
    }
    return rc ? rc
              : compare_counts(&p, "number of micro-batches", a->micro_batches, b->micro_batches);
}
