/* See units.h. */
#include "units.h"

#include <stdlib.h>
#include <string.h>

static float *floats(uint64_t n) {
    return aligned_alloc(64, (n + 16) / 16 * 16 * sizeof(float));
}

static bool is_narrow(const struct units *u) {
    return u->store->dtype != DTYPE_FP32;
}

static int take_wide(uint64_t elements, float **to, struct err *e) {
    *to = floats(elements);
    return *to ? 0
               : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a unit of %ju elements",
                         (uintmax_t)elements);
}

static void find(struct units *u, size_t unit) {
    struct gpt_unit described;
    gpt_describe(u->shape, unit, &described);
    for (size_t t = 0; t < described.count; t++) {
        for (int part = 0; part < STORE_PARTS; part++) {
            u->offset[unit].at[part][t] =
                u->store->ops->offset(u->store, (enum store_part)part, unit, t);
        }
    }
}

int units_init(struct units *u, struct store *s, const struct kernels *k,
               const struct gpt_shape *shape, struct err *e) {
    *u = (struct units){.store = s, .k = k, .shape = shape, .count = gpt_units(shape)};
    uint64_t largest = 0;
    u->offset = calloc(u->count, sizeof *u->offset);
    if (!u->offset) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu units", u->count);
    }
    for (size_t i = 0; i < u->count; i++) {
        const uint64_t elements = s->ops->elements(s, STORE_PARAMS, i);
        largest = elements > largest ? elements : largest;
        find(u, i);
    }
    int rc = is_narrow(u) ? take_wide(largest, &u->wide, e) : 0;
    if (rc == 0 && is_narrow(u) && shape->tied) {
        rc = take_wide(s->ops->elements(s, STORE_PARAMS, 0), &u->wide_embed, e);
    }
    return rc;
}

void units_free(struct units *u) {
    free(u->offset);
    free(u->wide);
    free(u->wide_embed);
    *u = (struct units){0};
}

int units_borrow(struct units *u, size_t unit, const float **params, struct err *e) {
    const void *raw = NULL;
    const int rc = u->store->ops->gather(u->store, unit, &raw, e);
    if (rc < 0) {
        return rc;
    }
    if (!is_narrow(u)) {
        *params = raw;
        return 0;
    }
    float *to = u->wide_embed && unit == 0 ? u->wide_embed : u->wide;
    const uint64_t n = u->store->ops->elements(u->store, STORE_PARAMS, unit);
    (u->store->dtype == DTYPE_BF16 ? u->k->from_bf16 : u->k->from_fp16)(n, raw, to);
    *params = to;
    return 0;
}

int units_release(struct units *u, size_t unit, struct err *e) {
    return u->store->ops->release(u->store, unit, e);
}

static int copy_unit(struct units *u, size_t unit, struct copy *c, struct err *e) {
    const float *params = NULL;
    int rc = units_borrow(u, unit, &params, e);
    if (rc < 0) {
        return rc;
    }
    if (c->params) {
        const uint64_t n = u->store->ops->elements(u->store, STORE_PARAMS, unit);
        c->params[unit] = floats(n);
        if (!c->params[unit]) {
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a copy of the model");
        }
        memcpy(c->params[unit], params, n * sizeof(float));
    }
    return units_release(u, unit, e);
}

int units_copy(struct units *u, bool keep, struct copy *c, struct err *e) {
    *c = (struct copy){.count = u->count};
    if (keep) {
        c->params = calloc(u->count, sizeof *c->params);
        if (!c->params) {
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a copy of the model");
        }
    }
    int rc = u->store->ops->begin_eval(u->store, e);
    for (size_t i = 0; i < u->count && rc == 0; i++) {
        rc = copy_unit(u, i, c, e);
    }
    rc = rc == 0 ? u->store->ops->end_eval(u->store, e) : rc;
    if (rc < 0) {
        copy_free(c);
    }
    return rc;
}

void copy_free(struct copy *c) {
    for (size_t i = 0; c->params && i < c->count; i++) {
        free(c->params[i]);
    }
    free(c->params);
    *c = (struct copy){0};
}
