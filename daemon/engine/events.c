/* What the owner is told. Nothing is queued: what is due follows from the state, so there is no
 * ring to overflow, and voiding a try takes its news with it. */
#include "engine/inner.h"

static const struct lease_slot *gathered(const struct engine *e) {
    return e->t.entered ? leases_to_report(&e->leases) : NULL;
}

static bool granted(const struct engine *e) {
    return e->t.entered && e->t.told < e->t.granted;
}

static bool reduced(const struct engine *e) {
    return e->t.entered && e->t.reduced && !e->t.reduced_told;
}

bool events_pending(const struct engine *e) {
    return e->progress || gathered(e) || granted(e) || reduced(e) || e->hash_known;
}

/* Each takes the lock held and gives it back free. */

static void tell_gathered(struct engine *e, const struct lease_slot *s) {
    struct fence f = e->t.fence;
    struct lease_slot copy = *s;
    uint64_t offset = memory_lease_offset(e, s, (uint32_t)(s - e->leases.slots));
    bool eval = e->leases.eval;
    leases_reported(&e->leases);
    pthread_mutex_unlock(&e->lock);
    e->cb.gathered(e->ctx, &f, copy.position, copy.unit, offset, eval);
}

static void tell_granted(struct engine *e) {
    struct fence f = e->t.fence;
    uint32_t number = e->t.told++;
    pthread_mutex_unlock(&e->lock);
    uint64_t slot = f.step ? number % e->o.slots.grad : 0; /* initial values have one slot */
    e->cb.granted(e->ctx, &f, number, slot * e->mem.grads_stride);
}

static void tell_reduced(struct engine *e) {
    struct fence f = e->t.fence;
    double sum = e->t.sum_squares;
    e->t.reduced_told = true;
    pthread_mutex_unlock(&e->lock);
    bool loaded = f.step == 0;
    e->cb.reduced(e->ctx, &f, loaded ? 0 : sum, !loaded && !(sum - sum == 0),
                  loaded ? e->checksums : NULL, loaded ? e->units : 0);
}

static void tell_hashed(struct engine *e) {
    uint64_t sum = e->hash_sum, version = e->hash_version;
    e->hash_known = false;
    pthread_mutex_unlock(&e->lock);
    e->cb.hashed(e->ctx, sum, version);
}

/* One event; false: there was none. A callback may call the engine, so all is looked at anew. */
static bool one(struct engine *e) {
    pthread_mutex_lock(&e->lock);
    const struct lease_slot *s = gathered(e);
    if (s) {
        tell_gathered(e, s);
    } else if (granted(e)) {
        tell_granted(e);
    } else if (reduced(e)) {
        tell_reduced(e);
    } else if (e->hash_known) {
        tell_hashed(e);
    } else {
        bool progress = e->progress;
        e->progress = false;
        pthread_mutex_unlock(&e->lock);
        if (progress) {
            e->cb.progress(e->ctx);
        }
        return progress;
    }
    return true;
}

void engine_events(struct engine *e) {
    while (one(e)) {
    }
}
