#include "reference.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "kernels/init.h"

static const struct kernels *plain(void) {
    const struct kernels *list[3];
    kernels_available(list);
    return list[0];
}

/* ---- values ---- */

static float unit_float(uint64_t bits) { /* in [-1, 1) */
    return (float)(int32_t)(bits >> 32) * 0x1p-31f;
}

float reference_initial(uint64_t index) {
    return 0.02f * unit_float(mix64(index + 17));
}

float reference_gradient(uint64_t step, uint32_t batch, uint32_t contribution, unsigned rank,
                         uint64_t index) {
    uint64_t h = mix64(mix64(mix64(mix64(step) + batch) + rank) + index) + contribution;
    return unit_float(mix64(h)) * (float)(1u << (h & 7)); /* of different sizes: order matters */
}

float reference_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x)) {
        return x;
    }
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float rounded(enum dtype d, float x) {
    uint16_t half;
    switch (d) {
    case DTYPE_BF16:
        return reference_bf16(x);
    case DTYPE_FP16:
        plain()->to_fp16(1, &x, &half);
        plain()->from_fp16(1, &half, &x);
        return x;
    default:
        return x;
    }
}

static bool is_trained(const struct model *m, size_t tensor) {
    return tensor_has_place(&m->tensors[tensor]) && !m->tensors[tensor].frozen;
}

/* ---- the model ---- */

static void first_values(const struct tensor *t, uint64_t start, float *p) {
    uint64_t seed = init_seed(t->init.seed, start);
    for (uint64_t i = 0; i < t->elements; i++) {
        p[i] = t->init.kind == INIT_LOADED     ? reference_initial(start + i)
               : t->init.kind == INIT_CONSTANT ? (float)t->init.a
                                               : 0;
    }
    if (t->init.kind == INIT_NORMAL) {
        init_normal(seed, 0, t->elements, t->init.a, t->init.b, p);
    } else if (t->init.kind == INIT_UNIFORM) {
        init_uniform(seed, 0, t->elements, t->init.a, t->init.b, p);
    }
}

void reference_init(struct reference *r, const struct layout *l) {
    size_t n = l->elements + 1;
    const struct model *m = l->model;
    *r = (struct reference){.l = l};
    r->p = calloc(n, sizeof(float));
    r->s1 = calloc(n, sizeof(float));
    r->s2 = calloc(n, sizeof(float));
    r->g = calloc(n, sizeof(float));
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct tensor *t = &m->tensors[i];
        uint64_t start = l->tensors[i].model_start;
        if (!tensor_has_place(t)) {
            continue;
        }
        first_values(t, start, r->p + start);
        for (uint64_t k = 0; t->frozen && k < t->elements; k++) { /* has no master */
            r->p[start + k] = rounded(l->ranges[l->tensors[i].range].dtype, r->p[start + k]);
        }
    }
}

void reference_free(struct reference *r) {
    free(r->p);
    free(r->s1);
    free(r->s2);
    free(r->g);
}

/* ---- gradients ---- */

/* Where in the model an element is, and which reduce of it is meant. */
struct place_in_step {
    uint64_t step, index;
    uint32_t unit, batch, contribution;
};

static float sent(const struct reference *r, const struct place_in_step *w, unsigned rank) {
    if (r->absent && model_unit_may_be_absent(r->l->model, w->unit) &&
        r->absent(w->step, w->batch, rank, w->unit)) {
        return 0;
    }
    float g = reference_gradient(w->step, w->batch, w->contribution, rank, w->index);
    return rounded(r->l->model->wire_dtype, g);
}

/* What the ranks of the |outer|th inner group keep. */
static float kept(const struct reference *r, struct place_in_step w, unsigned outer) {
    const struct model *m = r->l->model;
    unsigned inner = r->l->inner;
    float sum = 0;
    for (w.batch = 0; w.batch < m->micro_batches; w.batch++) {
        for (w.contribution = 0; w.contribution < m->units[w.unit].contributions;
             w.contribution++) {
            float all = sent(r, &w, outer * inner);
            for (unsigned i = 1; i < inner; i++) {
                all += sent(r, &w, outer * inner + i);
            }
            bool first = w.batch == 0 && w.contribution == 0;
            sum = rounded(m->kept_dtype, first ? all : sum + all);
        }
    }
    return sum;
}

static float gradient(const struct reference *r, const struct place_in_step *w) {
    float sum = kept(r, *w, 0);
    for (unsigned o = 1; o < r->l->outer; o++) {
        sum += kept(r, *w, o);
    }
    return rounded(r->l->model->kept_dtype, sum);
}

static void sum_gradients(struct reference *r, uint64_t step) {
    const struct model *m = r->l->model;
    for (size_t u = 0; u < m->unit_count; u++) {
        const struct unit *unit = &m->units[u];
        for (size_t t = unit->first; t < unit->first + unit->tensors; t++) {
            struct place_in_step w = {.step = step, .unit = (uint32_t)u};
            for (uint64_t i = 0; is_trained(m, t) && i < m->tensors[t].elements; i++) {
                w.index = r->l->tensors[t].model_start + i;
                r->g[w.index] = gradient(r, &w);
            }
        }
    }
}

/* Of one rank's piece of a range. */
static double piece_norm(const struct reference *r, size_t range, unsigned rank) {
    const struct layout *l = r->l;
    const struct unit *u = &l->model->units[l->ranges[range].unit];
    struct stretch piece = layout_piece(l, range, rank);
    float *x = calloc(l->ranges[range].padded + 1, sizeof *x);
    for (size_t t = u->first; t < u->first + u->tensors; t++) {
        if (is_trained(l->model, t) && l->tensors[t].range == range) {
            memcpy(x + l->tensors[t].offset, r->g + l->tensors[t].model_start,
                   l->model->tensors[t].elements * sizeof *x);
        }
    }
    double sum = kernels_norm(plain(), piece.count, x + piece.from);
    free(x);
    return sum;
}

/* As the ranks do it: each adds up its ranges, then the ranks are added. */
static double sum_of_squares(const struct reference *r) {
    double all = 0;
    for (unsigned rank = 0; rank < r->l->world; rank++) {
        double sum = 0;
        for (size_t i = 0; i < r->l->range_count; i++) {
            sum += r->l->ranges[i].frozen ? 0 : piece_norm(r, i, rank);
        }
        all += sum;
    }
    return all;
}

/* ---- updates: the formulas of kernels.h, one element ---- */

static float clamped(const struct update_numbers *u, float g) {
    g = g * u->multiplier;
    if (u->clip_value > 0) {
        g = g > u->clip_value ? u->clip_value : g < -u->clip_value ? -u->clip_value : g;
    }
    return g;
}

static void adam(const struct update_numbers *u, bool decoupled, float g, float *p, float *m,
                 float *v) {
    g = decoupled ? clamped(u, g) : fmaf(u->l2, *p, clamped(u, g));
    *m = fmaf(u->one_minus_b1, g - *m, *m);
    *v = fmaf(u->beta2, *v, u->one_minus_b2 * (g * g));
    float den = fmaf(sqrtf(*v), u->inv_sqrt_c2, u->epsilon);
    float w = decoupled ? fmaf(u->decay, *p, *p) : *p;
    *p = fmaf(u->step_size, *m / den, w);
}

static void sgd(const struct update_numbers *u, float g, float *p, float *b) {
    g = fmaf(u->l2, *p, clamped(u, g));
    float direction = g;
    if (u->momentum > 0) {
        *b = u->first ? g : fmaf(u->momentum, *b, g);
        direction = u->nesterov ? fmaf(u->momentum, *b, g) : *b;
    }
    *p = fmaf(u->step_size, direction, *p);
}

static void lion(const struct update_numbers *u, float g, float *p, float *m) {
    g = clamped(u, g);
    float c = fmaf(u->one_minus_b1, g - *m, *m);
    float sign = c > 0 ? 1 : c < 0 ? -1 : 0;
    *p = fmaf(u->decay, *p, *p) + u->step_size * sign;
    *m = fmaf(u->one_minus_b2, g - *m, *m);
}

static void update(struct reference *r, enum optimizer kind, const struct update_numbers *u,
                   uint64_t i) {
    switch (kind) {
    case OPTIMIZER_SGD:
        sgd(u, r->g[i], &r->p[i], &r->s1[i]);
        break;
    case OPTIMIZER_LION:
        lion(u, r->g[i], &r->p[i], &r->s1[i]);
        break;
    default:
        adam(u, kind == OPTIMIZER_ADAMW, r->g[i], &r->p[i], &r->s1[i], &r->s2[i]);
    }
}

struct step_scalars reference_step(struct reference *r, uint64_t step, double clip) {
    const struct layout *l = r->l;
    const struct model *m = l->model;
    sum_gradients(r, step);
    struct step_scalars s =
        step_scalars(&m->optimizer, sum_of_squares(r), l->world, clip, 1e-3, ++r->t);
    for (size_t t = 0; t < m->tensor_count; t++) {
        const struct tensor *x = &m->tensors[t];
        struct update_numbers u =
            update_numbers(&m->optimizer, &s, x->decay_multiplier, x->lr_multiplier);
        for (uint64_t i = 0; is_trained(m, t) && i < x->elements; i++) {
            update(r, m->optimizer.kind, &u, l->tensors[t].model_start + i);
        }
    }
    return s;
}

/* ---- looking ---- */

uint64_t reference_hash(const struct reference *r) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < r->l->elements; i++) {
        uint32_t bits;
        memcpy(&bits, &r->p[i], sizeof bits);
        sum += hash_element(i, bits);
    }
    return sum;
}

static void put(enum dtype d, const float *from, uint64_t n, uint8_t *to) {
    if (d == DTYPE_FP32) {
        memcpy(to, from, n * sizeof *from);
    } else if (d == DTYPE_BF16) {
        plain()->to_bf16(n, from, (uint16_t *)(void *)to);
    } else {
        plain()->to_fp16(n, from, (uint16_t *)(void *)to);
    }
}

bool reference_equal(const struct reference *r, size_t unit, const void *params) {
    const struct layout *l = r->l;
    const struct unit *u = &l->model->units[unit];
    uint8_t *expected = calloc(1, l->units[unit].param_bytes + 1);
    for (size_t t = u->first; t < u->first + u->tensors; t++) {
        if (tensor_has_place(&l->model->tensors[t])) {
            const struct range *range = &l->ranges[l->tensors[t].range];
            uint64_t at = range->param_offset + l->tensors[t].offset * dtype_bytes(range->dtype);
            put(range->dtype, r->p + l->tensors[t].model_start, l->model->tensors[t].elements,
                expected + at);
        }
    }
    bool equal = !memcmp(expected, params, l->units[unit].param_bytes);
    free(expected);
    return equal;
}
