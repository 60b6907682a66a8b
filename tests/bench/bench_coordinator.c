/* A coordinator with 1,024 simulated daemons on one core: all votes of a step in, decided, told,
 * from packed votes to packed decisions (process/convert.h, job/). Against the wire's own part of
 * it, unpacking the votes and packing the decision once. Durations: less is better. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "process/convert.h"
#include "tests/bench/table.h"

enum { RANKS = 1024, ROUNDS = 21, VOTE_MAX = 1024 };

struct job {
    struct job_coordinator *coordinator;
    uint64_t step;
    uint8_t packed[RANKS][VOTE_MAX];
    size_t bytes[RANKS];
    uint64_t told, committed;
    uint8_t decision[VOTE_MAX];
};

static void on_ask(void *ctx, unsigned rank, uint64_t generation, const uint8_t uuid[JOB_UUID]) {
    (void)ctx;
    (void)rank;
    (void)generation;
    (void)uuid;
}
static void on_begin(void *ctx, unsigned rank, const struct fence *f, int code,
                     const char *reason) {
    (void)ctx;
    (void)rank;
    (void)f;
    (void)code;
    (void)reason;
}
static void on_decision(void *ctx, unsigned rank, uint64_t generation, const struct decision *d) {
    struct job *j = ctx;
    struct decision_message m;
    (void)rank;
    (void)generation;
    decision_to_message(d, &m);
    j->told += zerod__v1__decision__pack(&m.decision, j->decision);
}
static void on_determined(void *ctx, const struct decision *d, int code, const char *reason) {
    (void)code;
    (void)reason;
    ((struct job *)ctx)->committed += d->outcome == OUTCOME_COMMIT;
}
static void on_give_up(void *ctx, int code, const char *reason) {
    (void)ctx;
    log_error("the coordinator gave up: %d %s", code, reason);
    exit(EXIT_FAILURE);
}

static const struct job_coordinator_ops ops = {on_ask, on_begin, on_decision, on_determined,
                                               on_give_up};

static struct vote vote_of(const struct job *j, unsigned rank) {
    struct vote v = {.fence = {1, j->step, 1},
                     .yes = true,
                     .sum_squares = 1 + rank,
                     .weight = 1,
                     .scalars = {.learning_rate = 0.01, .micro_batches = 1},
                     .user_count = JOB_USER};
    for (unsigned i = 0; i < JOB_USER; i++) {
        v.user[i] = rank * 0.5 + i;
    }
    return v;
}

static void pack_votes(struct job *j) {
    for (unsigned r = 0; r < RANKS; r++) {
        const struct vote v = vote_of(j, r);
        struct vote_message m;
        vote_to_message(&v, false, &m);
        if (zerod__v1__vote__get_packed_size(&m.vote) > VOTE_MAX) {
            log_error("a vote of more than %d bytes", VOTE_MAX);
            exit(EXIT_FAILURE);
        }
        j->bytes[r] = zerod__v1__vote__pack(&m.vote, j->packed[r]);
    }
}

/* Unpacks all votes and gives each to |coordinator|, unless it is NULL. */
static void take_votes(struct job *j, struct job_coordinator *coordinator) {
    for (unsigned r = 0; r < RANKS; r++) {
        Zerod__V1__Vote *m = zerod__v1__vote__unpack(NULL, j->bytes[r], j->packed[r]);
        struct vote v;
        struct err e;
        if (!m || vote_from_message(m, &v, &e)) {
            log_error("a vote that cannot be read");
            exit(EXIT_FAILURE);
        }
        if (coordinator) {
            job_coordinator_on_vote(coordinator, r, &v, 0);
        }
        zerod__v1__vote__free_unpacked(m, NULL);
    }
}

static double decide_step(void *context) {
    struct job *j = context;
    pack_votes(j);
    const int64_t start = clock_ns();
    take_votes(j, j->coordinator);
    const double seconds = (double)(clock_ns() - start) * 1e-9;
    if (j->committed != ++j->step) {
        log_error("step %llu was not committed", (unsigned long long)j->step - 1);
        exit(EXIT_FAILURE);
    }
    return seconds;
}

static double unpack_only(void *context) {
    struct job *j = context;
    const int64_t start = clock_ns();
    take_votes(j, NULL);
    return (double)(clock_ns() - start) * 1e-9;
}

int main(void) {
    static struct job j;
    const uint8_t uuid[JOB_UUID] = "bench";
    const struct decide_options options = {
        .optimizer = optimizer_defaults(), .scaling = {.start = 1}, .max_skips_in_row = 50};
    const struct job_report nothing = {0};
    log_name("bench_coordinator");
    j.coordinator = job_coordinator_new(RANKS, uuid, &options, &ops, &j);
    for (unsigned r = 0; r < RANKS; r++) {
        job_coordinator_joined(j.coordinator, r, 0);
    }
    for (unsigned r = 0; r < RANKS; r++) {
        job_coordinator_on_grant(j.coordinator, r, 1, &nothing);
    }
    job_coordinator_ready(j.coordinator);
    (void)bench_row(&(struct bench_pair){.what = "decide a step, 1,024 daemons",
                                         .against = "unpacking their votes",
                                         .unit = "ms",
                                         .scale = 1e-3,
                                         .ours = decide_step,
                                         .peer = unpack_only,
                                         .context = &j},
                    ROUNDS);
    job_coordinator_del(j.coordinator);
    return 0;
}
