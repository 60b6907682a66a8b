/* The simulated engine: sums that are read and later written, tiles that go through a scratch tile,
 * and the slots that peers read. */
#include <string.h>

#include "world.h"

const uint64_t sim_checksums[2] = {5, 7};

/* ---- the gradient slot ---- */

bool slot_write(struct sim_rank *r, const struct gradient *g, const struct fence *tag) {
    if (r->slot.any && r->slot.unread) {
        return false; /* some rank has not read it */
    }
    r->slot = (struct slot){.any = true, .tag = *tag, .gradient = *g};
    PLANT(abort_frees_slots, r->slot.unread = (1u << w.size.ranks) - 1);
    return true;
}

/* ---- the sum ---- */

void engine_open(struct sim_rank *r, const struct fence *f) {
    struct engine *e = &r->engine;
    e->late = e->reading.any ? e->reading : e->late;
    e->reading.any = false;
    e->trying = true;
    e->summed = false;
    e->fence = *f;
}

static bool may_read(const struct sim_rank *r) {
    const struct engine *e = &r->engine;
    if (!e->trying || e->summed || e->reading.any) {
        return false;
    }
    for (unsigned q = 0; q < w.size.ranks; q++) {
        const struct slot *s = &w.ranks[q].slot;
        if (!s->any || !same_try(&s->tag, &e->fence)) {
            return false;
        }
    }
    return true;
}

static void read_slots(struct sim_rank *r) {
    struct sum *sum = &r->engine.reading;
    *sum = (struct sum){.any = true, .tag = r->engine.fence};
    for (unsigned q = 0; q < w.size.ranks; q++) {
        sum->of[q] = w.ranks[q].slot.gradient;
        w.ranks[q].slot.unread &= ~(1u << r->rank);
    }
    tell("rank %u reads the slots of " FENCE, r->rank, F(&sum->tag));
}

static void write_sum(struct sim_rank *r) {
    const struct fence tag = r->engine.reading.tag;
    r->memory.kept = r->engine.reading;
    r->engine.reading.any = false;
    r->engine.summed = true;
    sim_point("after writing a sum");
    tell("rank %u has the sum of " FENCE, r->rank, F(&tag));
    const bool non_finite = r->rank == 0 && (w.size.skips >> tag.step & 1);
    job_rank_reduced(r->job, &tag, 1, non_finite, sim_checksums, tag.step ? 0 : 2);
    job_rank_poke(r->job);
}

static void write_late_sum(struct sim_rank *r) {
    tell("rank %u writes the sum of a void try", r->rank);
    r->memory.kept = r->engine.late;
    r->engine.late.any = false;
}

/* ---- the update ---- */

static struct mark mark(const struct decision *d, int64_t tile) {
    return (struct mark){RULE(progress_names_step) ? (int64_t)d->fence.step : -1, tile};
}

static bool marked(const struct mark *a, struct mark b) {
    return a->step == b.step && a->tile == b.tile;
}

static int64_t next_tile(const struct sim_rank *r) {
    const struct mark *done = &r->memory.done;
    return done->step == mark(&r->engine.decision, 0).step ? done->tile + 1 : 0;
}

static void apply_tile(struct sim_rank *r);

/* The worker is a thread of its own: it may be at work before the call that told it returns. */
static void work_ahead(struct sim_rank *r) {
    while (draw(3) == 0 && next_tile(r) + 1 < w.size.tiles) {
        apply_tile(r);
    }
}

void engine_apply(struct sim_rank *r, const struct decision *d) {
    r->engine.trying = false;
    if (d->outcome == OUTCOME_SKIP) {
        r->memory.version = (unsigned)d->fence.step + 1;
        return;
    }
    r->engine.applying = true;
    r->engine.decision = *d;
    PLANT(progress_names_step, r->memory.ready = r->memory.done = (struct mark){-1, -1});
    work_ahead(r);
}

/* Goes on with the update of the last decision on record, wherever the predecessor died. */
void engine_resume(struct sim_rank *r) {
    memset(&r->engine, 0, sizeof r->engine);
    struct decision d;
    if (!records_last_decision(r->memory.records, &d)) {
        r->memory.version = 0;
        return;
    }
    const bool done = marked(&r->memory.done, mark(&d, w.size.tiles - 1));
    r->memory.version = (unsigned)d.fence.step + (done || d.outcome == OUTCOME_SKIP);
    r->engine.applying = d.outcome == OUTCOME_COMMIT && !done;
    r->engine.decision = d;
}

static void compute(struct sim_rank *r, unsigned tile, struct half to[2]) {
    for (unsigned h = 0; h < 2; h++) {
        to[h] = updated(r, tile, h);
        sim_point("in a tile");
    }
}

static void apply_tile(struct sim_rank *r) {
    struct memory *m = &r->memory;
    const struct decision *d = &r->engine.decision;
    const int64_t tile = next_tile(r);
    const struct mark here = mark(d, tile);
    if (RULE(tile_through_scratch) && !marked(&m->ready, here)) {
        tell("rank %u computes tile %d of " FENCE, r->rank, (int)tile, F(&d->fence));
        compute(r, (unsigned)tile, m->scratch);
        m->ready = here;
        return;
    }
    tell("rank %u puts tile %d of " FENCE " in place", r->rank, (int)tile, F(&d->fence));
    if (RULE(tile_through_scratch)) {
        for (unsigned h = 0; h < 2; h++) {
            m->tiles[tile][h] = m->scratch[h];
            sim_point("in a tile's copy");
        }
    } else {
        compute(r, (unsigned)tile, m->tiles[tile]);
    }
    m->done = here;
    if (tile + 1 == w.size.tiles) {
        m->version = (unsigned)d->fence.step + 1;
        r->engine.applying = false;
        job_rank_poke(r->job);
    }
}

/* ---- the worker ---- */

bool engine_works(struct sim_rank *r) {
    void (*can[4])(struct sim_rank *);
    unsigned n = 0;
    if (!r->job) {
        return false;
    }
    if (r->engine.late.any && draw(4) == 0) {
        can[n++] = write_late_sum;
    }
    if (r->engine.reading.any) {
        can[n++] = write_sum;
    }
    if (r->engine.applying) {
        can[n++] = apply_tile;
    }
    if (may_read(r)) {
        can[n++] = read_slots;
    }
    if (n) {
        can[draw(n)](r);
    }
    return n != 0;
}
