/* The whole update of a step (whole.h) against reading and writing as many bytes in place. Against
 * PyTorch and DeepSpeed: peers_update.py. */
#include <stdio.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/opt.h"
#include "kernels/kernels.h"
#include "tests/bench/table.h"
#include "tests/bench/whole.h"

struct job {
    struct whole *whole;
    unsigned threads;
    size_t n;
    float *bound; /* n floats */
};

static double update(void *context) {
    const struct job *j = context;
    return WHOLE_BYTES * (double)j->n / whole_update(j->whole);
}

static void work_multiply(void *context, size_t from, size_t to) {
    const struct job *j = context;
    ceiling_multiply(to - from, 0.99999994f, j->bound + from);
}

static double multiply(void *context) {
    struct job *j = context;
    return 8.0 * (double)j->n / bench_threads(j->threads, j->n, work_multiply, j);
}

int main(int argc, char **argv) {
    uint64_t n, rounds;
    bool help;
    struct opt options[] = {
        OPT_UNSIGNED('n', "elements", "N", "33554432", NULL, NORM_BLOCK, UINT64_C(1) << 32, &n,
                     "Elements of the shard; a multiple of 65,536 is taken."),
        OPT_UNSIGNED('r', "rounds", "R", "7", NULL, 1, BENCH_MAX_ROUNDS, &rounds,
                     "Times that each pair is measured."),
        OPT_FLAG('h', "help", &help, "Print this help."),
        OPT_END,
    };
    struct err e;
    int rest;
    log_name("bench_update");
    if (opt_parse(options, argc, argv, &rest, &e)) {
        log_error("%s", e.text);
        return 2;
    }
    if (help) {
        printf("usage: bench_update [options]\n\n");
        opt_help(options, stdout);
        return 0;
    }
    n = n / NORM_BLOCK * NORM_BLOCK;
    float *bound = bench_memory(n * sizeof *bound);
    for (unsigned threads = 1; threads <= 2; threads++) {
        char what[64];
        struct job j = {whole_new(n, threads), threads, (size_t)n, bound};
        (void)snprintf(what, sizeof what, "whole update, %u thread%s", threads,
                       threads > 1 ? "s" : "");
        (void)bench_row(&(struct bench_pair){.what = what,
                                             .against = "in-place multiply",
                                             .unit = "GB/s",
                                             .scale = 1e9,
                                             .ours = update,
                                             .peer = multiply,
                                             .context = &j},
                        (unsigned)rounds);
        whole_del(j.whole);
    }
    munmap(bound, n * sizeof *bound);
    return 0;
}
