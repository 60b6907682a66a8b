/* param_hash (design §14): each rank's term is of its part of the masters, so that the ranks' sum
 * is the model's under every strategy. */
#include "engine/inner.h"

static bool hash_next(struct engine *e, struct op *o) {
    (void)o;
    if (!e->hash_wanted || !apply_is_done(e)) {
        return false;
    }
    e->hash_wanted = false;
    o->step = e->versions[0];
    return true;
}

static void hash_run(struct engine *e, struct op *o) {
    const struct pieces *q = &e->places.part;
    for (size_t u = 0; u < e->units; u++) {
        const float *part = e->mem.master + e->places.units[u].own_at;
        for (size_t i = q->first[u]; i < q->first[u + 1]; i++) {
            const struct segment *g = &q->list[i];
            uint64_t first = e->l->tensors[g->tensor].model_start + g->tensor_offset;
            o->hash += e->o.kernels->hash(first, g->count, part + g->range_offset);
        }
    }
}

static void hash_finish(struct engine *e, struct op *o) {
    e->hash_sum = o->hash;
    e->hash_version = o->step;
    e->hash_known = true;
}

const struct op_kind op_hash = {false, hash_next, hash_run, hash_finish, NULL};
