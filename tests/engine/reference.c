#include "reference.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static void add_unit(struct model *m, const char *name, const uint64_t *sizes, size_t n) {
    static unsigned number;
    ck_assert_int_eq(model_add_unit(m, name, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        char tensor[32];
        (void)snprintf(tensor, sizeof tensor, "%s.%u", name, number++);
        ck_assert_int_eq(model_add_tensor(m, tensor, 1, &sizes[i], (float)(i % 3) * 0.5f, NULL), 0);
    }
}

/* Forward through all units, then backward: the last one is gathered twice in a row. */
static void add_plans(struct model *m) {
    ck_assert_int_eq(model_add_plan(m, "train", NULL), 0);
    for (uint64_t u = 0; u < m->unit_count; u++) {
        ck_assert_int_eq(model_add_op(m, PLAN_GATHER, u, NULL), 0);
    }
    for (uint64_t u = m->unit_count; u-- > 0;) {
        ck_assert_int_eq(model_add_op(m, PLAN_GATHER, u, NULL), 0);
        ck_assert_int_eq(model_add_op(m, PLAN_REDUCE, u, NULL), 0);
    }
    ck_assert_int_eq(model_add_plan(m, "eval", NULL), 0);
    for (uint64_t u = 0; u < m->unit_count; u++) {
        ck_assert_int_eq(model_add_op(m, PLAN_GATHER, u == 1 ? 2 : u == 2 ? 1 : u, NULL), 0);
    }
}

void reference_model(struct model *m, unsigned ranks, bool small, enum strategy s, enum dtype param,
                     uint32_t micro_batches) {
    uint64_t n = ranks;
    *m = (struct model){.strategy = s, .param_dtype = param, .micro_batches = micro_batches};
    m->adamw = (struct adamw_options){0.9, 0.95, 1e-8, 0.1};
    add_unit(m, "embedding", (uint64_t[]){small ? 300 : 100003, 0, 1}, 3);
    add_unit(m, "block0", (uint64_t[]){n > 1 ? n - 1 : 0, n, n + 1, 64, 65}, 5);
    add_unit(m, "block1", (uint64_t[]){small ? 777 : 70001, 3, 128 * n, 5}, 4);
    add_unit(m, "empty", (uint64_t[]){0}, 1);
    add_unit(m, "head", (uint64_t[]){1}, 1);
    add_plans(m);
    ck_assert_int_eq(model_check(m, NULL), 0);
}

void reference_init(struct reference *r, const struct layout *l) {
    size_t n = l->padded + 1;
    *r = (struct reference){.l = l};
    r->p = calloc(n, sizeof(float));
    r->m = calloc(n, sizeof(float));
    r->v = calloc(n, sizeof(float));
    r->g = calloc(n, sizeof(float));
    uint64_t *index = calloc(l->largest + 1, sizeof *index);
    for (size_t u = 0; u < l->model->unit_count; u++) {
        reference_indices(l, u, index);
        for (uint64_t i = 0; i < l->units[u].padded; i++) {
            if (index[i] != UINT64_MAX) {
                r->p[l->units[u].flat_start + i] = reference_initial(index[i]);
            }
        }
    }
    free(index);
}

void reference_free(struct reference *r) {
    free(r->p);
    free(r->m);
    free(r->v);
    free(r->g);
}

static float unit_float(uint64_t bits) { /* in [-1, 1) */
    return (float)(int32_t)(bits >> 32) * 0x1p-31f;
}

float reference_initial(uint64_t index) {
    return 0.02f * unit_float(mix64(index + 17));
}

float reference_gradient(uint64_t step, uint32_t batch, unsigned rank, uint64_t index) {
    uint64_t h = mix64(mix64(mix64(mix64(step) + batch) + rank) + index);
    return unit_float(h) * (float)(1u << (h & 7)); /* of different sizes, so that order matters */
}

void reference_indices(const struct layout *l, size_t unit, uint64_t *index) {
    const struct unit *u = &l->model->units[unit];
    for (uint64_t i = 0; i < l->units[unit].padded; i++) {
        index[i] = UINT64_MAX;
    }
    for (size_t t = u->first; t < u->first + u->tensors; t++) {
        for (uint64_t i = 0; i < l->model->tensors[t].elements; i++) {
            index[l->tensors[t].offset + i] = l->tensors[t].model_start + i;
        }
    }
}

static float sum_ranks(const struct layout *l, uint64_t step, uint32_t batch, uint64_t index) {
    float sum = reference_gradient(step, batch, 0, index);
    for (unsigned r = 1; r < l->world; r++) {
        sum += reference_gradient(step, batch, r, index);
    }
    return sum;
}

/* Each micro-batch over ranks, then the micro-batches. */
static float each_micro_batch(const struct layout *l, uint64_t step, uint64_t index) {
    float kept = sum_ranks(l, step, 0, index);
    for (uint32_t b = 1; b < l->model->micro_batches; b++) {
        kept += sum_ranks(l, step, b, index);
    }
    return kept;
}

static float rank_sum(const struct layout *l, uint64_t step, unsigned rank, uint64_t index) {
    float sum = reference_gradient(step, 0, rank, index);
    for (uint32_t b = 1; b < l->model->micro_batches; b++) {
        sum += reference_gradient(step, b, rank, index);
    }
    return sum;
}

/* Each rank's micro-batches, then the ranks. */
static float once_per_step(const struct layout *l, uint64_t step, uint64_t index) {
    float sum = rank_sum(l, step, 0, index);
    for (unsigned r = 1; r < l->world; r++) {
        sum += rank_sum(l, step, r, index);
    }
    return sum;
}

static void sum_gradients(struct reference *r, uint64_t step) {
    const struct layout *l = r->l;
    uint64_t *index = calloc(l->largest + 1, sizeof *index);
    for (size_t u = 0; u < l->model->unit_count; u++) {
        reference_indices(l, u, index);
        for (uint64_t i = 0; i < l->units[u].padded; i++) {
            float *g = &r->g[l->units[u].flat_start + i];
            if (index[i] != UINT64_MAX) {
                *g = l->model->strategy == STRATEGY_DDP ? once_per_step(l, step, index[i])
                                                        : each_micro_batch(l, step, index[i]);
            }
        }
    }
    free(index);
}

/* As the ranks do it: each adds up its units, then the ranks are added. */
static double sum_of_squares(const struct reference *r) {
    const struct kernels *list[3];
    kernels_available(list);
    double all = 0;
    for (unsigned rank = 0; rank < r->l->world; rank++) {
        double sum = 0;
        for (size_t u = 0; u < r->l->model->unit_count; u++) {
            const struct unit_place *p = &r->l->units[u];
            sum += kernels_norm(list[0], p->part, r->g + p->flat_start + rank * p->part);
        }
        all += sum;
    }
    return all;
}

/* The formulas of design §14, one element. */
static void adamw(const struct adamw *a, float g, float *p, float *m, float *v) {
    g = g * a->multiplier;
    *m = fmaf(a->one_minus_b1, g - *m, *m);
    *v = fmaf(a->beta2, *v, a->one_minus_b2 * (g * g));
    float den = fmaf(sqrtf(*v), a->inv_sqrt_c2, a->epsilon);
    float w = fmaf(a->decay, *p, *p);
    *p = fmaf(a->step_size, *m / den, w);
}

struct step_scalars reference_step(struct reference *r, uint64_t step, double clip) {
    const struct layout *l = r->l;
    const struct model *model = l->model;
    sum_gradients(r, step);
    struct step_scalars s =
        step_scalars(&model->adamw, sum_of_squares(r), l->world, clip, 1e-3, ++r->t);
    for (size_t u = 0; u < model->unit_count; u++) {
        const struct unit *unit = &model->units[u];
        for (size_t t = unit->first; t < unit->first + unit->tensors; t++) {
            struct adamw a = adamw_numbers(&model->adamw, &s, model->tensors[t].decay_multiplier);
            uint64_t at = l->units[u].flat_start + l->tensors[t].offset;
            for (uint64_t i = at; i < at + model->tensors[t].elements; i++) {
                adamw(&a, r->g[i], &r->p[i], &r->m[i], &r->v[i]);
            }
        }
    }
    return s;
}

uint64_t reference_hash(const struct reference *r) {
    uint64_t sum = 0;
    uint64_t *index = calloc(r->l->largest + 1, sizeof *index);
    for (size_t u = 0; u < r->l->model->unit_count; u++) {
        reference_indices(r->l, u, index);
        for (uint64_t i = 0; i < r->l->units[u].padded; i++) {
            uint32_t bits;
            memcpy(&bits, &r->p[r->l->units[u].flat_start + i], sizeof bits);
            sum += index[i] == UINT64_MAX ? 0 : hash_element(index[i], bits);
        }
    }
    free(index);
    return sum;
}

bool reference_equal(const struct reference *r, size_t unit, const void *params) {
    const float *p = r->p + r->l->units[unit].flat_start;
    uint64_t n = r->l->units[unit].padded;
    if (r->l->model->param_dtype == DTYPE_FP32) {
        return !memcmp(p, params, n * sizeof *p);
    }
    const struct kernels *list[3];
    kernels_available(list);
    uint16_t *rounded = calloc(n + 1, sizeof *rounded);
    list[0]->to_bf16(n, p, rounded);
    bool equal = !memcmp(rounded, params, n * sizeof *rounded);
    free(rounded);
    return equal;
}
