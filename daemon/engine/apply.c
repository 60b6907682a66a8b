/* Applying a decision: units one after another in the order of their first gather, so that the next
 * step's gathers can follow closely. zero2 then fetches the others' updated parts of each unit into
 * its replica. */
#include "engine/inner.h"

bool apply_is_done(const struct engine *e) {
    return !e->a.active || (e->a.updated == e->units && e->a.gathered == e->units);
}

/* Does a unit's replica need other ranks' parts? */
static bool needs_regather(const struct engine *e) {
    return !e->l->params_sharded && e->l->optimizer_sharded && e->a.commit && e->a.step > 0;
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
    update_share(&w->e->update, w->o->unit, w->o->step, &w->o->scalars, thread, threads);
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

/* ---- zero2: the others' parts ---- */

static bool regather_next(struct engine *e, struct op *o) {
    if (!e->a.active || !needs_regather(e) || e->a.gathered >= e->a.updated) {
        return false;
    }
    o->unit = e->order[e->a.gathered];
    o->step = e->a.step;
    return e->comm->ops->can_gather(e->comm, o->unit, e->a.step);
}

static void regather_run(struct engine *e, struct op *o) {
    uint8_t *to = e->mem.params + e->l->units[o->unit].flat_start * e->element;
    o->ok = e->comm->ops->all_gather(e->comm, o->unit, to);
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
