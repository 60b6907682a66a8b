/* model_check's part on names: unique ones, and aliases. An alias may have its tensor's name if it
 * is in another unit; so a name stands for one piece of memory everywhere. Sorting keeps this fast:
 * a peer may register a million tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "layout/model_inner.h"

/* ---- units ---- */

/* By name, equal names in order of registration (they lie in one array). */
static int by_name(const void *a, const void *b) {
    const struct unit *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);
    return order ? order : (*x > *y) - (*x < *y);
}

static int check_units(const struct model *m, struct err *e) {
    const struct unit **sorted = mem_zeroed(m->unit_count, sizeof *sorted);
    int rc = 0;
    for (size_t i = 0; i < m->unit_count; i++) {
        sorted[i] = &m->units[i];
    }
    qsort(sorted, m->unit_count, sizeof *sorted, by_name);
    for (size_t i = 1; i < m->unit_count && !rc; i++) {
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name)) {
            rc = err_set(e, ST_INVALID_ARGUMENT, "units %zu and %zu have the same name \"%s\"",
                         (size_t)(sorted[i - 1] - m->units), (size_t)(sorted[i] - m->units),
                         sorted[i]->name);
        }
    }
    free(sorted);
    return rc;
}

/* ---- tensors ---- */

/* By name, tensors before their aliases, then in order of registration. */
static int by_name_and_place(const void *a, const void *b) {
    const struct tensor *x = *(const struct tensor *const *)a;
    const struct tensor *y = *(const struct tensor *const *)b;
    int order = strcmp(x->name, y->name);
    if (!order) {
        order = (x->alias[0] != 0) - (y->alias[0] != 0);
    }
    return order ? order : (x > y) - (x < y);
}

static const struct unit *unit_of(const struct model *m, const struct tensor *t) {
    const size_t i = (size_t)(t - m->tensors);
    size_t u = 0;
    while (i >= m->units[u].first + m->units[u].tensors) {
        u++;
    }
    return &m->units[u];
}

/* The name of the tensor whose memory |t| is. */
static const char *root_name(const struct tensor *t) {
    return t->alias[0] ? t->alias : t->name;
}

static int check_pair(const struct model *m, const struct tensor *a, const struct tensor *b,
                      struct err *e) {
    const struct unit *of_a = unit_of(m, a), *of_b = unit_of(m, b);
    if (of_a == of_b) {
        return err_set(e, ST_INVALID_ARGUMENT, "unit \"%.90s\" has two tensors \"%.127s\"",
                       of_a->name, a->name);
    }
    if (b->alias[0] && !strcmp(root_name(a), b->alias)) {
        return 0;
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "tensor \"%.90s\" is in unit \"%.60s\" and in unit \"%.60s\"; if its memory is "
                   "shared, declare one an alias of the other",
                   a->name, of_a->name, of_b->name);
}

static int check_tensors(const struct model *m, struct err *e) {
    const struct tensor **sorted = mem_zeroed(m->tensor_count, sizeof *sorted);
    int rc = 0;
    for (size_t i = 0; i < m->tensor_count; i++) {
        sorted[i] = &m->tensors[i];
    }
    qsort(sorted, m->tensor_count, sizeof *sorted, by_name_and_place);
    for (size_t i = 1, first = 0; i < m->tensor_count && !rc; i++) {
        if (strcmp(sorted[first]->name, sorted[i]->name)) {
            first = i;
            continue;
        }
        rc = check_pair(m, sorted[first], sorted[i], e);
        if (!rc && i - 1 > first) {
            rc = check_pair(m, sorted[i - 1], sorted[i], e);
        }
    }
    free(sorted);
    return rc;
}

/* ---- aliases ---- */

void name_index_init(struct name_index *x, const struct model *m) {
    *x = (struct name_index){.tensors = mem_zeroed(m->tensor_count, sizeof *x->tensors)};
    for (size_t i = 0; i < m->tensor_count; i++) {
        if (!m->tensors[i].alias[0]) {
            x->tensors[x->count++] = &m->tensors[i];
        }
    }
    qsort(x->tensors, x->count, sizeof *x->tensors, by_name_and_place);
}

void name_index_free(struct name_index *x) {
    free(x->tensors);
    *x = (struct name_index){0};
}

static int name_to_tensor(const void *name, const void *tensor) {
    return strcmp(name, (*(const struct tensor *const *)tensor)->name);
}

const struct tensor *name_index_find(const struct name_index *x, const char *name) {
    const struct tensor **found =
        bsearch(name, x->tensors, x->count, sizeof *x->tensors, name_to_tensor);
    return found ? *found : NULL;
}

static bool is_alias_name(const struct model *m, const char *name) {
    for (size_t i = 0; i < m->tensor_count; i++) {
        if (m->tensors[i].alias[0] && !strcmp(m->tensors[i].name, name)) {
            return true;
        }
    }
    return false;
}

static int check_alias(const struct model *m, const struct name_index *x, const struct tensor *t,
                       struct err *e) {
    char one[SHAPE_TEXT], other[SHAPE_TEXT];
    const struct tensor *to = name_index_find(x, t->alias);
    if (!to) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor \"%.127s\" is an alias of \"%.127s\", %s",
                       t->name, t->alias,
                       is_alias_name(m, t->alias) ? "which is an alias itself"
                                                  : "and there is no such tensor");
    }
    if (t->ignored || to->ignored) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%.110s\" is an alias of \"%.110s\", and %s is ignored", t->name,
                       t->alias, t->ignored ? "the alias" : "that one");
    }
    if (t->dims != to->dims || memcmp(t->shape, to->shape, t->dims * sizeof *t->shape)) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%.70s\" of shape %.60s is an alias of \"%.70s\" of shape %.60s",
                       t->name, shape_text(t, one), to->name, shape_text(to, other));
    }
    if (t->dtype != DTYPE_NONE && t->dtype != tensor_dtype(m, to)) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%.110s\" of dtype %s is an alias of \"%.110s\" of dtype %s",
                       t->name, dtype_name(t->dtype), to->name, dtype_name(tensor_dtype(m, to)));
    }
    return 0;
}

static int check_aliases(const struct model *m, struct err *e) {
    struct name_index x;
    int rc = 0;
    name_index_init(&x, m);
    for (size_t i = 0; i < m->tensor_count && !rc; i++) {
        if (m->tensors[i].alias[0]) {
            rc = check_alias(m, &x, &m->tensors[i], e);
        }
    }
    name_index_free(&x);
    return rc;
}

int model_check_names(const struct model *m, struct err *e) {
    int rc = check_units(m, e);
    if (!rc) {
        rc = check_tensors(m, e);
    }
    return rc ? rc : check_aliases(m, e);
}
