/* The backward pass against central differences, in double, for every tensor of a tiny model: as it
 * is, with tied weights, with recomputed activations.
 *
 * Built twice: as it is, and with a sign error planted in a backward function
 * (-DGPT_PLANTED_SIGN_ERROR), where this check must report tensors that disagree. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "client/examples/gpt/model.h"
#include "tests/base/suite.h"

enum { UNITS = 4, SEED = 20240 };

static const struct gpt_shape shapes[] = {
    {.layers = 2, .heads = 2, .channels = 6, .seq = 5, .batch = 3, .vocab = 11},
    {.layers = 2, .heads = 2, .channels = 6, .seq = 5, .batch = 3, .vocab = 11, .tied = true},
    {.layers = 2, .heads = 2, .channels = 6, .seq = 5, .batch = 3, .vocab = 11, .recompute = true},
};

struct fixture {
    struct gpt_shape shape;
    struct gpt gpt;
    struct gpt_unit unit[UNITS];
    uint64_t offset[UNITS][GPT_UNIT_TENSORS];
    uint64_t elements[UNITS];
    double *params[UNITS], *grad[UNITS];
    double shared[11 * 6]; /* the head's part of a tied embedding's gradient */
};

/* Uniform on [-1, 1]. */
static double noise(uint64_t place) {
    return (double)(mix64(mix64(SEED) ^ place) >> 11) * 0x1p-52 - 1;
}

static void fill(struct fixture *f) {
    uint64_t place = 0;
    for (size_t u = 0; u < UNITS; u++) {
        gpt_describe(&f->shape, u, &f->unit[u]);
        for (size_t i = 0; i < f->unit[u].count; i++) {
            f->offset[u][i] = f->elements[u] + 3; /* gaps, as padding makes them */
            f->elements[u] = f->offset[u][i] + f->unit[u].tensors[i].elements;
        }
        f->params[u] = calloc(f->elements[u], sizeof(double));
        f->grad[u] = calloc(f->elements[u], sizeof(double));
        for (size_t i = 0; i < f->unit[u].count; i++) {
            const struct gpt_tensor *t = &f->unit[u].tensors[i];
            if (t->tied) {
                continue;
            }
            for (size_t j = 0; j < t->elements; j++) {
                f->params[u][f->offset[u][i] + j] = t->constant + 0.5 * noise(place++);
            }
        }
    }
    const struct gpt_shape *s = &f->shape;
    for (size_t i = 0; i < s->batch * s->seq; i++) {
        f->gpt.tokens[i] = (uint8_t)(mix64(i) % s->vocab);
        f->gpt.targets[i] = (uint8_t)(mix64(i + 1000) % s->vocab);
    }
    f->gpt.tied = f->params[0] + f->offset[0][EMBED_WTE];
    f->gpt.d_tied = f->shared;
}

static double loss(struct fixture *f) {
    for (size_t u = 0; u < UNITS; u++) {
        gpt_forward(&f->gpt, u, f->params[u], f->offset[u]);
    }
    return f->gpt.loss;
}

/* |numeric - backward| / |backward| over one tensor, Euclidean norms. */
static double disagreement(struct fixture *f, size_t u, size_t i) {
    const double h = 3e-5;
    double difference = 0, size = 0;
    for (size_t j = 0; j < f->unit[u].tensors[i].elements; j++) {
        double *p = &f->params[u][f->offset[u][i] + j], kept = *p;
        *p = kept + h;
        const double above = loss(f);
        *p = kept - h;
        const double below = loss(f);
        *p = kept;
        const double g = f->grad[u][f->offset[u][i] + j], d = (above - below) / (2 * h) - g;
        difference += d * d;
        size += g * g;
    }
    return sqrt(difference / size);
}

/* What a store does with two contributions. */
static void add_shared(struct fixture *f) {
    double *wte = f->grad[0] + f->offset[0][EMBED_WTE];
    for (size_t i = 0; f->shape.tied && i < f->shape.vocab * f->shape.channels; i++) {
        wte[i] += f->shared[i];
    }
}

/* How many tensors disagree by more than 1e-6; each is printed. */
static size_t check_all(struct fixture *f) {
    size_t wrong = 0;
    double worst = 0;
    loss(f);
    for (size_t u = UNITS; u-- > 0;) {
        /* Every element must be overwritten: what lay there before may not show. */
        for (size_t j = 0; j < f->elements[u]; j++) {
            f->grad[u][j] = 1e30;
        }
        gpt_backward(&f->gpt, u, f->params[u], f->offset[u], f->grad[u], f->offset[u]);
    }
    add_shared(f);
    for (size_t u = 0; u < UNITS; u++) {
        for (size_t i = 0; i < f->unit[u].count; i++) {
            if (f->unit[u].tensors[i].tied) {
                continue;
            }
            const double d = disagreement(f, u, i);
            worst = d > worst ? d : worst;
            if (!(d <= 1e-6)) {
                printf("%s disagrees: %.2e\n", f->unit[u].tensors[i].name, d);
                wrong++;
            }
        }
    }
    printf("worst tensor %.2e relative, %zu over 1e-6\n", worst, wrong);
    return wrong;
}

START_TEST(backward_agrees_with_differences) {
    struct fixture f = {.shape = shapes[_i]};
    struct err e;
    ck_assert_int_eq(gpt_init(&f.gpt, &f.shape, rows_select("plain"), &e), 0);
    fill(&f);
    const size_t wrong = check_all(&f);
#ifdef GPT_PLANTED_SIGN_ERROR
    ck_assert_msg(wrong > 0, "the planted sign error was not found");
#else
    ck_assert_msg(wrong == 0, "%zu tensors disagree", wrong);
#endif
    for (size_t u = 0; u < UNITS; u++) {
        ck_assert(f.grad[u][0] >= 1e30); /* the gap is left alone */
        free(f.params[u]);
        free(f.grad[u]);
    }
    gpt_free(&f.gpt);
}
END_TEST

/* All blocks' activations but one go; the inputs of all stay. */
START_TEST(recomputation_saves_memory) {
    struct gpt all, one;
    struct err e;
    ck_assert_int_eq(gpt_init(&all, &shapes[0], rows_select("plain"), &e), 0);
    ck_assert_int_eq(gpt_init(&one, &shapes[2], rows_select("plain"), &e), 0);
    const size_t rows = 3 * 5, block = rows * (6 * 6 + 2 * 4 * 6 + 4); /* and probabilities */
    ck_assert_uint_gt(all.arena_elements, one.arena_elements + block);
    ck_assert_ptr_ne(one.residual[0], one.residual[1]);
    gpt_free(&all);
    gpt_free(&one);
}
END_TEST

START_TEST(refuses_shapes_that_do_not_fit) {
    struct gpt g;
    struct err e;
    struct gpt_shape s = shapes[0];
    s.heads = 4;
    ck_assert_int_eq(gpt_init(&g, &s, rows_select("plain"), &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "6 channels are no multiple of 4 heads");
    s = shapes[0];
    s.layers = 0;
    ck_assert_int_eq(gpt_init(&g, &s, rows_select("plain"), &e), -ST_INVALID_ARGUMENT);
    s = shapes[0];
    s.batch = 1 << 20;
    s.seq = 1 << 20;
    ck_assert_int_eq(gpt_init(&g, &s, rows_select("plain"), &e), -ST_INVALID_ARGUMENT);
    s = (struct gpt_shape){.layers = 1,
                           .heads = 1 << 20,
                           .channels = 1 << 20,
                           .seq = 1 << 24,
                           .batch = 1,
                           .vocab = 11}; /* more than a size_t counts */
    ck_assert_int_eq(gpt_init(&g, &s, rows_select("plain"), &e), -ST_RESOURCE_EXHAUSTED);
}
END_TEST

int main(void) {
    Suite *s = suite_create("gradients");
    TCase *t = tcase_create("gradients");
    tcase_set_timeout(t, 30);
    tcase_add_loop_test(t, backward_agrees_with_differences, 0,
                        (int)(sizeof shapes / sizeof *shapes));
    tcase_add_test(t, recomputation_saves_memory);
    tcase_add_test(t, refuses_shapes_that_do_not_fit);
    suite_add_tcase(s, t);
    return run_suite(s);
}
