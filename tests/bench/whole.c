#include "tests/bench/whole.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/update.h"
#include "tests/bench/table.h"

struct whole {
    uint64_t n, step;
    unsigned threads;
    struct model model;
    struct layout layout;
    struct places places;
    struct update update;
    float *memory; /* g, p, m, v, then the copy of half the size */
    struct step_scalars scalars;
    double *norms; /* one a block */
};

static void must(int rc, const struct err *e) {
    if (rc) {
        log_error("%s", e->text);
        exit(EXIT_FAILURE);
    }
}

static void make_layout(struct whole *w) {
    struct err e;
    struct model *m = &w->model;
    struct tensor t = model_tensor("tensor", 1, &w->n);
    model_defaults(m);
    m->strategy = STRATEGY_ZERO3;
    m->param_dtype = DTYPE_BF16;
    must(model_add_unit(m, "unit", 1, &e), &e);
    must(model_add_tensor(m, &t, &e), &e);
    must(model_add_plan(m, "train", &e), &e);
    must(model_add_op(m, PLAN_GATHER, 0, &e), &e);
    must(model_add_op(m, PLAN_REDUCE, 0, &e), &e);
    must(model_check(m, &e), &e);
    must(layout_init(&w->layout, m, 1, &e), &e);
    places_init(&w->places, &w->layout, 0, UPDATE_TILE);
}

struct whole *whole_new(uint64_t elements, unsigned threads) {
    struct whole *w = mem_zeroed(1, sizeof *w);
    struct err e;
    w->n = elements;
    w->threads = threads;
    make_layout(w);
    w->memory = bench_memory(18 * elements);
    w->norms = mem_zeroed(elements / NORM_BLOCK, sizeof *w->norms);
    must(kernels_select(NULL, &w->update.kernels, &e), &e);
    for (uint64_t i = 0; i < elements; i++) {
        w->memory[i] = 1e-3f / (float)(1 + i % 1000);
        w->memory[elements + i] = 1.0f / (float)(1 + i % 777);
    }
    w->update.places = &w->places;
    w->update.kept = w->memory;
    w->update.master = w->memory + elements;
    w->update.state[0] = w->memory + 2 * elements;
    w->update.state[1] = w->memory + 3 * elements;
    w->update.held = (uint8_t *)(w->memory + 4 * elements);
    w->update.progress = aligned_alloc(64, WHOLE_MAX_THREADS * sizeof(struct progress));
    w->update.scratch = bench_memory(update_scratch_bytes(&w->model, threads));
    if (!w->update.progress) {
        log_error("no memory for a benchmark");
        exit(EXIT_FAILURE);
    }
    for (unsigned t = 0; t < WHOLE_MAX_THREADS; t++) {
        w->update.progress[t] = (struct progress){0};
    }
    return w;
}

void whole_del(struct whole *w) {
    munmap(w->memory, 18 * w->n);
    munmap(w->update.scratch, update_scratch_bytes(&w->model, w->threads));
    free(w->update.progress);
    free(w->norms);
    places_free(&w->places);
    layout_free(&w->layout);
    model_free(&w->model);
    free(w);
}

float *whole_gradients(struct whole *w) {
    return w->memory;
}

static void work_norm(void *context, size_t from, size_t to) {
    const struct whole *w = context;
    for (size_t b = from / 64; b < to / 64; b++) {
        w->norms[b] = w->update.kernels->sum_squares(NORM_BLOCK, w->memory + b * NORM_BLOCK);
    }
}

static void work_update(void *context, size_t from, size_t to) {
    const struct whole *w = context;
    for (size_t t = from / 64; t < to / 64; t++) {
        update_share(&w->update, 0, w->step, &w->scalars, (unsigned)t, w->threads);
    }
}

static void work_adamw(void *context, size_t from, size_t to) {
    const struct whole *w = context;
    const struct update_numbers u = update_numbers(&w->model.optimizer, &w->scalars, 1, 1);
    float *g = w->memory + from, *p = g + w->n, *m = p + w->n, *v = m + w->n;
    w->update.kernels->update[OPTIMIZER_ADAMW](&u, to - from, g, p, m, v, p, m, v);
}

/* bench_threads shares out multiples of 64: here a block or a thread each. */
double whole_update(struct whole *w) {
    const size_t blocks = (size_t)(w->n / NORM_BLOCK);
    double squares = 0, seconds = bench_threads(w->threads, blocks * 64, work_norm, w);
    for (size_t b = 0; b < blocks; b++) {
        squares += w->norms[b];
    }
    w->step++;
    w->scalars = step_scalars(&w->model.optimizer, squares, 4 * 1024.0, 1, 1e-4, w->step);
    return seconds + bench_threads(w->threads, (size_t)w->threads * 64, work_update, w);
}

double whole_adamw(struct whole *w) {
    w->step++;
    w->scalars = step_scalars(&w->model.optimizer, 1, 1, 0, 1e-4, w->step);
    return bench_threads(w->threads, w->n, work_adamw, w);
}
