/* What must hold after every event. */
#include <string.h>

#include "world.h"

/* ---- outcomes ---- */

/* One outcome for each try, and one try of a step that is not void. */
void note(const struct fence *f, enum outcome outcome) {
    static const char *const names[] = {"?", "COMMIT", "SKIP", "ABORT"};
    for (unsigned i = 0; i < w.note_count; i++) {
        const struct note *n = &w.notes[i];
        const bool same = fence_compare(&n->fence, f) == 0;
        if (same && n->outcome != outcome) {
            violate("two outcomes for " FENCE ": %s and %s", F(f), names[n->outcome],
                    names[outcome]);
        }
        if (same) {
            return;
        }
        if (n->fence.step == f->step && n->outcome != OUTCOME_ABORT && outcome != OUTCOME_ABORT) {
            violate("step %llu is determined twice, as " FENCE " and " FENCE,
                    (unsigned long long)f->step, F(&n->fence), F(f));
        }
    }
    if (w.note_count == NOTES) {
        violate("%d tries, and no end", NOTES);
    }
    w.notes[w.note_count++] = (struct note){*f, outcome};
    w.commits |= outcome == OUTCOME_COMMIT ? 1u << f->step : 0;
}

/* A rank that has gone on to a later step has promised no less: its record may be overwritten. */
static void check_votes(const struct fence *f) {
    double lr = 0;
    for (unsigned q = 0; q < w.size.ranks; q++) {
        struct vote v;
        if (!records_read_vote(w.ranks[q].memory.records, f->step, &v) || !v.yes ||
            fence_compare(&v.fence, f) != 0) {
            if (w.ranks[q].decided <= f->step) {
                violate(FENCE " is acted on though rank %u has no YES for it on record", F(f), q);
            }
        } else if (lr == 0) {
            lr = v.scalars.learning_rate;
        } else if (lr != v.scalars.learning_rate) {
            violate(FENCE " is acted on though the ranks gave different lr", F(f));
        }
    }
}

double scale_for(uint64_t step) {
    struct scale_state at = scaling_start(&sim_options.scaling);
    for (uint64_t s = 1; s < step; s++) {
        (void)scaling_next(&sim_options.scaling, !(w.commits >> s & 1), &at);
    }
    return at.scale;
}

/* The sums of this step were made with the scale before it, and the next step hears the new one. */
static void check_scale(const struct decision *d) {
    const double with = scale_for(d->fence.step), next = scale_for(d->fence.step + 1);
    if (d->scale.scale != next) {
        violate(FENCE " carries the loss scale %g, not %g", F(&d->fence), d->scale.scale, next);
    }
    const float multiplier = (float)(1 / (w.size.ranks * with));
    if (d->fence.step && d->outcome == OUTCOME_COMMIT && d->scalars.multiplier != multiplier) {
        violate(FENCE " multiplies by %g, not %g", F(&d->fence), (double)d->scalars.multiplier,
                (double)multiplier);
    }
}

void note_decision(const struct decision *d) {
    note(&d->fence, d->outcome);
    const uint32_t trained = w.commits & ~1u & ((2u << d->fence.step) - 1);
    if (d->t != (uint64_t)__builtin_popcount(trained)) {
        violate(FENCE " carries t = %llu after %d commits", F(&d->fence), (unsigned long long)d->t,
                __builtin_popcount(trained));
    }
    check_scale(d);
    check_votes(&d->fence);
}

/* ---- updates ---- */

static uint8_t update_number(const struct fence *f, const struct gradient *of) {
    struct update u;
    memset(&u, 0, sizeof u);
    u.fence = *f;
    memcpy(u.of, of, sizeof u.of);
    for (unsigned i = 0; i < w.update_count; i++) {
        if (memcmp(&w.updates[i], &u, sizeof u) == 0) {
            return (uint8_t)i;
        }
    }
    if (w.update_count == UPDATES) {
        violate("%d different updates", UPDATES);
    }
    w.updates[w.update_count] = u;
    return (uint8_t)w.update_count++;
}

/* The half after the update, or the reason why this update must not be. */
struct half updated(const struct sim_rank *r, unsigned tile, unsigned half) {
    const struct fence *f = &r->engine.decision.fence;
    const struct sum *kept = &r->memory.kept;
    check_votes(f);
    if (!kept->any || fence_compare(&kept->tag, f) != 0) {
        violate("rank %u applies " FENCE " but keeps the sum of " FENCE, r->rank, F(f),
                F(&kept->tag));
    }
    for (unsigned q = 0; q < w.size.ranks; q++) {
        if (fence_compare(&kept->of[q].fence, f) != 0) {
            violate("rank %u applies a gradient of " FENCE " of rank %u in " FENCE, r->rank,
                    F(&kept->of[q].fence), q, F(f));
        }
        if (kept->of[q].item != f->step) {
            violate("step %llu used data item %llu on rank %u", (unsigned long long)f->step,
                    (unsigned long long)kept->of[q].item, q);
        }
    }
    struct half h = r->memory.tiles[tile][half];
    if (h.count == STEPS + 2) {
        violate("rank %u updates a tile more often than there are steps", r->rank);
    }
    h.updates[h.count++] = update_number(f, kept->of);
    return h;
}

/* ---- the shards ---- */

static uint32_t steps_of(const struct sim_rank *r, const struct half *h) {
    uint32_t steps = 0;
    for (unsigned i = 0; i < h->count; i++) {
        const uint32_t step = 1u << w.updates[h->updates[i]].fence.step;
        if (steps >= step) {
            violate("rank %u: a tile was updated twice with one step, or out of order", r->rank);
        }
        steps |= step;
    }
    return steps;
}

/* Whole at its version, or on the way from one to the next; no step lost, none applied twice. */
static void check_shard(const struct sim_rank *r) {
    const uint32_t whole = w.commits & ((1u << r->memory.version) - 1);
    const uint32_t next = r->engine.applying ? whole | 1u << r->memory.version : whole;
    for (unsigned i = 0; i < 2 * w.size.tiles; i++) {
        const uint32_t steps = steps_of(r, &r->memory.tiles[i / 2][i % 2]);
        if (steps != whole && steps != next) {
            violate("rank %u at version %u has the steps %#x in a tile, not %#x", r->rank,
                    r->memory.version, steps, whole);
        }
    }
}

/* What was applied for one step is one thing, in all tiles of all ranks. */
static void check_equal(const struct half *a, const struct half *b) {
    const unsigned n = a->count < b->count ? a->count : b->count;
    if (memcmp(a->updates, b->updates, n) != 0) {
        violate("two shards were updated with different gradients of one step");
    }
}

void check(void) {
    const struct half *longest = &w.ranks[0].memory.tiles[0][0];
    for (unsigned r = 0; r < w.size.ranks; r++) {
        check_shard(&w.ranks[r]);
        for (unsigned i = 0; i < 2 * w.size.tiles; i++) {
            const struct half *h = &w.ranks[r].memory.tiles[i / 2][i % 2];
            check_equal(longest, h);
            longest = h->count > longest->count ? h : longest;
        }
    }
}

bool finished(void) {
    for (unsigned r = 0; r < w.size.ranks; r++) {
        if (w.ranks[r].memory.version < w.size.steps) {
            return false;
        }
    }
    return true;
}
