/* Step 0: the trainer wrote a unit's initial values, all of them and the same on every rank, into a
 * gradient slot; this rank takes what it keeps. No peer is needed; that all were the same shows in
 * the checksums. Becomes version 0 by the decision of step 0. */
#include <string.h>

#include "engine/inner.h"

static bool load_next(struct engine *e, struct op *o) {
    const struct attempt *t = &e->t;
    if (!t->open || t->fence.step != 0 || t->done >= t->asked) {
        return false;
    }
    o->unit = t->done;
    o->slot = t->done % e->o.slots.grad;
    return true;
}

/* The segments' values from |unit|, which holds the whole unit, to |to|, which holds q's range. */
static void copy_segments(const struct engine *e, const struct pieces *q, size_t u,
                          const float *unit, float *to) {
    for (size_t i = q->first[u]; i < q->first[u + 1]; i++) {
        const struct segment *g = &q->list[i];
        const float *from = unit + e->l->tensors[g->tensor].offset + g->tensor_offset;
        memcpy(to + g->range_offset, from, g->count * sizeof *to);
    }
}

static void copy_segments_bf16(const struct engine *e, const struct pieces *q, size_t u,
                               const float *unit, uint16_t *to) {
    for (size_t i = q->first[u]; i < q->first[u + 1]; i++) {
        const struct segment *g = &q->list[i];
        const float *from = unit + e->l->tensors[g->tensor].offset + g->tensor_offset;
        e->o.kernels->to_bf16(g->count, from, to + g->range_offset);
    }
}

/* The replica, or the shard that is gathered. Padding is zero since the memory is new. */
static void fill_params(const struct engine *e, size_t u, const float *unit) {
    bool sharded = e->l->params_sharded;
    const struct pieces *q = sharded ? &e->places.part : &e->places.whole;
    uint64_t at = sharded ? e->places.units[u].copy_at : e->l->units[u].flat_start;
    if (e->update.copy && e->update.bf16) {
        copy_segments_bf16(e, q, u, unit, (uint16_t *)e->update.copy + at);
    } else if (e->update.copy) {
        copy_segments(e, q, u, unit, (float *)e->update.copy + at);
    }
}

static uint64_t checksum(const struct engine *e, size_t u, const float *unit) {
    const struct pieces *q = &e->places.whole;
    uint64_t sum = 0;
    for (size_t i = q->first[u]; i < q->first[u + 1]; i++) {
        const struct segment *g = &q->list[i];
        const struct tensor_place *t = &e->l->tensors[g->tensor];
        sum += e->o.kernels->hash(t->model_start + g->tensor_offset, g->count,
                                  unit + t->offset + g->tensor_offset);
    }
    return sum;
}

static void load_run(struct engine *e, struct op *o) {
    const struct place *p = &e->places.units[o->unit];
    const struct memory_map *m = &e->mem;
    const float *unit = memory_grad_slot(e, o->slot);
    uint64_t bytes = p->updated * sizeof(float);
    memset(m->master + p->optimizer_at, 0, bytes);
    memset(m->m + p->optimizer_at, 0, bytes);
    memset(m->v + p->optimizer_at, 0, bytes);
    copy_segments(e, places_updated(&e->places), o->unit, unit, m->master + p->optimizer_at);
    fill_params(e, o->unit, unit);
    o->hash = checksum(e, o->unit, unit);
}

static void load_finish(struct engine *e, struct op *o) {
    e->checksums[o->unit] = o->hash;
    e->t.done++;
    e->t.reduced = e->t.done == e->units;
}

const struct op_kind op_load = {true, load_next, load_run, load_finish, NULL};
