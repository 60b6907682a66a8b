#include "world.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { HANG_SECONDS = 20 };

/* ---- callbacks ---- */

static void notify(void *ctx) {
    struct world *w = ((struct trainer *)ctx)->w;
    pthread_mutex_lock(&w->lock);
    w->notified++;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static void gathered(void *ctx, const struct fence *f, uint32_t position, uint32_t unit,
                     uint64_t offset, bool eval) {
    struct trainer *t = ctx;
    (void)unit;
    (void)eval;
    ck_assert(fence_equal(f, &t->fence));
    ck_assert_uint_eq(position, t->gathered);
    t->gather_offset[t->gathered++] = offset;
}

static void granted(void *ctx, const struct fence *f, uint32_t sequence, uint64_t offset) {
    struct trainer *t = ctx;
    ck_assert(fence_equal(f, &t->fence));
    ck_assert_uint_eq(sequence, t->granted);
    t->grant_offset[t->granted++] = offset;
}

static void reduced(void *ctx, const struct fence *f, double sum_squares, bool non_finite,
                    const uint64_t *checksums, size_t checksum_count) {
    struct trainer *t = ctx;
    ck_assert(fence_equal(f, &t->fence));
    ck_assert(!t->reduced);
    ck_assert_uint_eq(checksum_count, f->step == 0 ? t->w->model.unit_count : 0);
    t->reduced = true;
    t->sum_squares = sum_squares;
    t->non_finite = non_finite;
    t->checksums = checksums;
}

static void progress(void *ctx) {
    ((struct trainer *)ctx)->progressed++;
}

static void hashed(void *ctx, uint64_t sum, uint64_t version) {
    struct trainer *t = ctx;
    t->hashed = true;
    t->hash = sum;
    t->hash_version = version;
}

const struct engine_callbacks world_callbacks = {notify,  gathered, granted,
                                                 reduced, progress, hashed};

uint64_t world_seen(struct world *w) {
    pthread_mutex_lock(&w->lock);
    uint64_t seen = w->notified;
    pthread_mutex_unlock(&w->lock);
    return seen;
}

void world_wait(struct world *w, uint64_t seen) {
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += HANG_SECONDS;
    pthread_mutex_lock(&w->lock);
    while (w->notified == seen) {
        if (pthread_cond_timedwait(&w->cond, &w->lock, &limit) == ETIMEDOUT) {
            for (unsigned r = 0; r < w->c.ranks; r++) {
                const struct trainer *t = &w->trainers[r];
                fprintf(stderr,
                        "rank %u: step %lu.%lu op %u gathered %u granted %u reduces %u finished "
                        "%d reduced %d\n",
                        r, (unsigned long)t->fence.step, (unsigned long)t->fence.attempt, t->op,
                        t->gathered, t->granted, t->reduces, t->finished, t->reduced);
            }
            ck_abort_msg("hangs at step %lu, seed %lu", (unsigned long)w->step,
                         (unsigned long)w->c.seed);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- up and down ---- */

void world_maps(struct trainer *t) {
    int fds[2];
    engine_trainer_fds(t->e, fds, t->bytes);
    void *p = mmap(NULL, t->bytes[0], PROT_READ, MAP_SHARED, fds[0], 0);
    void *g = mmap(NULL, t->bytes[1], PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    ck_assert_ptr_ne(g, MAP_FAILED);
    t->params = p;
    t->grads = g;
}

static void unmap(struct trainer *t) {
    if (t->params) {
        munmap((void *)(uintptr_t)t->params, t->bytes[0]);
        munmap(t->grads, t->bytes[1]);
    }
    t->params = NULL;
}

void world_connect(struct world *w, unsigned a, unsigned b) {
    int fds[ENGINE_STATE_FDS];
    struct trainer *owner = &w->trainers[b];
    engine_state_fds(owner->e, fds);
    for (int i = 0; i < ENGINE_STATE_FDS; i++) {
        fds[i] = dup(fds[i]);
    }
    ck_assert_int_eq(engine_peer_state(w->trainers[a].e, b, fds, NULL), 0);
    ck_assert_int_eq(engine_peer_grads(w->trainers[a].e, b, owner->attachment,
                                       dup(engine_grad_fd(owner->e)), NULL),
                     0);
}

void world_attach(struct world *w, unsigned rank) {
    struct trainer *t = &w->trainers[rank];
    unmap(t);
    ck_assert_int_eq(engine_attach(t->e, ++t->attachment, NULL), 0);
    world_maps(t);
}

struct world *world_up(const struct config *c) {
    struct world *w = calloc(1, sizeof *w);
    struct err e = {0};
    w->c = *c;
    w->random = c->seed;
    w->generation = 1;
    w->clip = 1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->cond, NULL);
    ck_assert_int_eq(kernels_select(c->isa, &w->kernels, NULL), 0);
    reference_model(&w->model, c->ranks, c->small, c->strategy, c->param, c->micro_batches);
    ck_assert_int_eq(layout_init(&w->layout, &w->model, c->ranks, NULL), 0);
    reference_init(&w->ref, &w->layout);
    size_t events = w->model.unit_count * 4 * c->micro_batches;
    for (unsigned r = 0; r < c->ranks; r++) {
        struct trainer *t = &w->trainers[r];
        struct engine_options o = {.rank = r,
                                   .threads = c->threads,
                                   .slots = c->slots,
                                   .kernels = w->kernels,
                                   .records_bytes = 1000};
        *t = (struct trainer){.w = w, .rank = r, .attachment = 10 * r};
        t->gather_offset = calloc(events, sizeof *t->gather_offset);
        t->grant_offset = calloc(events, sizeof *t->grant_offset);
        int rc = engine_new(&w->layout, &o, &world_callbacks, t, &t->e, &e);
        ck_assert_msg(!rc, "%s", e.text);
        world_attach(w, r);
    }
    for (unsigned a = 0; a < c->ranks; a++) {
        for (unsigned b = 0; b < c->ranks; b++) {
            if (a != b) {
                world_connect(w, a, b);
            }
        }
    }
    return w;
}

void world_down(struct world *w) {
    for (unsigned r = 0; w && r < w->c.ranks; r++) {
        struct trainer *t = &w->trainers[r];
        engine_del(t->e);
        unmap(t);
        free(t->gather_offset);
        free(t->grant_offset);
    }
    if (w) {
        reference_free(&w->ref);
        layout_free(&w->layout);
        model_free(&w->model);
        pthread_cond_destroy(&w->cond);
        pthread_mutex_destroy(&w->lock);
        free(w);
    }
}
