/* param_hash (design §14): each rank's term is of its pieces, so that the ranks' sum is the model's
 * under every strategy. Trainable tensors count by their masters, frozen ones, which have no other
 * copy, by what is gathered. */
#include "engine/inner.h"

enum { TILE = 4096 };

static bool hash_next(struct engine *e, struct op *o) {
    (void)o;
    if (!e->hash_wanted || !apply_is_done(e)) {
        return false;
    }
    e->hash_wanted = false;
    o->step = e->versions[0];
    return true;
}

/* |n| held values at |at| of the range, in fp32; |n| at most TILE where that needs |tile|. */
static const float *held_values(const struct engine *e, size_t range, uint64_t at, uint64_t n,
                                float *tile) {
    const struct place *p = &e->places.ranges[range];
    enum dtype dtype = e->l->ranges[range].dtype;
    const uint8_t *held = e->l->params_sharded ? e->mem.shard : e->mem.params;
    const void *from = held + p->held_at + (at - p->held.from) * dtype_bytes(dtype);
    if (dtype == DTYPE_FP32) {
        return from;
    }
    if (dtype == DTYPE_BF16) {
        e->o.kernels->from_bf16(n, from, tile);
    } else {
        e->o.kernels->from_fp16(n, from, tile);
    }
    return tile;
}

static uint64_t hash_segment(const struct engine *e, size_t range, const struct segment *g) {
    const struct place *p = &e->places.ranges[range];
    uint64_t first = e->l->tensors[g->tensor].model_start + g->tensor_offset, sum = 0;
    uint64_t at = p->piece.from + g->range_offset;
    float tile[TILE];
    if (!e->l->ranges[range].frozen) {
        const float *master = e->mem.master + p->optimizer_at + (at - p->updated.from);
        return e->o.kernels->hash(first, g->count, master);
    }
    for (uint64_t i = 0; i < g->count; i += TILE) {
        uint64_t n = g->count - i < TILE ? g->count - i : TILE;
        sum += e->o.kernels->hash(first + i, n, held_values(e, range, at + i, n, tile));
    }
    return sum;
}

static void hash_run(struct engine *e, struct op *o) {
    const struct pieces *q = &e->places.piece;
    for (size_t r = 0; r < e->l->range_count; r++) {
        for (size_t i = q->first[r]; i < q->first[r + 1]; i++) {
            o->hash += hash_segment(e, r, &q->list[i]);
        }
    }
}

static void hash_finish(struct engine *e, struct op *o) {
    e->hash_sum = o->hash;
    e->hash_version = o->step;
    e->hash_known = true;
}

const struct op_kind op_hash = {false, hash_next, hash_run, hash_finish, NULL};
