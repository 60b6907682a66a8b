#include "world.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"

enum { HANG_SECONDS = 20 };

static uint64_t draw(struct world *w) {
    return w->random = mix64(w->random);
}

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
    ck_assert_uint_ge(position, t->gathered);
    t->gather_offset[position] = offset;
    t->gathered = position + 1;
}

static void granted(void *ctx, const struct fence *f, uint32_t number, uint64_t offset) {
    struct trainer *t = ctx;
    ck_assert(fence_equal(f, &t->fence));
    ck_assert_uint_eq(number, t->granted);
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
    reference_model(&w->model, c->ranks, &c->model);
    ck_assert_int_eq(layout_init(&w->layout, &w->model, c->ranks, NULL), 0);
    reference_init(&w->ref, &w->layout);
    w->ref.absent = c->absent ? reference_absent : NULL;
    size_t events = model_plan(&w->model, "train")->count * w->model.micro_batches + 8;
    for (unsigned r = 0; r < c->ranks; r++) {
        struct trainer *t = &w->trainers[r];
        struct engine_options o = {.rank = r,
                                   .threads = c->threads,
                                   .slots = c->slots,
                                   .kernels = w->kernels,
                                   .records_bytes = 1000,
                                   .on_demand = c->on_demand};
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

static void open_try(struct trainer *t) {
    struct world *w = t->w;
    t->fence = (struct fence){w->generation, w->step, w->attempt};
    t->op = t->gathers = t->reduces = t->calls = t->gathered = t->granted = 0;
    t->asked = t->finished = t->reduced = t->wants_void = t->cancelled = false;
    t->open = true;
    engine_open(t->e, &t->fence);
    engine_enter(t->e);
}

void world_move(struct world *w, unsigned rank) {
    engine_events(w->trainers[rank].e);
    if (!trainer_move(&w->trainers[rank])) {
        usleep(200);
    }
}

/* ---- the protocol ---- */

/* The attempt is void; this rank learns of it in its own time. */
static bool move_void(struct trainer *t) {
    if (!t->cancelled) {
        engine_cancel(t->e, &t->fence);
        t->cancelled = true;
        t->open = false;
        return true;
    }
    if (!engine_idle(t->e)) {
        return false;
    }
    if (t->w->reattach && t->rank == 0) {
        world_attach(t->w, 0);
        for (unsigned r = 1; r < t->w->c.ranks; r++) {
            t->w->trainers[r].wants_grads = true;
        }
    }
    open_try(t);
    return true;
}

static void void_attempt(struct world *w) {
    w->attempt++;
    w->moves = 0;
    for (unsigned r = 0; r < w->c.ranks; r++) {
        w->trainers[r].wants_void = true;
        w->trainers[r].cancelled = false;
    }
}

static void map_new_grads(struct trainer *t) {
    const struct trainer *owner = &t->w->trainers[0];
    ck_assert_int_eq(
        engine_peer_grads(t->e, 0, owner->attachment, dup(engine_grad_fd(owner->e)), NULL), 0);
    t->wants_grads = false;
}

/* Moves ranks in a random order until none can; true: something moved. */
static bool move_all(struct world *w) {
    bool any = false;
    for (unsigned i = 0; i < 2 * w->c.ranks; i++) {
        struct trainer *t = &w->trainers[draw(w) % w->c.ranks];
        engine_events(t->e);
        bool old = t->wants_void && (t->cancelled || draw(w) % 3);
        bool moved = old ? move_void(t) : trainer_move(t);
        any = any || moved || t->wants_void || t->wants_grads;
        w->moves += moved;
        if (t->wants_grads && draw(w) % 4 == 0) {
            map_new_grads(t);
        }
        if (w->attempt <= w->voids && w->moves >= w->void_after) {
            void_attempt(w);
        }
    }
    return any;
}

static bool all_voted(struct world *w) {
    for (unsigned r = 0; r < w->c.ranks; r++) {
        struct trainer *t = &w->trainers[r];
        engine_events(t->e);
        if (t->wants_void || !t->finished || !t->reduced || !engine_quiet(t->e)) {
            return false;
        }
    }
    return true;
}

void world_open(struct world *w) {
    w->attempt = 1;
    w->moves = 0;
    for (unsigned r = 0; r < w->c.ranks; r++) {
        open_try(&w->trainers[r]);
    }
}

static void decide(struct world *w) {
    bool non_finite = false;
    double sum = 0;
    struct step_scalars s = {0};
    for (unsigned r = 0; r < w->c.ranks; r++) {
        non_finite = non_finite || w->trainers[r].non_finite;
        sum += w->trainers[r].sum_squares;
    }
    ck_assert_int_eq(non_finite, w->inf);
    if (w->step && !non_finite) {
        s = step_scalars(&w->model.optimizer, sum, w->c.ranks, w->clip, 1e-3, w->ref.t + 1);
        struct step_scalars expected = reference_step(&w->ref, w->step, w->clip);
        ck_assert(s.grad_norm == expected.grad_norm && s.multiplier == expected.multiplier);
    }
    for (unsigned r = 0; r < w->c.ranks; r++) {
        const uint64_t *sums = w->trainers[r].checksums, *first = w->trainers[0].checksums;
        for (size_t u = 0; w->step == 0 && u < w->model.unit_count; u++) {
            ck_assert_uint_eq(sums[u], first[u]);
        }
        engine_apply(w->trainers[r].e, w->step, !non_finite, &s);
        w->trainers[r].open = false;
    }
    w->inf = false;
    w->voids = 0;
    w->step++;
}

void world_finish_step(struct world *w) {
    for (;;) {
        uint64_t seen = world_seen(w);
        if (all_voted(w)) {
            if (w->attempt > w->voids) {
                break;
            }
            void_attempt(w); /* all said yes, but one yes was lost */
        }
        if (!move_all(w)) {
            bool stuck = true; /* the draw may have left a rank out */
            for (unsigned r = 0; r < w->c.ranks; r++) {
                struct trainer *t = &w->trainers[r];
                engine_events(t->e);
                stuck = !t->wants_void && !t->wants_grads && !trainer_move(t) && stuck;
            }
            if (stuck && !all_voted(w)) {
                world_wait(w, seen);
            }
        }
    }
    decide(w);
}

void world_load(struct world *w) {
    w->step = 0;
    world_open(w);
    world_finish_step(w);
}

void world_steps(struct world *w, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        world_open(w);
        world_finish_step(w);
    }
}

void world_quiet(struct world *w) {
    for (unsigned r = 0; r < w->c.ranks; r++) {
        for (;;) {
            uint64_t seen = world_seen(w);
            engine_events(w->trainers[r].e);
            if (engine_quiet(w->trainers[r].e)) {
                break;
            }
            world_wait(w, seen);
        }
    }
}

uint64_t world_hash(struct world *w) {
    uint64_t sum = 0;
    for (unsigned r = 0; r < w->c.ranks; r++) {
        struct trainer *t = &w->trainers[r];
        t->hashed = false;
        engine_hash(t->e);
        for (;;) {
            uint64_t seen = world_seen(w);
            engine_events(t->e);
            if (t->hashed) {
                break;
            }
            world_wait(w, seen);
        }
        ck_assert_uint_eq(t->hash_version, w->step - 1);
        sum += t->hash;
    }
    return sum;
}
