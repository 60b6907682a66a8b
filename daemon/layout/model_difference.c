/* model_difference: the first thing in which two ranks' models differ, in words. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layout/difference_inner.h"

int differ(const struct pair *p, const char *what, const char *one, const char *other) {
    return err_set(p->e, ST_FAILED_PRECONDITION,
                   "ranks %u and %u registered different models: %s: %s on rank %u, %s on rank %u",
                   p->rank_a, p->rank_b, what, one, p->rank_a, other, p->rank_b);
}

int compare_counts(const struct pair *p, const char *what, uint64_t a, uint64_t b) {
    if (a == b) {
        return 0;
    }
    char one[24], other[24];
    (void)snprintf(one, sizeof one, "%" PRIu64, a);
    (void)snprintf(other, sizeof other, "%" PRIu64, b);
    return differ(p, what, one, other);
}

/* 17 digits tell any two doubles apart. */
int compare_reals(const struct pair *p, const char *what, double a, double b) {
    if (a == b) {
        return 0;
    }
    char one[32], other[32];
    (void)snprintf(one, sizeof one, "%.17g", a);
    (void)snprintf(other, sizeof other, "%.17g", b);
    return differ(p, what, one, other);
}

int compare_names(const struct pair *p, const char *what, const char *a, const char *b) {
    if (!strcmp(a, b)) {
        return 0;
    }
    char one[80], other[80];
    (void)snprintf(one, sizeof one, "\"%.76s\"", a);
    (void)snprintf(other, sizeof other, "\"%.76s\"", b);
    return differ(p, what, one, other);
}

int compare_flags(const struct pair *p, const char *what, bool a, bool b) {
    return a == b ? 0 : differ(p, what, a ? "set" : "not set", b ? "set" : "not set");
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
        rc = compare_tensors(p, a->first + i, a->name, i);
    }
    if (!rc) {
        (void)snprintf(what, sizeof what, "number of tensors in unit \"%.120s\"", a->name);
        rc = compare_counts(p, what, a->tensors, b->tensors);
    }
    if (!rc) {
        (void)snprintf(what, sizeof what, "contributions to unit \"%.120s\"", a->name);
        rc = compare_counts(p, what, a->contributions, b->contributions);
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

int model_difference(const struct model *a, unsigned rank_a, const struct model *b, unsigned rank_b,
                     struct err *e) {
    struct pair p = {.a = a, .b = b, .rank_a = rank_a, .rank_b = rank_b, .e = e};
    int rc = compare_structure(&p);
    return rc ? rc : compare_numbers(&p);
}
