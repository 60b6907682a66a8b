/* Places: which range a tensor is in and where, for the whole model. Stretches of ranges have their
 * own file. */
#include "layout/layout.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/buf.h"
#include "layout/model_inner.h"

/* Sizes are at most MODEL_MAX_ELEMENTS = 2^44, so this cannot overflow. */
static uint64_t round_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

static int too_large(const struct model *m, size_t unit, struct err *e) {
    return err_set(e, ST_RESOURCE_EXHAUSTED,
                   "with unit \"%s\" the model has more than %" PRIu64
                   " elements, padding included",
                   m->units[unit].name, MODEL_MAX_ELEMENTS);
}

/* The unit's range for tensors like |t|; made when it is the first. */
static size_t range_for(struct layout *l, size_t unit, const struct tensor *t) {
    struct unit_place *p = &l->units[unit];
    const enum dtype dtype = tensor_dtype(l->model, t);
    size_t i = p->first;
    for (; i < p->first + p->ranges; i++) {
        if (l->ranges[i].dtype == dtype && l->ranges[i].frozen == t->frozen) {
            return i;
        }
    }
    l->ranges[i] = (struct range){.unit = unit, .dtype = dtype, .frozen = t->frozen};
    p->ranges++;
    p->trainable += !t->frozen;
    l->range_count++;
    return i;
}

/* Trainable tensors first, so that trainable ranges are first. */
static void make_ranges(struct layout *l, size_t unit) {
    const struct unit *u = &l->model->units[unit];
    l->units[unit].first = l->range_count;
    for (int frozen = 0; frozen < 2; frozen++) {
        for (size_t i = u->first; i < u->first + u->tensors; i++) {
            const struct tensor *t = &l->model->tensors[i];
            if (tensor_has_place(t) && t->frozen == (bool)frozen) {
                l->tensors[i].range = range_for(l, unit, t);
            }
        }
    }
}

/* Gives a unit's tensors their places; a range's |padded| is its end so far. */
static int place_tensors(struct layout *l, size_t unit, struct err *e) {
    const struct unit *u = &l->model->units[unit];
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        const struct tensor *t = &l->model->tensors[i];
        struct tensor_place *p = &l->tensors[i];
        if (!tensor_has_place(t)) {
            *p = (struct tensor_place){.range = SIZE_MAX};
            continue;
        }
        struct range *r = &l->ranges[p->range];
        p->offset = round_up(r->padded, LAYOUT_ALIGN);
        p->model_start = l->elements;
        if (t->elements > MODEL_MAX_ELEMENTS || p->offset + t->elements > MODEL_MAX_ELEMENTS ||
            l->elements + t->elements > MODEL_MAX_ELEMENTS) {
            return too_large(l->model, unit, e);
        }
        r->padded = p->offset + t->elements;
        r->elements += t->elements;
        l->elements += t->elements;
        l->trainable += t->frozen ? 0 : t->elements;
    }
    return 0;
}

/* Pads a unit's ranges and puts them one after another. */
static int place_ranges(struct layout *l, size_t unit, struct err *e) {
    struct unit_place *p = &l->units[unit];
    for (size_t i = p->first; i < p->first + p->ranges; i++) {
        struct range *r = &l->ranges[i];
        r->padded = round_up(r->padded, (uint64_t)LAYOUT_ALIGN * l->world);
        l->padded += r->padded;
        if (l->padded > MODEL_MAX_ELEMENTS) {
            return too_large(l->model, unit, e);
        }
        r->param_offset = p->param_bytes;
        r->load_offset = p->load_elements;
        p->param_bytes += r->padded * dtype_bytes(r->dtype); /* 64 elements: a multiple of 64 */
        p->load_elements += r->padded;
        if (!r->frozen) {
            r->grad_offset = p->grad_elements;
            p->grad_elements += r->padded;
        }
    }
    return 0;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static int place_unit(struct layout *l, size_t unit, struct err *e) {
    struct unit_place *p = &l->units[unit];
    p->model_start = l->elements;
    make_ranges(l, unit);
    int rc = place_tensors(l, unit, e);
    if (!rc) {
        rc = place_ranges(l, unit, e);
    }
    if (rc) {
        return rc;
    }
    l->largest_param_bytes = larger(l->largest_param_bytes, p->param_bytes);
    l->largest_grad_elements = larger(l->largest_grad_elements, p->grad_elements);
    if (model_unit_is_loaded(l->model, unit)) {
        l->largest_load_bytes = larger(l->largest_load_bytes, p->load_elements * sizeof(float));
    }
    return 0;
}

/* An alias has the place of its tensor, which may be in a later unit. */
static void place_aliases(struct layout *l) {
    const struct model *m = l->model;
    struct name_index x;
    name_index_init(&x, m);
    for (size_t i = 0; i < m->tensor_count && x.count < m->tensor_count; i++) {
        if (m->tensors[i].alias[0]) {
            l->tensors[i] = l->tensors[name_index_find(&x, m->tensors[i].alias) - m->tensors];
        }
    }
    name_index_free(&x);
}

static int set_groups(struct layout *l, const struct model *m, unsigned world, struct err *e) {
    unsigned shard = m->shard_size ? m->shard_size : world;
    l->world = l->inner = world;
    switch (m->strategy) {
    case STRATEGY_DDP:
    case STRATEGY_ZERO1:
        l->inner = 1;
        break;
    case STRATEGY_HYBRID_SHARD:
    case STRATEGY_HYBRID_ZERO2:
        if (world % shard) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "shard size %u does not divide the world size %u", shard, world);
        }
        l->inner = shard;
        break;
    case STRATEGY_NONE:
    case STRATEGY_ZERO2:
    case STRATEGY_ZERO3:
        break;
    }
    l->outer = world / l->inner;
    return 0;
}

int layout_init(struct layout *l, const struct model *m, unsigned world, struct err *e) {
    *l = (struct layout){
        .model = m,
        .params_sharded = m->strategy == STRATEGY_ZERO3 || m->strategy == STRATEGY_HYBRID_SHARD,
        .optimizer_split = m->strategy == STRATEGY_ZERO1,
    };
    if (world < 1 || world > LAYOUT_PLAN_RANKS) {
        return err_set(e, ST_INVALID_ARGUMENT, "%u ranks: must be 1 to %d", world,
                       LAYOUT_PLAN_RANKS);
    }
    int rc = set_groups(l, m, world, e);
    if (rc) {
        return rc;
    }
    l->units = mem_zeroed(m->unit_count, sizeof *l->units);
    l->tensors = mem_zeroed(m->tensor_count, sizeof *l->tensors);
    l->ranges = mem_zeroed(m->tensor_count, sizeof *l->ranges); /* at most one a tensor */
    for (size_t u = 0; u < m->unit_count && !rc; u++) {
        rc = place_unit(l, u, e);
    }
    if (rc) {
        layout_free(l);
        return rc;
    }
    place_aliases(l);
    return 0;
}

void layout_free(struct layout *l) {
    free(l->units);
    free(l->tensors);
    free(l->ranges);
    *l = (struct layout){0};
}
