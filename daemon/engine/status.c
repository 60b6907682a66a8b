#include "engine/inner.h"

void engine_status(const struct engine *const_e, struct engine_status *s) {
    struct engine *e = (struct engine *)(uintptr_t)const_e; /* for its lock only */
    *s = (struct engine_status){.version = UINT64_MAX};
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < ARENAS; i++) {
        const struct arena *a = &e->mem.arenas[i];
        if (a->base) {
            memory_add(&s->measured, &a->lines);
            s->total_bytes += a->bytes;
            s->huge_bytes += a->huge;
        }
    }
    e->comm->ops->sent(e->comm, s->sent_by_group);
    for (int g = 0; g < COMM_GROUPS; g++) {
        traffic_add(&s->sent, &s->sent_by_group[g]);
    }
    s->gathers = e->gather_count;
    s->gathers_ahead = e->ahead_count;
    s->eval_gathers = e->eval_count;
    s->gather_ns = e->gather_ns;
    s->reduce_ns = e->reduce_ns;
    s->update_ns = e->update_ns;
    uint64_t oldest = 0; /* as a count: version + 1, so that none is 0 */
    for (size_t u = 0; u < e->units; u++) {
        uint64_t count = e->versions[u] + 1;
        oldest = u == 0 || count < oldest ? count : oldest;
    }
    s->version = oldest - 1;
    pthread_mutex_unlock(&e->lock);
    s->formula = layout_memory(e->l, e->o.rank, &e->o.slots);
    s->formula.rounding = s->measured.rounding;
    s->formula.fixed = s->measured.fixed;
}
