/* Reduces. zero2 and zero3 sum each micro-batch's slots of all ranks into this rank's part of the
 * kept gradients; ddp adds its own slot to kept gradients of full length and, after the last
 * micro-batch, all-reduces them in place, in two halves. Everything runs in the order of the plan,
 * so counters say what is next. */
#include <assert.h>
#include <math.h>

#include "engine/inner.h"

uint32_t reduce_total(const struct engine *e) {
    return e->t.fence.step == 0 ? (uint32_t)e->units : course_total(&e->reduces);
}

/* ---- gradient slots ---- */

/* Has everyone who reads the |sequence|th slot of this try done so? */
static bool is_read(struct engine *e, uint32_t sequence) {
    if (sequence >= e->t.done) {
        return false; /* not even here */
    }
    return e->t.fence.step == 0 || !e->l->grads_sharded ||
           e->comm->ops->slot_is_read(e->comm, sequence % e->o.slots.grad, &e->t.fence, sequence);
}

bool reduce_grant(struct engine *e) {
    struct attempt *t = &e->t;
    uint32_t before = t->granted;
    while (t->open && e->attached && t->granted < reduce_total(e) &&
           (t->granted < e->o.slots.grad || is_read(e, t->granted - e->o.slots.grad))) {
        t->granted++;
    }
    return t->granted != before;
}

/* ---- norm ---- */

struct norm {
    struct engine *e;
    const float *x;
    uint64_t n, blocks;
};

static void norm_share(void *ctx, unsigned thread, unsigned threads) {
    const struct norm *w = ctx;
    uint64_t from = w->blocks * thread / threads, to = w->blocks * (thread + 1) / threads;
    for (uint64_t b = from; b < to; b++) {
        uint64_t at = b * NORM_BLOCK, left = w->n - at;
        w->e->blocks[b] =
            w->e->o.kernels->sum_squares(left < NORM_BLOCK ? left : NORM_BLOCK, w->x + at);
    }
}

/* kernels_norm of this rank's part, by all threads; blocks are added in order whoever summed them.
 */
void reduce_part_norm(struct engine *e, struct op *o) {
    struct norm w = {.e = e,
                     .x = e->mem.kept + e->places.units[o->unit].part_at,
                     .n = e->l->units[o->unit].part};
    w.blocks = (w.n + NORM_BLOCK - 1) / NORM_BLOCK;
    worker_launch(e, w.n, norm_share, &w);
    o->sum_squares = 0;
    for (uint64_t b = 0; b < w.blocks; b++) {
        o->sum_squares += e->blocks[b];
    }
}

/* The try's last reduce is done: adds up the units in order of registration. */
static void conclude(struct engine *e) {
    struct attempt *t = &e->t;
    bool all = t->done == reduce_total(e) && (e->l->grads_sharded || t->shared == e->units);
    if (all) {
        t->sum_squares = 0;
        for (size_t u = 0; u < e->units; u++) {
            t->sum_squares += e->sums[u];
        }
        t->reduced = true;
    }
}

/* ---- one slot ---- */

static bool is_last_batch(const struct engine *e, uint32_t sequence) {
    return sequence >= course_total(&e->reduces) - e->reduces.length;
}

static bool reduce_next(struct engine *e, struct op *o) {
    const struct attempt *t = &e->t;
    uint32_t q = t->done, slot = q % e->o.slots.grad;
    if (!t->open || t->fence.step == 0 || q >= t->asked) {
        return false;
    }
    uint32_t unit = course_unit(&e->reduces, q);
    struct comm_tag tag = {t->fence, e->attachment, q, unit, e->l->units[unit].padded};
    if (e->versions[unit] != t->fence.step - 1 || /* else the update reads kept gradients still */
        (e->l->grads_sharded && !e->comm->ops->can_reduce(e->comm, slot, &tag))) {
        return false;
    }
    o->unit = unit;
    o->slot = slot;
    o->tag = tag;
    o->add = q >= e->reduces.length;
    o->norm = is_last_batch(e, q);
    return true;
}

struct accumulation {
    struct engine *e;
    const struct op *o;
    const float *from;
    float *to;
};

enum { GRAIN = 4096 };

static void accumulate_share(void *ctx, unsigned thread, unsigned threads) {
    const struct accumulation *w = ctx;
    uint64_t from, to;
    pool_share(w->e->l->units[w->o->unit].padded, GRAIN, thread, threads, &from, &to);
    const float *source = w->from + from;
    if (from < to) {
        w->e->o.kernels->sum(to - from, 1, &source, w->o->add, w->to + from);
    }
}

static void accumulate(struct engine *e, struct op *o, float *kept) {
    struct accumulation w = {e, o, memory_grad_slot(e, o->slot), kept};
    worker_launch(e, e->l->units[o->unit].padded, accumulate_share, &w);
}

static void reduce_run(struct engine *e, struct op *o) {
    const struct place *p = &e->places.units[o->unit];
    struct unit_state *state = &e->mem.units[o->unit];
    float *kept = e->mem.kept + p->kept_at;
    uint64_t batch = o->tag.sequence / e->reduces.length;
    assert(!o->add || (fence_equal(&state->kept, &o->tag.fence) && state->kept_count == batch));
    state->kept_count = 0; /* while it is written it is nothing */
    if (e->l->grads_sharded) {
        o->ok = e->comm->ops->reduce_scatter(e->comm, o->slot, &o->tag, o->add, kept);
    } else {
        accumulate(e, o, kept);
    }
    if (!o->ok) {
        return;
    }
    /* A slot's padding is whatever its last user left there. */
    pieces_zero_gaps(places_kept(&e->places), o->unit, kept, p->kept);
    state->kept = o->tag.fence;
    state->kept_count = batch + 1;
    if (o->norm && e->l->grads_sharded) {
        reduce_part_norm(e, o);
    }
}

static void reduce_finish(struct engine *e, struct op *o) {
    if (!o->ok) {
        return;
    }
    if (o->norm && e->l->grads_sharded) {
        e->sums[o->unit] = o->sum_squares;
    } else if (o->norm) {
        e->comm->ops->put_kept(e->comm, o->unit, &o->tag.fence);
    }
    e->t.done++;
    conclude(e);
}

static uint64_t *reduce_clock(struct engine *e) {
    return &e->reduce_ns;
}

const struct op_kind op_reduce = {true, reduce_next, reduce_run, reduce_finish, reduce_clock};

/* ---- ddp's all-reduce ---- */

/* The next unit of the last micro-batch for one of the halves; |limit|: how many may be through. */
static bool half_next(struct engine *e, struct op *o, uint32_t through, uint32_t limit,
                      bool (*can)(struct comm *c, size_t unit, const struct fence *f)) {
    if (!e->t.open || e->l->grads_sharded || e->t.fence.step == 0 || through >= limit) {
        return false;
    }
    o->unit = course_unit(&e->reduces, through);
    o->tag.fence = e->t.fence;
    return can(e->comm, o->unit, &e->t.fence);
}

static bool sum_next(struct engine *e, struct op *o) {
    uint32_t before = course_total(&e->reduces) - e->reduces.length;
    uint32_t complete = e->t.done > before ? e->t.done - before : 0;
    return half_next(e, o, e->t.summed, complete, e->comm->ops->can_sum);
}

static void sum_run(struct engine *e, struct op *o) {
    o->ok = e->comm->ops->sum_part(e->comm, o->unit, &o->tag.fence);
    if (o->ok) {
        reduce_part_norm(e, o);
    }
}

static void sum_finish(struct engine *e, struct op *o) {
    if (o->ok) {
        e->sums[o->unit] = o->sum_squares;
        e->t.summed++;
    }
}

const struct op_kind op_sum = {true, sum_next, sum_run, sum_finish, reduce_clock};

static bool share_next(struct engine *e, struct op *o) {
    return half_next(e, o, e->t.shared, e->t.summed, e->comm->ops->can_share);
}

static void share_run(struct engine *e, struct op *o) {
    o->ok = e->comm->ops->share_parts(e->comm, o->unit);
}

static void share_finish(struct engine *e, struct op *o) {
    if (o->ok) {
        e->t.shared++;
        conclude(e);
    }
}

const struct op_kind op_share = {true, share_next, share_run, share_finish, reduce_clock};
