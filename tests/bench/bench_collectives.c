/* Collectives on shared memory against what the memory gives: each rank copying as many bytes of
 * its own with non-temporal stores, in the same run. Ranks are threads that map each other's
 * memfds, as daemons do. Payload is a rank's: what it gathers, or what it gives to be summed; the
 * ranks run at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/opt.h"
#include "comm/control.h"
#include "comm/shm.h"
#include "tests/bench/table.h"

enum { GRAIN = 64 }; /* bench_threads' */

struct rank {
    struct device *device;
    struct arena page, state, grads, slot; /* slot: what it gathers into */
    float *sum;
    uint8_t *from, *to; /* private: of the bound */
    struct comm *comm;
};

struct job {
    struct model model;
    struct layout layout;
    const struct kernels *k;
    struct rank *ranks; /* layout.world, owned */
};

static void must(int rc, const struct err *e) {
    if (rc) {
        log_error("%s", e->text);
        exit(1);
    }
}

static void alloc(struct arena *a, const char *name, uint64_t bytes) {
    struct err e;
    arena_init(a);
    arena_carve(a, bytes, 0, &a->lines.fixed);
    must(arena_alloc(a, name, ARENA_SHARED, &e), &e);
}

static int readonly(const struct arena *a) {
    struct err e;
    int fd;
    must(arena_readonly(a, &fd, &e), &e);
    return fd;
}

static void make_layout(struct job *j, enum strategy s, unsigned ranks, uint64_t elements) {
    struct err e;
    struct model *m = &j->model;
    struct tensor t = model_tensor("tensor", 1, &elements);
    model_defaults(m);
    m->strategy = s;
    must(model_add_unit(m, "unit", 1, &e), &e);
    must(model_add_tensor(m, &t, &e), &e);
    must(model_add_plan(m, "train", &e), &e);
    must(model_add_op(m, PLAN_GATHER, 0, &e), &e);
    must(model_add_op(m, PLAN_REDUCE, 0, &e), &e);
    must(model_check(m, &e), &e);
    must(layout_init(&j->layout, m, ranks, &e), &e);
}

static uint64_t payload(const struct job *j) {
    return j->layout.padded * sizeof(float);
}

/* Bytes of a rank's share of the unit, in the inner group. */
static uint64_t share(const struct job *j) {
    return payload(j) / j->layout.inner;
}

static void make_rank(struct job *j, unsigned rank) {
    struct rank *r = &j->ranks[rank];
    struct err e;
    uint64_t bytes = payload(j);
    must(device_cpu(1, &r->device, &e), &e);
    alloc(&r->page, "bench-control", control_bytes(&j->layout, 1));
    alloc(&r->state, "bench-state", share(j));
    alloc(&r->grads, "bench-grads", bytes);
    alloc(&r->slot, "bench-slot", bytes);
    r->sum = bench_memory(share(j));
    r->from = bench_memory(bytes);
    r->to = bench_memory(bytes);
    struct shm_options o = {
        .layout = &j->layout,
        .rank = rank,
        .grad_slots = 1,
        .kernels = j->k,
        .device = r->device,
        .page = r->page.base,
    };
    /* Masters where they are gathered, kept gradients where they are summed. */
    o.memory[j->layout.params_sharded ? COMM_MASTER : COMM_KEPT] =
        (struct shm_memory){r->state.base, 0, share(j)};
    r->comm = shm_new(&o);
    shm_own_grads(r->comm, r->grads.base);
}

static void up(struct job *j, enum strategy s, unsigned ranks, uint64_t elements) {
    struct err e;
    make_layout(j, s, ranks, elements);
    j->ranks = mem_zeroed(ranks, sizeof *j->ranks);
    for (unsigned r = 0; r < ranks; r++) {
        make_rank(j, r);
    }
    for (unsigned a = 0; a < ranks; a++) {
        for (unsigned b = 0; b < ranks; b++) {
            const struct rank *peer = &j->ranks[b];
            struct comm *c = j->ranks[a].comm;
            if (a != b) {
                const int fds[SHM_FDS] = {readonly(&peer->page), readonly(&peer->state), -1};
                must(shm_peer_state(c, b, fds, &e), &e);
                must(shm_peer_grads(c, b, 1, readonly(&peer->grads), &e), &e);
            }
        }
    }
}

static struct comm_tag tag_of(const struct job *j) {
    return (struct comm_tag){
        .fence = {1, 1, 1}, .attachment = 1, .elements = j->layout.largest_grad_elements};
}

/* Every rank's slot holds the unit's gradient, and every rank has seen it. */
static void publish(struct job *j) {
    const struct comm_tag tag = tag_of(j);
    for (unsigned r = 0; r < j->layout.world; r++) {
        j->ranks[r].comm->ops->put_tag(j->ranks[r].comm, &tag);
    }
    for (unsigned r = 0; r < j->layout.world; r++) {
        if (!j->ranks[r].comm->ops->can_reduce(j->ranks[r].comm, &tag)) {
            log_error("rank %u does not see the others' gradients", r);
            exit(1);
        }
    }
}

static void down(struct job *j) {
    for (unsigned i = 0; i < j->layout.world; i++) {
        struct rank *r = &j->ranks[i];
        r->comm->ops->del(r->comm);
        arena_free(&r->page);
        arena_free(&r->state);
        arena_free(&r->grads);
        arena_free(&r->slot);
        munmap(r->sum, share(j));
        munmap(r->from, payload(j));
        munmap(r->to, payload(j));
        r->device->ops->del(r->device);
    }
    free(j->ranks);
    layout_free(&j->layout);
    model_free(&j->model);
}

/* ---- what is measured: one call a rank, all at once ---- */

static double rate(struct job *j, void (*work)(void *context, size_t from, size_t to)) {
    unsigned n = j->layout.world;
    return (double)payload(j) / bench_threads(n, (size_t)n * GRAIN, work, j);
}

static void work_gather(void *context, size_t from, size_t to) {
    struct job *j = context;
    for (size_t i = from / GRAIN; i < to / GRAIN; i++) {
        struct rank *r = &j->ranks[i];
        const struct comm_copy w = {.group = COMM_INNER,
                                    .memory = COMM_MASTER,
                                    .kind = COMM_ALL_GATHER,
                                    .count = share(j) / sizeof(float),
                                    .element = sizeof(float),
                                    .to = r->slot.base};
        r->comm->ops->all_gather(r->comm, &w);
    }
}

static void work_reduce(void *context, size_t from, size_t to) {
    struct job *j = context;
    const struct comm_tag tag = tag_of(j);
    for (size_t i = from / GRAIN; i < to / GRAIN; i++) {
        struct rank *r = &j->ranks[i];
        const struct comm_sum w = {.at = i * share(j) / sizeof(float),
                                   .count = share(j) / sizeof(float),
                                   .from = DTYPE_FP32,
                                   .kept = DTYPE_FP32,
                                   .to = r->sum};
        r->comm->ops->reduce_scatter(r->comm, &tag, &w);
    }
}

static void work_sum(void *context, size_t from, size_t to) {
    struct job *j = context;
    uint64_t piece = payload(j) / sizeof(float) / j->layout.outer;
    for (size_t i = from / GRAIN; i < to / GRAIN; i++) {
        struct rank *r = &j->ranks[i];
        const struct comm_sum w = {.at = i * piece,
                                   .count = piece,
                                   .from = DTYPE_FP32,
                                   .kept = DTYPE_FP32,
                                   .to = (float *)(void *)r->state.base + i * piece};
        r->comm->ops->sum(r->comm, COMM_ALL_REDUCE, &w);
    }
}

static void work_share(void *context, size_t from, size_t to) {
    struct job *j = context;
    uint64_t piece = payload(j) / sizeof(float) / j->layout.outer;
    for (size_t i = from / GRAIN; i < to / GRAIN; i++) {
        struct rank *r = &j->ranks[i];
        const struct comm_copy w = {.group = COMM_OUTER,
                                    .memory = COMM_KEPT,
                                    .kind = COMM_ALL_REDUCE,
                                    .step = piece * sizeof(float),
                                    .count = piece,
                                    .element = sizeof(float),
                                    .to = r->state.base};
        r->comm->ops->all_gather(r->comm, &w);
    }
}

static void work_copy(void *context, size_t from, size_t to) {
    const struct job *j = context;
    for (size_t r = from / GRAIN; r < to / GRAIN; r++) {
        j->k->copy(payload(j), j->ranks[r].from, j->ranks[r].to);
    }
}

static double gather(void *context) {
    return rate(context, work_gather);
}
static double reduce(void *context) {
    return rate(context, work_reduce);
}
static double copy(void *context) {
    return rate(context, work_copy);
}

static double all_reduce(void *context) {
    double sum = 1 / rate(context, work_sum), share = 1 / rate(context, work_share);
    return 1 / (sum + share);
}

static void row(struct job *j, const char *name, bench_fn *ours, unsigned rounds) {
    char what[64];
    (void)snprintf(what, sizeof what, "%s, %u ranks", name, j->layout.world);
    bench_row(&(struct bench_pair){.what = what,
                                   .against = "non-temporal copy",
                                   .unit = "GiB/s",
                                   .scale = 1024.0 * 1024 * 1024,
                                   .ours = ours,
                                   .peer = copy,
                                   .context = j},
              rounds);
}

int main(int argc, char **argv) {
    uint64_t mib, rounds;
    bool help;
    struct opt options[] = {
        OPT_UNSIGNED('m', "mib", "M", "64", NULL, 1, 4096, &mib, "Payload of each rank, in MiB."),
        OPT_UNSIGNED('r', "rounds", "R", "7", NULL, 1, BENCH_MAX_ROUNDS, &rounds,
                     "Times that each pair is measured."),
        OPT_FLAG('h', "help", &help, "Print this help."),
        OPT_END,
    };
    static struct job j;
    struct err e;
    int rest;
    log_name("bench_collectives");
    if (opt_parse(options, argc, argv, &rest, &e)) {
        log_error("%s", e.text);
        return 2;
    }
    if (help) {
        printf("usage: bench_collectives [options]\n\n");
        opt_help(options, stdout);
        return 0;
    }
    must(kernels_select(NULL, &j.k, &e), &e);
    for (unsigned ranks = 2; ranks <= 4; ranks += 2) {
        uint64_t elements = mib * 1024 * 1024 / sizeof(float);
        up(&j, STRATEGY_ZERO3, ranks, elements);
        row(&j, "all-gather", gather, (unsigned)rounds);
        publish(&j);
        row(&j, "reduce-scatter", reduce, (unsigned)rounds);
        down(&j);
        up(&j, STRATEGY_DDP, ranks, elements);
        row(&j, "all-reduce", all_reduce, (unsigned)rounds);
        down(&j);
    }
    return 0;
}
