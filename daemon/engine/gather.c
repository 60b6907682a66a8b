/* Gathers: along the plan, ahead of the trainer. Sharded parameters are copied, all ranges of a
 * unit and all ranks' shards of each, into a slot; where parameters are replicated the replica is
 * lent and there is nothing to copy. */
#include "engine/inner.h"

static bool is_ready(struct engine *e, uint32_t unit) {
    uint64_t version = e->t.fence.step - 1;
    if (!e->l->params_sharded) {
        return e->whole[unit] == version;
    }
    return e->versions[unit] == version &&
           e->comm->ops->can_gather(e->comm, COMM_INNER, unit, version);
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

static bool gather_range(struct engine *e, size_t range, uint8_t *to) {
    const struct place *p = &e->places.ranges[range];
    const struct range *r = &e->l->ranges[range];
    const struct comm_copy w = {
        .group = COMM_INNER,
        .memory = p->from_master ? COMM_MASTER : COMM_SHARD,
        .kind = COMM_ALL_GATHER,
        .at = p->from_master ? p->optimizer_at * sizeof(float) : p->held_at,
        .count = p->held.count,
        .element = dtype_bytes(r->dtype),
        .to = to + r->param_offset,
    };
    return e->comm->ops->all_gather(e->comm, &w);
}

static void gather_run(struct engine *e, struct op *o) {
    const struct unit_place *u = &e->l->units[o->unit];
    uint8_t *to = e->mem.params + o->slot * e->mem.params_stride;
    for (size_t i = u->first; e->l->params_sharded && i < u->first + u->ranges && o->ok; i++) {
        o->ok = gather_range(e, i, to);
    }
}

static void gather_finish(struct engine *e, struct op *o) {
    leases_filled(&e->leases, o->slot);
}

static uint64_t *gather_clock(struct engine *e) {
    return &e->gather_ns;
}

const struct op_kind op_gather = {true, gather_next, gather_run, gather_finish, gather_clock};
