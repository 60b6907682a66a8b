/* Applying a decision: units one after another in the order of their first gather, so that the next
 * step's gathers can follow closely. A replica of which this rank updates a part then gets the
 * others' parts: zero2's from the inner group, zero1's from the outer. */
#include "base/slice.h"
#include "engine/inner.h"

bool apply_is_done(const struct engine *e) {
    return !e->a.active || (e->a.updated == e->units && e->a.gathered == e->units);
}

/* Whose members have the rest of a replica after an update. */
static enum comm_group apply_group(const struct engine *e) {
    return e->l->optimizer_split ? COMM_OUTER : COMM_INNER;
}

/* Do replicas need other ranks' parts? */
static bool needs_regather(const struct engine *e) {
    unsigned members = e->l->optimizer_split ? e->l->outer : e->l->inner;
    return !e->l->params_sharded && members > 1 && e->a.commit && e->a.step > 0;
}

/* ---- update ---- */

static bool update_next(struct engine *e, struct op *o) {
    if (!e->a.active || e->hold || e->a.updated == e->units) {
        return false;
    }
    o->unit = e->order[e->a.updated];
    o->step = e->a.step;
    o->commit = e->a.commit && e->a.step > 0; /* step 0 was applied when it was loaded */
    o->scalars = e->a.scalars;
    return true;
}

struct unit_update {
    const struct engine *e;
    const struct op *o;
};

static void share(void *ctx, unsigned thread, unsigned threads) {
    const struct unit_update *w = ctx;
    slice_take(SLICE_LONG); /* nobody waits for it yet, and an outcome may still be on its way */
    update_share(&w->e->update, w->o->unit, w->o->step, &w->o->scalars, thread, threads);
    slice_take(SLICE_NORMAL);
}

static void update_run(struct engine *e, struct op *o) {
    if (o->commit) {
        struct unit_update w = {e, o};
        unsigned threads = update_threads(&e->update, o->unit, e->o.threads);
        e->device->ops->launch(e->device, threads, share, &w);
    }
    atomic_store(&e->mem.units[o->unit].version, o->step);
}

static void update_finish(struct engine *e, struct op *o) {
    e->versions[o->unit] = o->step;
    e->comm->ops->put_version(e->comm, o->unit, o->step);
    e->a.updated++;
    if (!needs_regather(e)) {
        e->whole[o->unit] = o->step;
        e->a.gathered++;
    }
}

static uint64_t *update_clock(struct engine *e) {
    return &e->update_ns;
}

const struct op_kind op_update = {false, update_next, update_run, update_finish, update_clock};

/* ---- the others' parts of replicas ---- */

static bool regather_next(struct engine *e, struct op *o) {
    if (!e->a.active || !needs_regather(e) || e->a.gathered >= e->a.updated) {
        return false;
    }
    o->unit = e->order[e->a.gathered];
    o->step = e->a.step;
    return e->comm->ops->can_gather(e->comm, apply_group(e), o->unit, e->a.step);
}

static void regather_run(struct engine *e, struct op *o) {
    const struct unit_place *u = &e->l->units[o->unit];
    for (size_t i = u->first; i < u->first + u->trainable && o->ok; i++) {
        const struct place *p = &e->places.ranges[i];
        uint64_t element = dtype_bytes(e->l->ranges[i].dtype);
        /* The members' parts follow each other from the start of what all of them keep. */
        uint64_t at = p->held_at + (e->l->optimizer_split ? p->kept.from * element : 0);
        const struct comm_copy w = {
            .group = apply_group(e),
            .memory = COMM_REPLICA,
            .kind = COMM_ALL_GATHER,
            .at = at,
            .step = p->updated.count * element,
            .count = p->updated.count,
            .element = element,
            .to = e->mem.params + at,
        };
        o->ok = e->comm->ops->all_gather(e->comm, &w);
    }
}

static void regather_finish(struct engine *e, struct op *o) {
    if (o->ok) {
        e->whole[o->unit] = o->step;
        e->a.gathered++;
    }
}

static uint64_t *regather_clock(struct engine *e) {
    return &e->gather_ns;
}

const struct op_kind op_regather = {false, regather_next, regather_run, regather_finish,
                                    regather_clock};
