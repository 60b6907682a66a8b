/* Building and freeing a model. Arrays grow by doubling: one whose count is a power of two is full,
 * so no capacity needs to be kept. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "layout/model.h"

/* Room for one more element, zeroed. NULL: no memory, |array| is as before. */
static void *grown(void *array, size_t count, size_t size) {
    if ((count & (count - 1)) == 0) {
        array = realloc(array, (count ? 2 * count : 1) * size);
    }
    if (array) {
        memset((char *)array + count * size, 0, size);
    }
    return array;
}

static int too_many(struct err *e, const char *what, size_t limit) {
    return err_set(e, ST_RESOURCE_EXHAUSTED, "too many %s: the limit is %zu", what, limit);
}

static int no_memory(struct err *e, const char *what, size_t count) {
    return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %s number %zu", what, count);
}

/* Names come from a trainer and go to people's terminals: no control characters. */
static int check_name(const char *what, const char *name, struct err *e) {
    if (!name || !*name) {
        return err_set(e, ST_INVALID_ARGUMENT, "a %s has an empty name", what);
    }
    size_t n = strnlen(name, MODEL_NAME);
    if (n == MODEL_NAME) {
        return err_set(e, ST_INVALID_ARGUMENT, "the %s name \"%.40s...\" is over %d bytes", what,
                       name, MODEL_NAME - 1);
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F) {
            return err_set(e, ST_INVALID_ARGUMENT, "a %s name has a control character at byte %zu",
                           what, i);
        }
    }
    return 0;
}

static void set_name(char to[static MODEL_NAME], const char *name) {
    memcpy(to, name, strlen(name) + 1); /* check_name saw that it fits */
}

int model_add_unit(struct model *m, const char *name, uint32_t contributions, struct err *e) {
    int rc = check_name("unit", name, e);
    if (rc) {
        return rc;
    }
    if (m->unit_count == MODEL_MAX_UNITS) {
        return too_many(e, "units", MODEL_MAX_UNITS);
    }
    struct unit *units = grown(m->units, m->unit_count, sizeof *units);
    if (!units) {
        return no_memory(e, "unit", m->unit_count);
    }
    m->units = units;
    struct unit *u = &units[m->unit_count++];
    set_name(u->name, name);
    u->first = m->tensor_count;
    u->contributions = contributions;
    return 0;
}

struct tensor model_tensor(const char *name, size_t dims, const uint64_t *shape) {
    struct tensor t = {.decay_multiplier = 1, .lr_multiplier = 1};
    memcpy(t.name, name, strnlen(name, sizeof t.name)); /* no NUL: too long, check_name sees it */
    t.dims = dims > MODEL_DIMS ? MODEL_DIMS + 1 : (uint32_t)dims;
    if (dims && dims <= MODEL_DIMS) {
        memcpy(t.shape, shape, dims * sizeof *shape);
    }
    return t;
}

static int check_new_tensor(const struct model *m, const struct tensor *t, struct err *e) {
    int rc = check_name("tensor", t->name, e);
    if (!rc && t->alias[0]) {
        rc = check_name("tensor", t->alias, e);
    }
    if (rc) {
        return rc;
    }
    if (!m->unit_count) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor \"%s\" comes before any unit", t->name);
    }
    if (t->dims > MODEL_DIMS) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%s\" has more dimensions than the limit of %d", t->name,
                       MODEL_DIMS);
    }
    return m->tensor_count == MODEL_MAX_TENSORS ? too_many(e, "tensors", MODEL_MAX_TENSORS) : 0;
}

int model_add_tensor(struct model *m, const struct tensor *t, struct err *e) {
    int rc = check_new_tensor(m, t, e);
    if (rc) {
        return rc;
    }
    const struct tensor copy = *t; /* |t| may lie in the array that moves */
    struct tensor *tensors = grown(m->tensors, m->tensor_count, sizeof *tensors);
    if (!tensors) {
        return no_memory(e, "tensor", m->tensor_count);
    }
    m->tensors = tensors;
    tensors[m->tensor_count++] = copy;
    m->units[m->unit_count - 1].tensors++;
    return 0;
}

int model_add_plan(struct model *m, const char *name, struct err *e) {
    int rc = check_name("plan", name, e);
    if (rc) {
        return rc;
    }
    if (m->plan_count == MODEL_MAX_PLANS) {
        return too_many(e, "plans", MODEL_MAX_PLANS);
    }
    struct plan *p = &m->plans[m->plan_count++];
    *p = (struct plan){.count = 0};
    set_name(p->name, name);
    return 0;
}

int model_add_op(struct model *m, enum plan_kind kind, uint64_t unit, struct err *e) {
    if (!m->plan_count) {
        return err_set(e, ST_INVALID_ARGUMENT, "a plan's operation comes before any plan");
    }
    struct plan *p = &m->plans[m->plan_count - 1];
    if (kind != PLAN_GATHER && kind != PLAN_REDUCE) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "plan \"%s\" position %zu: operation %d is neither gather nor reduce",
                       p->name, p->count, (int)kind);
    }
    if (unit >= MODEL_MAX_UNITS) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "plan \"%s\" position %zu: there is no unit %" PRIu64, p->name, p->count,
                       unit);
    }
    if (p->count == MODEL_MAX_PLAN_OPS) {
        return too_many(e, "operations in one plan", MODEL_MAX_PLAN_OPS);
    }
    struct plan_op *ops = grown(p->ops, p->count, sizeof *ops);
    if (!ops) {
        return no_memory(e, "a plan's operation", p->count);
    }
    p->ops = ops;
    ops[p->count++] = (struct plan_op){.kind = kind, .unit = (uint32_t)unit};
    return 0;
}

void model_free(struct model *m) {
    for (size_t i = 0; i < m->plan_count; i++) {
        free(m->plans[i].ops);
    }
    free(m->units);
    free(m->tensors);
    *m = (struct model){0};
}

void model_defaults(struct model *m) {
    m->param_dtype = m->wire_dtype = m->kept_dtype = DTYPE_FP32;
    m->micro_batches = 1;
    m->optimizer = optimizer_defaults();
    m->gradient_divisor = 0;
    m->scaling = (struct loss_scaling){0};
}
