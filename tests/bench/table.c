#include "tests/bench/table.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"

enum { MAX_THREADS = 64 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts; the lower of the two middle ones when |n| is even. */
static double median(double *x, unsigned n) {
    qsort(x, n, sizeof *x, ascending);
    return x[(n - 1) / 2];
}

static void print_head(void) {
    static int printed;
    const char *wanted = getenv("ZEROD_BENCH_HEAD");
    if (!printed && !(wanted && !strcmp(wanted, "0"))) {
        printf("%-30s %14s %14s  %-22s %19s\n", "what", "ours", "against", "",
               "ratio: min  median     max");
    }
    printed = 1;
}

double bench_row(const struct bench_pair *p, unsigned rounds) {
    double ours[BENCH_MAX_ROUNDS], peer[BENCH_MAX_ROUNDS], ratio[BENCH_MAX_ROUNDS];
    assert(rounds >= 1 && rounds <= BENCH_MAX_ROUNDS);
    (void)p->ours(p->context);
    (void)p->peer(p->context);
    for (unsigned i = 0; i < rounds; i++) {
        if (i % 2) {
            peer[i] = p->peer(p->context);
            ours[i] = p->ours(p->context);
        } else {
            ours[i] = p->ours(p->context);
            peer[i] = p->peer(p->context);
        }
        ratio[i] = ours[i] / peer[i];
    }
    double middle = median(ratio, rounds);
    print_head();
    printf("%-30s %9.2f %-4s %9.2f %-4s  %-22s %10.2f %7.2f %7.2f\n", p->what,
           median(ours, rounds) / p->scale, p->unit, median(peer, rounds) / p->scale, p->unit,
           p->against, ratio[0], middle, ratio[rounds - 1]);
    (void)fflush(stdout);
    return middle;
}

void *bench_memory(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        log_error("no memory for a benchmark: %zu bytes", bytes);
        exit(EXIT_FAILURE);
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* slower without, nothing else */
    memset(p, 0, bytes);
    return p;
}

struct share {
    void (*work)(void *context, size_t from, size_t to);
    void *context;
    size_t from, to;
};

static void *run_share(void *p) {
    const struct share *s = p;
    s->work(s->context, s->from, s->to);
    return NULL;
}

double bench_threads(unsigned threads, size_t n,
                     void (*work)(void *context, size_t from, size_t to), void *context) {
    pthread_t id[MAX_THREADS];
    struct share s[MAX_THREADS];
    assert(threads >= 1 && threads <= MAX_THREADS);
    size_t each = (n / threads + 63) / 64 * 64;
    for (unsigned i = 0; i < threads; i++) {
        size_t from = i * each < n ? i * each : n;
        s[i] = (struct share){work, context, from, n - from < each ? n : from + each};
    }
    s[threads - 1].to = n;
    int64_t start = clock_ns();
    for (unsigned i = 1; i < threads; i++) {
        if (pthread_create(&id[i], NULL, run_share, &s[i])) {
            log_error("no thread %u of %u for a benchmark", i, threads);
            exit(EXIT_FAILURE);
        }
    }
    run_share(&s[0]);
    for (unsigned i = 1; i < threads; i++) {
        pthread_join(id[i], NULL);
    }
    return (double)(clock_ns() - start) / 1e9;
}
