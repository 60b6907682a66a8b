/* The kernels against what this machine's memory gives, in the same run. Bytes are those that a
 * kernel must read and write, each counted once: AdamW and Adam 28 an element (g, p, m, v in; p, m,
 * v out), SGD with momentum and Lion 20, SGD without 12. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/opt.h"
#include "kernels/kernels.h"
#include "tests/bench/table.h"

enum { RANKS = 4, SLOW = 16 }; /* plain's updates call fmaf(): a 16th of the elements will do */

static const struct updates {
    const char *name;
    enum optimizer kind;
    float momentum;
    double bytes; /* an element */
} optimizers[] = {
    {"adamw", OPTIMIZER_ADAMW, 0, 28}, {"adam", OPTIMIZER_ADAM, 0, 28},
    {"sgd", OPTIMIZER_SGD, 0, 12},     {"sgd nesterov", OPTIMIZER_SGD, 0.9f, 20},
    {"lion", OPTIMIZER_LION, 0, 20},
};
enum { KINDS = sizeof optimizers / sizeof optimizers[0] };

struct job {
    const struct kernels *k;
    const struct updates *updates;
    unsigned threads;
    size_t n;             /* elements */
    float *g, *p, *m, *v; /* n each, one arena: the ceilings walk over it as a whole */
    uint64_t sum;         /* so that reading is not optimised away */
};

static const struct update_numbers numbers = {
    .multiplier = 0.25f,
    .beta2 = 0.999f,
    .one_minus_b1 = 0.1f,
    .one_minus_b2 = 0.001f,
    .epsilon = 1e-8f,
    .decay = -1e-5f,
    .step_size = -1e-3f,
    .l2 = 1e-3f,
    .inv_sqrt_c2 = 1.5f,
};

static void work_update(void *context, size_t from, size_t to) {
    const struct job *j = context;
    struct update_numbers u = numbers;
    u.momentum = j->updates->momentum;
    u.nesterov = u.momentum > 0;
    j->k->update[j->updates->kind](&u, to - from, j->g + from, j->p + from, j->m + from,
                                   j->v + from, j->p + from, j->m + from, j->v + from);
}

static double update(void *context) {
    const struct job *j = context;
    return j->updates->bytes * (double)j->n / bench_threads(j->threads, j->n, work_update, context);
}

static void work_multiply(void *context, size_t from, size_t to) {
    const struct job *j = context;
    ceiling_multiply(to - from, 0.99999994f, j->g + from);
}

/* As many bytes as the update moves, read and written in place: of AdamW 3.5 n floats. */
static double multiply(void *context) {
    const struct job *j = context;
    size_t n = j->n * (size_t)j->updates->bytes / 8;
    return 8.0 * (double)n / bench_threads(j->threads, n, work_multiply, context);
}

static void work_copy(void *context, size_t from, size_t to) {
    const struct job *j = context;
    j->k->copy((to - from) * sizeof(float), j->g + from, j->m + from);
}

static void work_memcpy(void *context, size_t from, size_t to) {
    const struct job *j = context;
    memcpy(j->m + from, j->g + from, (to - from) * sizeof(float));
}

static double copy(void *context) {
    const struct job *j = context;
    return 8.0 * (double)j->n / bench_threads(j->threads, j->n, work_copy, context);
}

static double plain_memcpy(void *context) {
    const struct job *j = context;
    return 8.0 * (double)j->n / bench_threads(j->threads, j->n, work_memcpy, context);
}

static void work_sum_bf16(void *context, size_t from, size_t to) {
    const struct job *j = context;
    const uint16_t *g = (const void *)j->g; /* the first half of the arena */
    const uint16_t *sources[RANKS] = {g + from, g + j->n + from, g + 2 * j->n + from,
                                      g + 3 * j->n + from};
    j->k->sum_bf16(to - from, RANKS, sources, false, j->v + from);
}

static double sum_bf16(void *context) {
    const struct job *j = context;
    return (2.0 * RANKS + 4) * (double)j->n /
           bench_threads(j->threads, j->n, work_sum_bf16, context);
}

static void work_to_fp16(void *context, size_t from, size_t to) {
    const struct job *j = context;
    j->k->to_fp16(to - from, j->g + from, (uint16_t *)(void *)j->m + from);
}

static double to_fp16(void *context) {
    const struct job *j = context;
    return 6.0 * (double)j->n / bench_threads(j->threads, j->n, work_to_fp16, context);
}

static void work_to_bf16(void *context, size_t from, size_t to) {
    const struct job *j = context;
    j->k->to_bf16(to - from, j->g + from, (uint16_t *)(void *)j->m + from);
}

static double to_bf16(void *context) {
    const struct job *j = context;
    return 6.0 * (double)j->n / bench_threads(j->threads, j->n, work_to_bf16, context);
}

/* In place, as a reduce into a rank's own slot: four read, one of them written. */
static void work_sum(void *context, size_t from, size_t to) {
    const struct job *j = context;
    const float *sources[RANKS] = {j->g + from, j->p + from, j->m + from, j->v + from};
    j->k->sum(to - from, RANKS, sources, false, j->g + from);
}

static double sum(void *context) {
    const struct job *j = context;
    return 4.0 * (RANKS + 1) * (double)j->n / bench_threads(j->threads, j->n, work_sum, context);
}

static void work_squares(void *context, size_t from, size_t to) {
    const struct job *j = context;
    volatile double total = kernels_norm(j->k, to - from, j->g + from);
    (void)total;
}

static double squares(void *context) {
    const struct job *j = context;
    return 4.0 * (double)j->n / bench_threads(j->threads, j->n, work_squares, context);
}

static void work_read(void *context, size_t from, size_t to) {
    const struct job *j = context;
    volatile uint64_t total = ceiling_read((to - from) / 2, (const void *)(j->g + from));
    (void)total;
}

static double read_only(void *context) {
    const struct job *j = context;
    return 4.0 * (double)j->n / bench_threads(j->threads, j->n, work_read, context);
}

static void row(struct job *j, const char *kernel, bench_fn *ours, const char *against,
                bench_fn *peer, unsigned rounds) {
    char what[64];
    (void)snprintf(what, sizeof what, "%s %s, %u thread%s", kernel, j->k->isa, j->threads,
                   j->threads > 1 ? "s" : "");
    struct bench_pair pair = {.what = what,
                              .against = against,
                              .unit = "GB/s",
                              .scale = 1e9,
                              .ours = ours,
                              .peer = peer,
                              .context = j};
    (void)bench_row(&pair, rounds);
}

static void arena(struct job *j, size_t n) {
    float *x = bench_memory(4 * n * sizeof *x);
    for (size_t i = 0; i < 4 * n; i++) {
        x[i] = 1.0f / (float)(1 + i % 1000);
    }
    *j = (struct job){.n = n, .g = x, .p = x + n, .m = x + 2 * n, .v = x + 3 * n};
}

static void all_rows(struct job *j, unsigned rounds) {
    row(j, "copy", copy, "memcpy", plain_memcpy, rounds);
    row(j, "sum of 4", sum, "memcpy", plain_memcpy, rounds);
    row(j, "bf16 sum of 4", sum_bf16, "memcpy", plain_memcpy, rounds);
    row(j, "to_fp16", to_fp16, "to_bf16", to_bf16, rounds);
    row(j, "norm", squares, "read only", read_only, rounds);
}

static void update_rows(struct job *j, const struct kernels *k, size_t share, unsigned rounds) {
    const size_t whole = j->n;
    j->k = k;
    j->n = whole / share;
    for (size_t i = 0; i < KINDS; i++) {
        j->updates = &optimizers[i];
        row(j, optimizers[i].name, update, "in-place multiply", multiply, rounds);
    }
    j->n = whole;
}

int main(int argc, char **argv) {
    uint64_t n, rounds, threads;
    bool help;
    struct opt options[] = {
        OPT_UNSIGNED('n', "elements", "N", "67108864", NULL, 4096, UINT64_C(1) << 32, &n,
                     "Elements of each of the four arrays."),
        OPT_UNSIGNED('r', "rounds", "R", "7", NULL, 1, BENCH_MAX_ROUNDS, &rounds,
                     "Times that each pair is measured."),
        OPT_UNSIGNED('t', "threads", "T", "2", NULL, 1, 64, &threads,
                     "Most threads; one thread is always measured too."),
        OPT_FLAG('h', "help", &help, "Print this help."),
        OPT_END,
    };
    const struct kernels *list[3];
    struct err e;
    struct job j;
    int rest;
    log_name("bench_kernels");
    if (opt_parse(options, argc, argv, &rest, &e)) {
        log_error("%s", e.text);
        return 2;
    }
    if (help) {
        printf("usage: bench_kernels [options]\n\n");
        opt_help(options, stdout);
        return 0;
    }
    arena(&j, (size_t)n / 64 * 64);
    size_t sets = kernels_available(list);
    for (unsigned t = 1; t <= threads; t = t < threads ? (unsigned)threads : t + 1) {
        j.threads = t;
        for (size_t s = 0; s < sets; s++) {
            update_rows(&j, list[s], s ? 1 : SLOW, (unsigned)rounds);
        }
        all_rows(&j, (unsigned)rounds);
    }
    return 0;
}
