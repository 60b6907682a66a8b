/* Step 0: first values. Of a unit that the trainer loads it wrote all values, the same on every
 * rank, into the load slot; this rank takes what it keeps. Tensors with an initialiser this rank
 * makes itself, as far as it keeps them. No peer is needed; that all ranks were given the same
 * shows in the checksums. Becomes version 0 by the decision of step 0. */
#include <string.h>

#include "engine/inner.h"
#include "kernels/init.h"

static bool is_loaded(const struct engine *e, size_t unit) {
    const struct attempt *t = &e->t;
    return t->done < e->load_count && e->loads[t->done] == unit;
}

static bool load_next(struct engine *e, struct op *o) {
    const struct attempt *t = &e->t;
    if (!t->open || t->fence.step != 0 || t->loaded == e->units) {
        return false;
    }
    o->unit = t->loaded;
    return !is_loaded(e, o->unit) || t->done < t->asked;
}

/* ---- values ---- */

enum { TILE = 4096, GRAIN = 1024 };

/* Filling one buffer's stretch of a range from its segments. */
struct filling {
    struct engine *e;
    size_t range;
    const struct pieces *pieces;
    enum dtype dtype;
    void *to;
};

/* |n| values of a tensor from element |at|: the trainer's, or made in |tile|. */
static const float *values(const struct engine *e, size_t tensor, uint64_t at, uint64_t n,
                           float *tile) {
    const struct tensor *t = &e->model->tensors[tensor];
    const struct tensor_place *p = &e->l->tensors[tensor];
    uint64_t seed = init_seed(t->init.seed, p->model_start);
    switch (t->init.kind) {
    case INIT_LOADED:
        return (const float *)(const void *)e->mem.arenas[ARENA_GRADS].base +
               e->l->ranges[p->range].load_offset + p->offset + at;
    case INIT_ZEROS:
        init_constant(n, 0, tile);
        break;
    case INIT_CONSTANT:
        init_constant(n, t->init.a, tile);
        break;
    case INIT_NORMAL:
        init_normal(seed, at, n, t->init.a, t->init.b, tile);
        break;
    case INIT_UNIFORM:
        init_uniform(seed, at, n, t->init.a, t->init.b, tile);
        break;
    }
    return tile;
}

static void put(const struct filling *w, uint64_t at, const float *from, uint64_t n) {
    const struct kernels *k = w->e->o.kernels;
    if (w->dtype == DTYPE_BF16) {
        k->to_bf16(n, from, (uint16_t *)w->to + at);
    } else if (w->dtype == DTYPE_FP16) {
        k->to_fp16(n, from, (uint16_t *)w->to + at);
    } else {
        memcpy((float *)w->to + at, from, n * sizeof *from);
    }
}

static void fill_share(void *ctx, unsigned thread, unsigned threads) {
    const struct filling *w = ctx;
    const struct pieces *q = w->pieces;
    float tile[TILE];
    for (size_t i = q->first[w->range]; i < q->first[w->range + 1]; i++) {
        const struct segment *g = &q->list[i];
        uint64_t from, to;
        pool_share(g->count, GRAIN, thread, threads, &from, &to);
        for (uint64_t at = from; at < to; at += TILE) {
            uint64_t n = to - at < TILE ? to - at : TILE;
            put(w, g->range_offset + at, values(w->e, g->tensor, g->tensor_offset + at, n, tile),
                n);
        }
    }
}

/* Padding is zero since the memory is new; an earlier, void try left no more than this one does. */
static void fill_range(struct engine *e, size_t range) {
    const struct place *p = &e->places.ranges[range];
    const struct memory_map *m = &e->mem;
    if (!p->from_master) {
        uint8_t *held = e->l->params_sharded ? m->shard : m->params;
        struct filling w = {e, range, &e->places.held, e->l->ranges[range].dtype,
                            held + p->held_at};
        worker_launch(e, p->held.count, fill_share, &w);
    }
    if (!e->l->ranges[range].frozen) {
        struct filling w = {e, range, &e->places.updated, DTYPE_FP32, m->master + p->optimizer_at};
        worker_launch(e, p->updated.count, fill_share, &w);
        for (int k = 0; k < UPDATE_STATES && m->state[k]; k++) {
            memset(m->state[k] + p->optimizer_at, 0, p->updated.count * sizeof(float));
        }
    }
}

/* Of what the trainer gave. */
static uint64_t checksum(const struct engine *e, size_t unit) {
    const struct unit *u = &e->model->units[unit];
    uint64_t sum = 0;
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        const struct tensor *t = &e->model->tensors[i];
        if (tensor_has_place(t) && t->init.kind == INIT_LOADED) {
            sum += e->o.kernels->hash(e->l->tensors[i].model_start, t->elements,
                                      values(e, i, 0, t->elements, NULL));
        }
    }
    return sum;
}

static void load_run(struct engine *e, struct op *o) {
    const struct unit_place *u = &e->l->units[o->unit];
    for (size_t i = u->first; i < u->first + u->ranges; i++) {
        fill_range(e, i);
    }
    o->hash = checksum(e, o->unit);
}

static void load_finish(struct engine *e, struct op *o) {
    struct attempt *t = &e->t;
    e->checksums[o->unit] = o->hash;
    t->done += is_loaded(e, o->unit);
    t->loaded++;
    t->reduced = t->loaded == e->units;
}

const struct op_kind op_load = {true, load_next, load_run, load_finish, NULL};
