/* Reduces: each sums the slots of the inner group into this rank's kept gradients. After a unit's
 * last one of the last micro-batch the kept gradients are summed over the outer group, if there is
 * more than this rank in it: each rank its piece, and then, unless a rank updates no more than its
 * piece (zero1), each fetches the others'. Everything runs in the order of the plan, so counters
 * say what is next. */
#include <assert.h>
#include <math.h>

#include "engine/inner.h"

/* The try's last reduce is done: adds up the ranges in order of registration. */
void reduce_conclude(struct engine *e) {
    struct attempt *t = &e->t;
    bool all = t->done == course_total(&e->reduces);
    if (e->l->outer > 1) {
        all = all && (e->l->optimizer_split ? t->summed : t->shared) == e->final_count;
    }
    if (all) {
        t->sum_squares = 0;
        for (size_t i = 0; i < e->l->range_count; i++) {
            if (!e->l->ranges[i].frozen) {
                t->sum_squares += e->sums[i];
            }
        }
        t->reduced = true;
    }
}

/* ---- the inner group ---- */

static bool is_last(const struct engine *e, uint32_t sequence) {
    const struct course *c = &e->reduces;
    uint32_t unit = course_unit(c, sequence);
    return sequence >= course_total(c) - c->length &&
           e->ordinals[sequence % c->length] + 1 == e->model->units[unit].contributions;
}

/* How many reduces of its unit come before it in the try. */
static uint64_t number_of(const struct engine *e, uint32_t sequence) {
    const struct course *c = &e->reduces;
    uint64_t batch = sequence / c->length;
    return batch * e->model->units[course_unit(c, sequence)].contributions +
           e->ordinals[sequence % c->length];
}

static bool reduce_next(struct engine *e, struct op *o) {
    const struct attempt *t = &e->t;
    if (!t->open || t->fence.step == 0 || t->done >= t->asked) {
        return false;
    }
    o->tag = slots_tag(e, t->done, t->used);
    o->unit = o->tag.unit;
    o->last = is_last(e, t->done);
    return e->versions[o->unit] == t->fence.step - 1 && /* else the update reads kept gradients */
           e->comm->ops->can_reduce(e->comm, &o->tag);
}

static bool reduce_range(struct engine *e, const struct op *o, size_t range, bool add) {
    const struct place *p = &e->places.ranges[range];
    const struct comm_sum w = {
        .at = e->l->ranges[range].grad_offset + p->kept.from,
        .count = p->kept.count,
        .from = e->model->wire_dtype,
        .kept = e->model->kept_dtype,
        .add = add,
        .to = memory_kept(e, range),
    };
    return e->comm->ops->reduce_scatter(e->comm, &o->tag, &w);
}

static void reduce_run(struct engine *e, struct op *o) {
    struct unit_state *state = &e->mem.units[o->unit];
    const struct unit_place *u = &e->l->units[o->unit];
    uint64_t number = number_of(e, o->tag.sequence);
    assert(!number || (fence_equal(&state->kept, &o->tag.fence) && state->kept_count == number));
    state->kept_count = 0; /* while it is written it is nothing */
    for (size_t i = u->first; i < u->first + u->trainable && o->ok; i++) {
        o->ok = reduce_range(e, o, i, number > 0);
    }
    if (!o->ok) {
        return;
    }
    e->comm->ops->put_mark(e->comm, &o->tag);
    for (size_t i = u->first; i < u->first + u->trainable; i++) {
        /* A slot's padding is whatever its last user left there. */
        pieces_zero_gaps(&e->places.kept, i, memory_kept(e, i), e->places.ranges[i].kept.count,
                         dtype_bytes(e->model->kept_dtype));
    }
    state->kept = o->tag.fence;
    state->kept_count = number + 1;
    if (o->last && e->l->outer == 1) {
        norm_pieces(e, o->unit);
    }
}

static void reduce_finish(struct engine *e, struct op *o) {
    if (!o->ok) {
        return;
    }
    if (o->last && e->l->outer > 1) {
        e->comm->ops->put_kept(e->comm, o->unit, &o->tag.fence);
    }
    e->t.used += o->tag.slot != COMM_ABSENT;
    e->t.done++;
    reduce_conclude(e);
}

static uint64_t *reduce_clock(struct engine *e) {
    return &e->reduce_ns;
}

const struct op_kind op_reduce = {true, reduce_next, reduce_run, reduce_finish, reduce_clock};

/* ---- the outer group ---- */

/* The next unit for one of the halves; |through|: how many are through it. */
static bool half_next(struct engine *e, struct op *o, uint32_t through,
                      bool (*can)(struct comm *c, size_t unit, const struct fence *f)) {
    if (!e->t.open || e->t.fence.step == 0 || e->l->outer == 1 || through == e->final_count) {
        return false;
    }
    o->unit = course_unit(&e->reduces, e->finals[through]);
    o->tag.fence = e->t.fence;
    return can(e->comm, o->unit, &e->t.fence);
}

static bool sum_next(struct engine *e, struct op *o) {
    uint32_t before = course_total(&e->reduces) - e->reduces.length;
    uint32_t through = e->t.summed, last = e->t.done > before ? e->t.done - before : 0;
    return through < e->final_count && e->finals[through] < last &&
           half_next(e, o, through, e->comm->ops->can_sum);
}

static bool sum_range(struct engine *e, size_t range) {
    const struct place *p = &e->places.ranges[range];
    enum dtype kept = e->model->kept_dtype;
    uint64_t from = p->piece.from - p->kept.from;
    const struct comm_sum w = {
        .at = p->kept_at + from,
        .count = p->piece.count,
        .from = kept,
        .kept = kept,
        .to = memory_kept(e, range) + from * dtype_bytes(kept),
    };
    enum comm_kind kind = e->l->optimizer_split ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE;
    return e->comm->ops->sum(e->comm, kind, &w);
}

static void sum_run(struct engine *e, struct op *o) {
    const struct unit_place *u = &e->l->units[o->unit];
    for (size_t i = u->first; i < u->first + u->trainable && o->ok; i++) {
        o->ok = sum_range(e, i);
    }
    if (o->ok) {
        e->comm->ops->put_reduced(e->comm, o->unit, &o->tag.fence);
        norm_pieces(e, o->unit);
    }
}

static void sum_finish(struct engine *e, struct op *o) {
    if (o->ok) {
        e->t.summed++;
        reduce_conclude(e);
    }
}

const struct op_kind op_sum = {true, sum_next, sum_run, sum_finish, reduce_clock};

static bool share_next(struct engine *e, struct op *o) {
    return !e->l->optimizer_split && e->t.shared < e->t.summed &&
           half_next(e, o, e->t.shared, e->comm->ops->can_share);
}

static void share_run(struct engine *e, struct op *o) {
    const struct unit_place *u = &e->l->units[o->unit];
    uint64_t element = dtype_bytes(e->model->kept_dtype);
    for (size_t i = u->first; i < u->first + u->trainable && o->ok; i++) {
        const struct place *p = &e->places.ranges[i];
        const struct comm_copy w = {
            .group = COMM_OUTER,
            .memory = COMM_KEPT,
            .kind = COMM_ALL_REDUCE,
            .at = p->kept_at * element,
            .step = p->piece.count * element,
            .count = p->piece.count,
            .element = element,
            .to = memory_kept(e, i),
        };
        o->ok = e->comm->ops->all_gather(e->comm, &w);
    }
}

static void share_finish(struct engine *e, struct op *o) {
    if (o->ok) {
        e->t.shared++;
        reduce_conclude(e);
    }
}

const struct op_kind op_share = {true, share_next, share_run, share_finish, reduce_clock};
