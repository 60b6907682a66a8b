#include "tests/bench/shm_ranks.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/log.h"
#include "tests/bench/table.h"

void bench_must(int rc, const struct err *e) {
    if (rc) {
        log_error("%s", e->text);
        exit(EXIT_FAILURE);
    }
}

uint64_t shm_ranks_part(const struct shm_ranks *j) {
    return j->elements / j->layout.world;
}

/* ---- what a kind needs of a rank ---- */

static enum comm_memory memory_of(const struct shm_ranks *j) {
    return j->kind == COMM_ALL_REDUCE ? COMM_KEPT : COMM_MASTER;
}

/* Of both units. */
static uint64_t all_bytes(const struct shm_ranks *j) {
    return j->layout.padded * sizeof(float);
}

static uint64_t state_bytes(const struct shm_ranks *j) {
    return all_bytes(j) / (j->kind == COMM_ALL_REDUCE ? 1 : j->layout.world);
}

static uint64_t grads_bytes(const struct shm_ranks *j) {
    return j->layout.largest_grad_elements * sizeof(float);
}

static uint64_t sum_bytes(const struct shm_ranks *j) {
    return shm_ranks_part(j) * sizeof(float);
}

/* ---- making them ---- */

static void alloc(struct arena *a, const char *name, uint64_t bytes) {
    struct err e;
    arena_init(a);
    arena_carve(a, bytes, 0, &a->lines.fixed);
    bench_must(arena_alloc(a, name, ARENA_SHARED, &e), &e);
}

static int readonly(const struct arena *a) {
    struct err e;
    int fd;
    bench_must(arena_readonly(a, &fd, &e), &e);
    return fd;
}

static void add_unit(struct model *m, const char *name, const char *tensor, uint64_t elements) {
    struct err e;
    struct tensor t = model_tensor(tensor, 1, &elements);
    bench_must(model_add_unit(m, name, 1, &e), &e);
    bench_must(model_add_tensor(m, &t, &e), &e);
}

static void make_layout(struct shm_ranks *j, unsigned ranks, uint64_t elements) {
    struct err e;
    struct model *m = &j->model;
    model_defaults(m);
    m->strategy = j->kind == COMM_ALL_REDUCE ? STRATEGY_DDP : STRATEGY_ZERO3;
    add_unit(m, "unit", "tensor", elements);
    add_unit(m, "small unit", "small tensor", 1);
    bench_must(model_add_plan(m, "train", &e), &e);
    for (uint32_t u = 0; u < 2; u++) {
        bench_must(model_add_op(m, PLAN_GATHER, u, &e), &e);
        bench_must(model_add_op(m, PLAN_REDUCE, u, &e), &e);
    }
    bench_must(model_check(m, &e), &e);
    bench_must(layout_init(&j->layout, m, ranks, &e), &e);
    j->elements = j->layout.ranges[0].padded;
}

static void make_rank(struct shm_ranks *j, unsigned rank) {
    struct shm_rank *r = &j->ranks[rank];
    struct err e;
    bench_must(device_cpu(1, &r->device, &e), &e);
    alloc(&r->page, "bench-control", control_bytes(&j->layout, 1));
    alloc(&r->state, "bench-state", state_bytes(j));
    struct shm_options o = {
        .layout = &j->layout,
        .rank = rank,
        .grad_slots = 1,
        .kernels = j->k,
        .device = r->device,
        .page = r->page.base,
    };
    o.memory[memory_of(j)] = (struct shm_memory){r->state.base, 0, state_bytes(j)};
    r->comm = shm_new(&o);
    if (j->kind == COMM_ALL_GATHER) {
        alloc(&r->slot, "bench-slot", all_bytes(j));
    }
    if (j->kind == COMM_REDUCE_SCATTER) {
        alloc(&r->grads, "bench-grads", grads_bytes(j));
        r->sum = bench_memory(sum_bytes(j));
        shm_own_grads(r->comm, r->grads.base);
    }
}

static void map_peer(struct shm_ranks *j, unsigned rank, unsigned peer) {
    struct err e;
    const struct shm_rank *from = &j->ranks[peer];
    struct comm *c = j->ranks[rank].comm;
    const int fds[SHM_FDS] = {readonly(&from->page), readonly(&from->state), -1};
    bench_must(shm_peer_state(c, peer, fds, &e), &e);
    if (j->kind == COMM_REDUCE_SCATTER) {
        bench_must(shm_peer_grads(c, peer, 1, readonly(&from->grads), &e), &e);
    }
}

void shm_ranks_up(struct shm_ranks *j, enum comm_kind kind, unsigned ranks, uint64_t bytes) {
    struct err e;
    *j = (struct shm_ranks){.kind = kind};
    bench_must(kernels_select(NULL, &j->k, &e), &e);
    make_layout(j, ranks, bytes / sizeof(float));
    j->ranks = mem_zeroed(ranks, sizeof *j->ranks);
    for (unsigned r = 0; r < ranks; r++) {
        make_rank(j, r);
    }
    for (unsigned a = 0; a < ranks; a++) {
        for (unsigned b = 0; b < ranks; b++) {
            if (a != b) {
                map_peer(j, a, b);
            }
        }
    }
}

void shm_ranks_down(struct shm_ranks *j) {
    for (unsigned i = 0; i < j->layout.world; i++) {
        struct shm_rank *r = &j->ranks[i];
        r->comm->ops->del(r->comm);
        arena_free(&r->page);
        arena_free(&r->state);
        if (j->kind == COMM_ALL_GATHER) {
            arena_free(&r->slot);
        }
        if (j->kind == COMM_REDUCE_SCATTER) {
            arena_free(&r->grads);
            munmap(r->sum, sum_bytes(j));
        }
        r->device->ops->del(r->device);
    }
    free(j->ranks);
    layout_free(&j->layout);
    model_free(&j->model);
}
