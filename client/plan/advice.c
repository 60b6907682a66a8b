/* What to choose, in the order in which the field goes: zero2 (ddp's traffic), zero3, hybrid when
 * several machines share the job, tensor parallelism when one unit is too large, pipeline last. */
#include "plan_inner.h"

struct advisor {
    struct plan_table *t;
    const struct plan_request *r;
    const struct plan_row *ddp, *zero2, *zero3, *hybrid_zero2, *hybrid_shard; /* hybrids: or NULL */
};

static const struct plan_row *row_of(const struct plan_table *t, enum strategy s) {
    for (size_t i = 0; i < t->row_count; i++) {
        if (t->rows[i].strategy == s) {
            return &t->rows[i];
        }
    }
    return NULL;
}

#define GB(bytes) ((double)(bytes) / 1e9)

static void advise_hybrid(const struct advisor *a, const struct plan_row *flat,
                          const struct plan_row *hybrid) {
    if (!hybrid || hybrid->chosen) {
        return;
    }
    if (!hybrid->fits) {
        plan_line(&a->t->advice,
                  "%s within machines of %u ranks does not fit (%.3f GB); %s over all %u ranks "
                  "sends %.3f GB a step between machines",
                  strategy_name(hybrid->strategy), a->r->shard_size, GB(hybrid->peak),
                  strategy_name(flat->strategy), a->r->world, GB(traffic_bytes(&flat->between)));
        return;
    }
    plan_line(&a->t->advice,
              "across machines %s --shard-size %u fits too (%.3f GB): a rank sends %.3f GB a step "
              "between machines instead of %s's %.3f GB",
              strategy_name(hybrid->strategy), a->r->shard_size, GB(hybrid->peak),
              GB(traffic_bytes(&hybrid->between)), strategy_name(flat->strategy),
              GB(traffic_bytes(&flat->between)));
}

static uint64_t zero3_peak(const struct advisor *a, unsigned world, const struct slots *slots) {
    struct model m = *a->r->model;
    struct layout l;
    m.strategy = STRATEGY_ZERO3;
    if (layout_init(&l, &m, world, NULL)) {
        return UINT64_MAX;
    }
    const struct memory memory = layout_memory(&l, 0, slots);
    layout_free(&l);
    return memory_total(&memory);
}

/* True: said what helps. */
static bool advise_slots(const struct advisor *a) {
    const uint64_t peak = zero3_peak(a, a->r->world, &(struct slots){1, 1});
    if (peak > a->r->device_memory) {
        return false;
    }
    plan_line(&a->t->advice,
              "with one slot of each kind (--gather-slots 1 --grad-slots 1) zero3 fits: %.3f GB; "
              "it then gathers and computes in turn",
              GB(peak));
    return true;
}

static bool advise_ranks(const struct advisor *a) {
    for (unsigned n = a->r->world; n <= LAYOUT_PLAN_RANKS / 2;) {
        n *= 2;
        const uint64_t peak = zero3_peak(a, n, &a->r->slots);
        if (peak <= a->r->device_memory) {
            plan_line(&a->t->advice, "zero3 fits on %u ranks: %.3f GB each", n, GB(peak));
            return true;
        }
    }
    return false;
}

/* Not even zero3 fits. */
static void advise_splitting(const struct advisor *a) {
    const uint64_t slots = a->zero3->memory.gather_slots + a->zero3->memory.grad_slots;
    plan_line(&a->t->advice, "no strategy fits: zero3 needs %.3f GB of %.3f GB", GB(a->zero3->peak),
              GB(a->r->device_memory));
    if (a->t->warnings.count) {
        plan_line(&a->t->advice,
                  "first cut unit \"%.90s\" into its layers: slots of one layer "
                  "each may be all that is missing",
                  a->r->model->units[a->t->largest].name);
    }
    const bool fewer_slots = advise_slots(a), more_ranks = advise_ranks(a);
    if (!fewer_slots && !more_ranks) {
        plan_line(&a->t->advice,
                  "no number of ranks helps: the slots alone, for unit \"%.90s\" of %.3f GB, need "
                  "%.3f GB. Split that unit into smaller ones; when it is one layer already, use "
                  "tensor parallelism to divide it",
                  a->r->model->units[a->t->largest].name,
                  GB(a->zero3->memory.gather_slots / a->r->slots.gather), GB(slots));
    } else {
        plan_line(&a->t->advice,
                  "else divide layers by tensor parallelism, which also divides the slots");
    }
    plan_line(&a->t->advice, "then pipeline parallelism: fewer layers on each rank");
}

static void advise_fitting(const struct advisor *a) {
    struct plan_lines *l = &a->t->advice;
    if (a->zero2->fits) {
        plan_line(l, "zero2 fits: %.3f GB a rank%s", GB(a->zero2->peak),
                  a->ddp->fits ? "; so does ddp, which holds more and sends no less" : "");
        advise_hybrid(a, a->zero2, a->hybrid_zero2);
    } else if (a->zero3->fits) {
        plan_line(l,
                  "zero2 does not fit (%.3f GB), zero3 does: %.3f GB a rank, for %.2f times ddp's "
                  "elements on the wire",
                  GB(a->zero2->peak), GB(a->zero3->peak), a->zero3->elements_factor);
        advise_hybrid(a, a->zero3, a->hybrid_shard);
    } else {
        advise_splitting(a);
    }
}

void plan_advise(struct plan_table *t) {
    const struct advisor a = {
        .t = t,
        .r = &t->request,
        .ddp = row_of(t, STRATEGY_DDP),
        .zero2 = row_of(t, STRATEGY_ZERO2),
        .zero3 = row_of(t, STRATEGY_ZERO3),
        .hybrid_zero2 = row_of(t, STRATEGY_HYBRID_ZERO2),
        .hybrid_shard = row_of(t, STRATEGY_HYBRID_SHARD),
    };
    if (t->request.world == 1) {
        plan_line(&t->advice, "one rank: every strategy holds the whole model and sends nothing");
    }
    if (t->request.device_memory) {
        advise_fitting(&a);
        return;
    }
    plan_line(&t->advice,
              "--device-memory says what fits. The usual order: zero2, then zero3, then "
              "hybrid_shard across machines, then tensor parallelism when one unit is too large, "
              "then pipeline parallelism");
    if (t->request.world > 1) {
        advise_hybrid(&a, a.zero2, a.hybrid_zero2);
        advise_hybrid(&a, a.zero3, a.hybrid_shard);
    }
}
