/* What trainers do, and the fake of the protocol between their daemons. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "world.h"

static uint64_t draw(struct world *w) {
    return w->random = mix64(w->random);
}

/* ---- a trainer ---- */

static void open_try(struct trainer *t) {
    struct world *w = t->w;
    t->fence = (struct fence){w->generation, w->step, w->attempt};
    t->op = t->gathers = t->reduces = t->gathered = t->granted = 0;
    t->asked = t->finished = t->reduced = t->wants_void = t->cancelled = false;
    t->open = true;
    engine_open(t->e, &t->fence);
    engine_enter(t->e);
}

/* Values where tensors are; where padding is, what must never be seen. */
static void fill(struct trainer *t, uint32_t unit, float *slot) {
    struct world *w = t->w;
    uint64_t *index = calloc(w->layout.largest + 1, sizeof *index);
    uint32_t batch = t->reduces / (uint32_t)w->model.unit_count;
    reference_indices(&w->layout, unit, index);
    for (uint64_t i = 0; i < w->layout.units[unit].padded; i++) {
        if (index[i] == UINT64_MAX) {
            slot[i] = NAN;
        } else if (t->fence.step == 0) {
            slot[i] = reference_initial(index[i]) + (t->fence.attempt <= w->voids ? 5 : 0);
        } else {
            slot[i] = reference_gradient(t->fence.step, batch, t->rank, index[i]) *
                      (t->fence.attempt <= w->voids ? 1e6f : 1.0f);
        }
    }
    if (w->inf && t->rank == w->c.ranks - 1 && unit == 0) {
        slot[3] = INFINITY;
    }
    free(index);
}

static float *granted_slot(struct trainer *t) {
    uint64_t offset = t->grant_offset[t->reduces];
    ck_assert_uint_le(offset + t->w->layout.largest * sizeof(float), t->bytes[1]);
    return t->grads + offset / sizeof(float);
}

static bool move_load(struct trainer *t) {
    if (t->reduces == t->w->model.unit_count) {
        ck_assert_int_eq(engine_finish(t->e, NULL), 0);
        t->finished = true;
        return true;
    }
    if (t->granted <= t->reduces) {
        return false;
    }
    fill(t, t->reduces, granted_slot(t));
    ck_assert_int_eq(engine_load(t->e, t->reduces, NULL), 0);
    t->reduces++;
    return true;
}

static bool move_gather(struct trainer *t, uint32_t unit) {
    struct world *w = t->w;
    bool asked = t->asked;
    if (!asked) {
        ck_assert_int_eq(engine_gather(t->e, unit, NULL), 0);
        t->asked = true;
    }
    if (t->gathered <= t->gathers) {
        return !asked;
    }
    const uint8_t *params = t->params + t->gather_offset[t->gathers];
    ck_assert_msg(reference_equal(&w->ref, unit, params),
                  "rank %u step %lu unit %u: other parameters, seed %lu", t->rank,
                  (unsigned long)w->step, unit, (unsigned long)w->c.seed);
    if (w->c.compute_us) {
        usleep(w->c.compute_us);
        engine_events(t->e);
        ck_assert(reference_equal(&w->ref, unit, params));
    }
    ck_assert_int_eq(engine_release(t->e, unit, NULL), 0);
    t->gathers++;
    t->op++;
    t->asked = false;
    return true;
}

static bool move_reduce(struct trainer *t, uint32_t unit) {
    if (t->granted <= t->reduces) {
        return false;
    }
    fill(t, unit, granted_slot(t));
    ck_assert_int_eq(engine_reduce(t->e, unit, NULL), 0);
    t->reduces++;
    t->op++;
    return true;
}

/* One call of the trainer's, if it can make one. */
static bool move(struct trainer *t) {
    const struct plan *plan = model_plan(&t->w->model, "train");
    if (t->finished || !t->open) {
        return false;
    }
    if (t->fence.step == 0) {
        return move_load(t);
    }
    if (t->op == plan->count * t->w->c.micro_batches) {
        ck_assert_int_eq(engine_finish(t->e, NULL), 0);
        t->finished = true;
        return true;
    }
    const struct plan_op *op = &plan->ops[t->op % plan->count];
    return op->kind == PLAN_GATHER ? move_gather(t, op->unit) : move_reduce(t, op->unit);
}

void world_move(struct world *w, unsigned rank) {
    engine_events(w->trainers[rank].e);
    if (!move(&w->trainers[rank])) {
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
        bool moved = old ? move_void(t) : move(t);
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
        s = step_scalars(&w->model.adamw, sum, w->c.ranks, w->clip, 1e-3, w->ref.t + 1);
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
                stuck = !t->wants_void && !t->wants_grads && !move(t) && stuck;
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
