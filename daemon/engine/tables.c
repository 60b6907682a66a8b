/* What follows from model, plans and layout alone: courses, orders, places. */
#include <stdlib.h>

#include "base/buf.h"
#include "engine/inner.h"

static int find_courses(struct engine *e, struct err *err) {
    const struct model *m = e->model;
    const struct plan *train = model_plan(m, "train"), *eval = model_plan(m, "eval");
    int rc = course_init(&e->gathers, m, train, PLAN_GATHER, m->micro_batches, err);
    if (!rc) {
        rc = course_init(&e->reduces, m, train, PLAN_REDUCE, m->micro_batches, err);
    }
    if (!rc) {
        rc = course_init(&e->evals, m, eval, PLAN_GATHER, 1, err);
    }
    return rc;
}

/* Units in the order in which the train plan first gathers them; then those that it does not. */
static void find_order(struct engine *e) {
    bool *seen = mem_zeroed(e->units, sizeof *seen);
    size_t n = 0;
    e->order = mem_zeroed(e->units, sizeof *e->order);
    for (uint32_t i = 0; i < e->gathers.length + e->units; i++) {
        uint32_t left = i - e->gathers.length;
        uint32_t u = i < e->gathers.length ? course_unit(&e->gathers, i) : left;
        if (!seen[u]) {
            seen[u] = true;
            e->order[n++] = u;
        }
    }
    free(seen);
}

/* How often each unit is reduced in a pass, and which of its reduces is the last. */
static void find_finals(struct engine *e) {
    uint32_t *count = mem_zeroed(e->units, sizeof *count), length = e->reduces.length;
    e->ordinals = mem_zeroed(length, sizeof *e->ordinals);
    e->finals = mem_zeroed(length, sizeof *e->finals);
    for (uint32_t i = 0; i < length; i++) {
        uint32_t u = course_unit(&e->reduces, i);
        e->ordinals[i] = count[u]++;
        if (count[u] == e->model->units[u].contributions) { /* model_check: that many */
            e->finals[e->final_count++] = i;
        }
    }
    free(count);
}

static void find_kinds_of_units(struct engine *e) {
    e->loads = mem_zeroed(e->units, sizeof *e->loads);
    e->may_be_absent = mem_zeroed(e->units, sizeof *e->may_be_absent);
    for (size_t u = 0; u < e->units; u++) {
        e->may_be_absent[u] = model_unit_may_be_absent(e->model, u);
        if (model_unit_is_loaded(e->model, u)) {
            e->loads[e->load_count++] = (uint32_t)u;
        }
    }
}

static void init_leases(struct engine *e) {
    /* A replica is lent without a slot, so there is no fewer than could be held. */
    uint64_t lent = (uint64_t)e->o.slots.gather + e->units;
    leases_init(&e->leases, e->l->params_sharded ? e->o.slots.gather : (uint32_t)lent,
                e->o.on_demand ? 0 : e->o.slots.gather);
}

int tables_init(struct engine *e, struct err *err) {
    int rc = find_courses(e, err);
    if (rc) {
        return rc;
    }
    find_order(e);
    find_finals(e);
    find_kinds_of_units(e);
    init_leases(e);
    places_init(&e->places, e->l, e->o.rank, UPDATE_TILE);
    e->versions = mem_zeroed(e->units, sizeof *e->versions);
    e->whole = mem_zeroed(e->units, sizeof *e->whole);
    for (size_t u = 0; u < e->units; u++) {
        e->versions[u] = e->whole[u] = COMM_NO_VERSION;
    }
    e->sums = mem_zeroed(e->l->range_count, sizeof *e->sums);
    e->checksums = mem_zeroed(e->units, sizeof *e->checksums);
    e->blocks = mem_zeroed(e->places.largest_piece / NORM_BLOCK + 1, sizeof *e->blocks);
    e->sequences = mem_zeroed(e->o.slots.grad, sizeof *e->sequences);
    return 0;
}

void tables_free(struct engine *e) {
    course_free(&e->gathers);
    course_free(&e->reduces);
    course_free(&e->evals);
    places_free(&e->places);
    leases_free(&e->leases);
    free(e->finals);
    free(e->ordinals);
    free(e->order);
    free(e->loads);
    free(e->may_be_absent);
    free(e->versions);
    free(e->whole);
    free(e->sums);
    free(e->checksums);
    free(e->blocks);
    free(e->sequences);
}
