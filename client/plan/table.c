/* The table's numbers: a layout a strategy, asked for its memory and traffic. */
#include <math.h>

#include "base/saturate.h"
#include "plan_inner.h"

static bool is_hybrid(enum strategy s) {
    return s == STRATEGY_HYBRID_SHARD || s == STRATEGY_HYBRID_ZERO2;
}

/* What |readers| of the |all| ranks that read it take; exact, as each takes the same. */
static struct traffic part(const struct traffic *t, uint64_t readers, uint64_t all) {
    return (struct traffic){
        .all_gather_elements = t->all_gather_elements / all * readers,
        .all_gather_bytes = t->all_gather_bytes / all * readers,
        .reduce_scatter_elements = t->reduce_scatter_elements / all * readers,
        .reduce_scatter_bytes = t->reduce_scatter_bytes / all * readers,
        .all_reduce_elements = t->all_reduce_elements / all * readers,
        .all_reduce_bytes = t->all_reduce_bytes / all * readers,
    };
}

static void set_traffic(struct plan_row *row, const struct layout *l, unsigned machine) {
    struct traffic by[2];
    layout_traffic_by_group(l, by);
    row->within = row->between = (struct traffic){0};
    if (is_hybrid(row->strategy)) {
        traffic_add(&row->within, &by[0]);
        traffic_add(machine < l->world ? &row->between : &row->within, &by[1]);
        return;
    }
    for (int g = 0; g < 2 && l->world > 1; g++) { /* one of them is of all ranks, one empty */
        const struct traffic in = part(&by[g], machine - 1, l->world - 1);
        const struct traffic out = part(&by[g], l->world - machine, l->world - 1);
        traffic_add(&row->within, &in);
        traffic_add(&row->between, &out);
    }
}

static double factor(uint64_t sent, uint64_t ddp) {
    return ddp ? (double)sent / (double)ddp : NAN;
}

static void set_row(struct plan_row *row, const struct layout *l, const struct plan_request *r) {
    const struct memory m = layout_memory(l, 0, &r->slots);
    const struct traffic all = layout_traffic(l), ddp = layout_traffic_ddp(l);
    row->memory = m;
    row->states = m.params + m.grads + m.optimizer;
    row->peak = memory_total(&m);
    row->fits = !r->device_memory || row->peak <= r->device_memory;
    row->bytes_factor = factor(traffic_bytes(&all), traffic_bytes(&ddp));
    row->elements_factor = factor(traffic_elements(&all), traffic_elements(&ddp));
    set_traffic(row, l, r->shard_size ? r->shard_size : r->world);
}

static void set_model(struct plan_table *t, const struct layout *l) {
    t->elements = l->elements;
    t->trainable = l->trainable;
    t->largest = layout_largest_unit(l, &t->largest_elements);
}

static int add_row(struct plan_table *t, enum strategy s, struct err *e) {
    const struct plan_request *r = &t->request;
    struct model m = *r->model; /* shares its arrays */
    struct layout l;
    m.strategy = s;
    m.shard_size = r->shard_size;
    int rc = layout_init(&l, &m, r->world, e);
    if (rc) {
        return rc;
    }
    struct plan_row *row = &t->rows[t->row_count++];
    *row = (struct plan_row){.strategy = s, .chosen = s == r->model->strategy};
    set_row(row, &l, r);
    set_model(t, &l);
    if (s == STRATEGY_ZERO3) {
        char text[PLAN_LINE];
        if (layout_lopsided(&l, &r->slots, text, sizeof text)) {
            plan_line(&t->warnings, "%s", text);
        }
    }
    layout_free(&l);
    return 0;
}

int plan_table_init(struct plan_table *t, const struct plan_request *r, struct err *e) {
    const unsigned shard = r->shard_size ? r->shard_size : r->world;
    *t = (struct plan_table){.request = *r};
    if (shard && r->world % shard) {
        return err_set(e, ST_INVALID_ARGUMENT, "shard size %u does not divide the world size %u",
                       shard, r->world);
    }
    int rc = 0;
    for (enum strategy s = STRATEGY_DDP; s <= STRATEGY_ZERO3 && !rc; s++) {
        rc = add_row(t, s, e);
    }
    static const enum strategy hybrids[] = {STRATEGY_HYBRID_ZERO2, STRATEGY_HYBRID_SHARD};
    for (int i = 0; i < 2 && !rc; i++) {
        if (shard < r->world || r->model->strategy == hybrids[i]) {
            rc = add_row(t, hybrids[i], e);
        }
    }
    if (!rc) {
        plan_advise(t);
    }
    return rc;
}
