/* Benchmarks: two things measured in turn in the same run, and one row of a table for them.
 * Machines are noisy and differ, so what counts is the ratio of neighbouring runs; absolute numbers
 * are there to be read. Nothing here judges.
 *
 *     what                        ours     against                     ratio: min  median    max
 *     adamw avx2, 1 thread   33.9 GB/s   33.2 GB/s  read-modify-write        1.01    1.02   1.05
 *
 * The head is printed before the first row unless ZEROD_BENCH_HEAD=0 (tests/bench/run sets it so
 * that several programs make one table).
 */
#ifndef ZD_TESTS_BENCH_TABLE_H
#define ZD_TESTS_BENCH_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { BENCH_MAX_ROUNDS = 64 };

/* One measurement: does the work once and returns its rate (bytes/s, or whatever |unit| says) or
 * its duration; |context| is the caller's. */
typedef double bench_fn(void *context);

struct bench_pair {
    const char *what;    /* at most 30 letters */
    const char *against; /* what the second function is, at most 22 letters */
    const char *unit;    /* of the numbers printed, "GB/s" */
    double scale;        /* printed number = measured / scale, 1e9 */
    bench_fn *ours, *peer;
    void *context;
};

/* Measures both once unrecorded, then |rounds| times in turn (the first of each round alternates),
 * and prints the row: medians, and minimum, median, maximum of ours/peer of each round. Returns the
 * median ratio. rounds: 1 to BENCH_MAX_ROUNDS. */
double bench_row(const struct bench_pair *p, unsigned rounds);

/* Zeroed private memory on huge pages where the kernel gives them. Ends the program with a message
 * when there is none. Free with munmap. */
void *bench_memory(size_t bytes);

/* Calls work(context, from, to) on |threads| threads that share [0, n) at multiples of 64; returns
 * the seconds until the last is done. */
double bench_threads(unsigned threads, size_t n,
                     void (*work)(void *context, size_t from, size_t to), void *context);

/* Ceilings, compiled for the best vectors of this CPU, not unrolled by hand. */
void ceiling_multiply(size_t n, float by, float *x);    /* x *= by in place: read, modify, write */
uint64_t ceiling_read(size_t n, const uint64_t *words); /* adds them up: read only */

#endif
