/* Collectives of daemon/comm, asked for by collectives.py:
 *
 *     collectives RANKS      then lines "KIND BYTES REPEATS" on standard input
 *
 * KIND: all-gather, reduce-scatter, all-reduce, or copy, each rank's non-temporal copy of as many
 * bytes of its own: what the memory gives. BYTES are a rank's: what it has gathered, or gives to be
 * summed; REPEATS are taken one after the other by all ranks, which are threads. Answers each line
 * with the seconds from when all begin to when the last is done.
 *
 * A collective is all that daemons do for one: publishing, waiting for the others, moving bytes,
 * and saying that they were read. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/bench/shm_ranks.h"
#include "tests/bench/table.h"

static unsigned world;
static struct shm_ranks job; /* what was asked for last; .ranks NULL: nothing yet */
static uint64_t job_bytes;

/* ---- the bound ---- */

static struct {
    uint64_t bytes; /* of each */
    uint8_t *from[SHM_RANKS_MAX], *to[SHM_RANKS_MAX];
} own;

static void need_own(uint64_t bytes) {
    if (own.bytes >= bytes) {
        return;
    }
    for (unsigned r = 0; r < world; r++) {
        if (own.bytes) {
            munmap(own.from[r], own.bytes);
            munmap(own.to[r], own.bytes);
        }
        own.from[r] = bench_memory(bytes);
        own.to[r] = bench_memory(bytes);
    }
    own.bytes = bytes;
}

/* ---- one collective of one rank ---- */

typedef bool ready_fn(struct comm *c, size_t unit, uint64_t round);

/* As the engine's worker does: look, ask, sleep until something was published. */
static void until(struct shm_rank *r, ready_fn *ready, size_t unit, uint64_t round) {
    for (;;) {
        r->comm->ops->look(r->comm);
        if (ready(r->comm, unit, round)) {
            return;
        }
        r->comm->ops->wait(r->comm, &r->word, 0);
    }
}

static bool others_hold(struct comm *c, size_t unit, uint64_t round) {
    return c->ops->can_gather(c, COMM_INNER, unit, round);
}

/* Versions of two units in turn: who publishes one's next version has seen the other's, so every
 * rank has seen this one. */
static void gather(unsigned rank, uint64_t round) {
    struct shm_rank *r = &job.ranks[rank];
    const struct comm_copy w = {.group = COMM_INNER,
                                .memory = COMM_MASTER,
                                .kind = COMM_ALL_GATHER,
                                .count = shm_ranks_part(&job),
                                .element = sizeof(float),
                                .to = r->slot.base};
    r->comm->ops->put_version(r->comm, round % 2, round);
    until(r, others_hold, round % 2, round);
    r->comm->ops->all_gather(r->comm, &w);
}

static struct fence fence_of(uint64_t round) {
    return (struct fence){1, round, 1};
}

static struct comm_tag tag_of(uint64_t round) {
    return (struct comm_tag){
        .fence = fence_of(round), .attachment = 1, .elements = job.layout.largest_grad_elements};
}

static bool others_give(struct comm *c, size_t unit, uint64_t round) {
    const struct comm_tag tag = tag_of(round);
    (void)unit;
    return c->ops->can_reduce(c, &tag);
}

static bool others_have_read(struct comm *c, size_t unit, uint64_t round) {
    const struct fence f = fence_of(round);
    (void)unit;
    return c->ops->is_read(c, &f, 0);
}

/* Ends when the slot is free again. */
static void reduce(unsigned rank, uint64_t round) {
    struct shm_rank *r = &job.ranks[rank];
    const struct comm_tag tag = tag_of(round);
    const struct comm_sum w = {.at = rank * shm_ranks_part(&job),
                               .count = shm_ranks_part(&job),
                               .from = DTYPE_FP32,
                               .kept = DTYPE_FP32,
                               .to = r->sum};
    r->comm->ops->put_tag(r->comm, &tag);
    until(r, others_give, 0, round);
    r->comm->ops->reduce_scatter(r->comm, &tag, &w);
    r->comm->ops->put_mark(r->comm, &tag);
    until(r, others_have_read, 0, round);
}

static bool others_keep(struct comm *c, size_t unit, uint64_t round) {
    const struct fence f = fence_of(round);
    return c->ops->can_sum(c, unit, &f);
}

static bool others_have_summed(struct comm *c, size_t unit, uint64_t round) {
    const struct fence f = fence_of(round);
    return c->ops->can_share(c, unit, &f);
}

/* In place: each sums its part, then fetches the others'. */
static void all_reduce(unsigned rank, uint64_t round) {
    struct shm_rank *r = &job.ranks[rank];
    const uint64_t part = shm_ranks_part(&job);
    const struct fence f = fence_of(round);
    float *kept = (float *)(void *)r->state.base;
    const struct comm_sum sum = {.at = rank * part,
                                 .count = part,
                                 .from = DTYPE_FP32,
                                 .kept = DTYPE_FP32,
                                 .to = kept + rank * part};
    const struct comm_copy share = {.group = COMM_OUTER,
                                    .memory = COMM_KEPT,
                                    .kind = COMM_ALL_REDUCE,
                                    .step = part * sizeof(float),
                                    .count = part,
                                    .element = sizeof(float),
                                    .to = kept};
    r->comm->ops->put_kept(r->comm, 0, &f);
    until(r, others_keep, 0, round);
    r->comm->ops->sum(r->comm, COMM_ALL_REDUCE, &sum);
    r->comm->ops->put_reduced(r->comm, 0, &f);
    until(r, others_have_summed, 0, round);
    r->comm->ops->all_gather(r->comm, &share);
}

static void copy(unsigned rank, uint64_t round) {
    (void)round;
    job.k->copy(job_bytes, own.from[rank], own.to[rank]);
}

/* ---- all ranks at once ---- */

struct task {
    void (*call)(unsigned rank, uint64_t round);
    uint64_t first, repeats;
    pthread_barrier_t barrier;
    int64_t start, end; /* rank 0's */
};

struct member {
    struct task *task;
    unsigned rank;
};

static void *run_member(void *p) {
    const struct member *m = p;
    struct task *t = m->task;
    pthread_barrier_wait(&t->barrier);
    if (m->rank == 0) {
        t->start = clock_ns();
    }
    for (uint64_t i = 0; i < t->repeats; i++) {
        t->call(m->rank, t->first + i);
    }
    pthread_barrier_wait(&t->barrier);
    if (m->rank == 0) {
        t->end = clock_ns();
    }
    return NULL;
}

static double run(struct task *t) {
    pthread_t id[SHM_RANKS_MAX];
    struct member members[SHM_RANKS_MAX];
    pthread_barrier_init(&t->barrier, NULL, world);
    for (unsigned r = 0; r < world; r++) {
        members[r] = (struct member){t, r};
        if (pthread_create(&id[r], NULL, run_member, &members[r])) {
            log_error("no thread for rank %u of %u", r, world);
            exit(EXIT_FAILURE);
        }
    }
    for (unsigned r = 0; r < world; r++) {
        pthread_join(id[r], NULL);
    }
    pthread_barrier_destroy(&t->barrier);
    return (double)(t->end - t->start) / 1e9;
}

/* ---- what is asked for ---- */

static const struct {
    const char *name;
    enum comm_kind kind;
    void (*call)(unsigned rank, uint64_t round);
} kinds[] = {{"all-gather", COMM_ALL_GATHER, gather},
             {"reduce-scatter", COMM_REDUCE_SCATTER, reduce},
             {"all-reduce", COMM_ALL_REDUCE, all_reduce}};

/* Ranks for the kind and size, those of before when they will do. */
static void need_job(enum comm_kind kind, uint64_t bytes) {
    if (job.ranks && job.kind == kind && job_bytes == bytes) {
        return;
    }
    if (job.ranks) {
        shm_ranks_down(&job);
    }
    shm_ranks_up(&job, kind, world, bytes);
    job_bytes = bytes;
}

static bool answer(const char *kind, uint64_t bytes, uint64_t repeats) {
    static uint64_t round = 1; /* goes on, as steps do */
    struct task t = {.first = round, .repeats = repeats, .call = copy};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(kind, kinds[i].name)) {
            need_job(kinds[i].kind, bytes);
            t.call = kinds[i].call;
        }
    }
    if (t.call == copy) {
        if (strcmp(kind, "copy") != 0) {
            return false;
        }
        if (!job.ranks || job_bytes != bytes) {
            need_job(COMM_ALL_GATHER, bytes);
        }
        need_own(bytes);
    }
    round += repeats;
    printf("%.9f\n", run(&t));
    (void)fflush(stdout);
    return true;
}

int main(int argc, char **argv) {
    char line[128], kind[32];
    unsigned long long bytes, repeats;
    log_name("collectives");
    world = argc == 2 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    if (world < 2 || world > SHM_RANKS_MAX) {
        log_error("usage: collectives RANKS, 2 to %d", SHM_RANKS_MAX);
        return 2;
    }
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%31s %llu %llu", kind, &bytes, &repeats) != 3 || !bytes || bytes % 4 ||
            !repeats || !answer(kind, bytes, repeats)) {
            log_error("expected KIND BYTES REPEATS, got: %s", line);
            return 2;
        }
    }
    if (job.ranks) {
        shm_ranks_down(&job);
    }
    return 0;
}
