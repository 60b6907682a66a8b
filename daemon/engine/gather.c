/* Gathers: along the plan, ahead of the trainer. zero3 copies all ranks' parts into a slot; where
 * parameters are replicated the replica is lent and there is nothing to copy. */
#include "engine/inner.h"

static bool is_ready(struct engine *e, uint32_t unit) {
    uint64_t version = e->t.fence.step - 1;
    if (!e->l->params_sharded) {
        return e->whole[unit] == version;
    }
    return e->versions[unit] == version && e->comm->ops->can_gather(e->comm, unit, version);
}

static bool gather_next(struct engine *e, struct op *o) {
    uint32_t unit;
    if (!leases_next(&e->leases, &unit) || !is_ready(e, unit)) {
        return false;
    }
    o->unit = unit;
    o->slot = leases_launch(&e->leases);
    return true;
}

static void gather_run(struct engine *e, struct op *o) {
    if (e->l->params_sharded) {
        uint8_t *to = e->mem.params + o->slot * e->mem.params_stride;
        o->ok = e->comm->ops->all_gather(e->comm, o->unit, to);
    }
}

static void gather_finish(struct engine *e, struct op *o) {
    leases_filled(&e->leases, o->slot);
}

static uint64_t *gather_clock(struct engine *e) {
    return &e->gather_ns;
}

const struct op_kind op_gather = {true, gather_next, gather_run, gather_finish, gather_clock};
