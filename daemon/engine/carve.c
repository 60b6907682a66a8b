/* How long everything is, in which arena and on which line of the account (design §5): arithmetic
 * that comes before any memory, and that `--dry-run` shares. */
#include <inttypes.h>
#include <stdio.h>

#include "comm/control.h"
#include "engine/inner.h"

enum { MAX_SLOTS = 65536 };

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t c;
    return __builtin_mul_overflow(a, b, &c) ? UINT64_MAX : c;
}

static uint64_t carve_extent(struct arena *a, const struct extent *x, uint64_t element,
                             uint64_t *line) {
    return arena_carve(a, x->real * element, (x->padded - x->real) * element, line);
}

static void carve_state(struct engine *e) {
    struct arena *s = &e->mem.arenas[ARENA_STATE];
    struct state_header *at = &e->mem.places;
    const struct places *p = &e->places;
    uint64_t threads = e->o.threads;
    arena_carve(s, sizeof *at, 0, &s->lines.fixed);
    at->units_at = arena_carve(s, e->units * sizeof *e->mem.units, 0, &s->lines.fixed);
    at->progress_at = arena_carve(s, threads * sizeof *e->mem.progress, 0, &s->lines.fixed);
    at->scratch_at =
        arena_carve(s, update_scratch_bytes(e->model, e->o.threads), 0, &s->lines.fixed);
    if (!is_fp32(e->model->kept_dtype)) {
        at->wide_at = arena_carve(s, threads * NORM_BLOCK * sizeof(float), 0, &s->lines.fixed);
    }
    at->records_bytes = e->o.records_bytes;
    at->records_at = arena_carve(s, at->records_bytes, 0, &s->lines.fixed);
    at->master_at = carve_extent(s, &p->optimizer_elements, sizeof(float), &s->lines.optimizer);
    for (unsigned k = 0; k < optimizer_states(&e->model->optimizer); k++) {
        at->state_at[k] =
            carve_extent(s, &p->optimizer_elements, sizeof(float), &s->lines.optimizer);
    }
    at->kept_at =
        carve_extent(s, &p->kept_elements, dtype_bytes(e->model->kept_dtype), &s->lines.grads);
    if (e->l->params_sharded && p->held_bytes.padded) {
        at->shard_at = carve_extent(s, &p->held_bytes, 1, &s->lines.params);
    }
}

static void carve_grads(struct engine *e) {
    struct arena *a = &e->mem.arenas[ARENA_GRADS];
    e->mem.grads_stride = e->l->largest_grad_elements * dtype_bytes(e->model->wire_dtype);
    uint64_t bytes = times(e->o.slots.grad, e->mem.grads_stride);
    if (bytes < e->l->largest_load_bytes) { /* initial values go the same way */
        bytes = e->l->largest_load_bytes;
    }
    arena_carve(a, bytes, 0, &a->lines.grad_slots);
}

void carve(struct engine *e) {
    struct arena *a = e->mem.arenas, *control = &a[ARENA_CONTROL], *params = &a[ARENA_PARAMS];
    for (int i = 0; i < ARENAS; i++) {
        arena_init(&a[i]);
    }
    arena_carve(control, control_bytes(e->l, e->o.slots.grad), 0, &control->lines.fixed);
    carve_state(e);
    e->mem.params_stride = e->l->largest_param_bytes;
    if (e->l->params_sharded) {
        uint64_t bytes = times(e->o.slots.gather, e->mem.params_stride);
        arena_carve(params, bytes, 0, &params->lines.gather_slots);
    } else {
        carve_extent(params, &e->places.held_bytes, 1, &params->lines.params);
    }
    carve_grads(e);
    for (int i = 0; i < ARENAS; i++) {
        if (!a[i].used) { /* a model without elements: a memfd has at least a page */
            arena_carve(&a[i], 1, 0, &a[i].lines.fixed);
        }
    }
}

/* All lines once everything is allocated; |*total| stops at UINT64_MAX. */
static struct memory account(const struct engine *e, uint64_t *total) {
    struct memory m = {0};
    *total = 0;
    for (int i = 0; i < ARENAS; i++) {
        const struct arena *a = &e->mem.arenas[i];
        uint64_t size = arena_size(a);
        *total = *total > UINT64_MAX - size ? UINT64_MAX : *total + size;
        memory_add(&m, &a->lines);
        m.rounding += size - a->used;
    }
    return m;
}

/* "; most of it ..." when one unit holds more than half of the model: what it takes follows its
 * size, and no strategy shards that away. */
static void name_largest(const struct layout *l, char *text, size_t cap) {
    text[0] = 0;
    for (size_t u = 0; u < l->model->unit_count; u++) {
        uint64_t elements = 0;
        for (size_t i = 0; i < l->units[u].ranges; i++) {
            elements += l->ranges[l->units[u].first + i].elements;
        }
        if (elements > l->elements / 2) {
            (void)snprintf(text, cap,
                           "; unit \"%.40s\" has %" PRIu64 " of %" PRIu64
                           " elements: split it into units",
                           l->model->units[u].name, elements, l->elements);
        }
    }
}

int carve_check(const struct engine *e, struct err *err) {
    uint64_t total;
    char largest[160];
    struct memory m = account(e, &total);
    if (!e->o.device_memory || total <= e->o.device_memory) {
        return 0;
    }
    name_largest(e->l, largest, sizeof largest);
    return err_set(err, ST_RESOURCE_EXHAUSTED,
                   "rank %u needs %" PRIu64 " bytes (parameters %" PRIu64 ", gradients %" PRIu64
                   ", optimizer %" PRIu64 ", gather slots %" PRIu64 ", gradient slots %" PRIu64
                   "), the limit is %" PRIu64 "%s",
                   e->o.rank, total, m.params, m.grads, m.optimizer, m.gather_slots, m.grad_slots,
                   e->o.device_memory, largest);
}

int carve_check_options(const struct layout *l, const struct engine_options *o, struct err *err) {
    if (o->rank >= l->world || l->world > LAYOUT_MAX_RANKS) {
        return err_set(err, ST_INVALID_ARGUMENT, "rank %u of %u ranks, there may be %d", o->rank,
                       l->world, LAYOUT_MAX_RANKS);
    }
    uint32_t fewest = o->slots.gather < o->slots.grad ? o->slots.gather : o->slots.grad;
    uint32_t most = o->slots.gather > o->slots.grad ? o->slots.gather : o->slots.grad;
    if (fewest < 1 || most > MAX_SLOTS) {
        return err_set(err, ST_INVALID_ARGUMENT,
                       "%" PRIu32 " gather slots and %" PRIu32
                       " gradient slots: must be 1 to %d each",
                       o->slots.gather, o->slots.grad, MAX_SLOTS);
    }
    if (o->threads < 1 || o->threads > POOL_MAX_THREADS) {
        return err_set(err, ST_INVALID_ARGUMENT, "%u threads: must be 1 to %d", o->threads,
                       POOL_MAX_THREADS);
    }
    return 0;
}

int engine_account(const struct layout *l, const struct engine_options *o, struct memory *out,
                   struct err *err) {
    int rc = carve_check_options(l, o, err);
    if (rc) {
        return rc;
    }
    struct engine e = {.l = l, .model = l->model, .o = *o, .units = l->model->unit_count};
    uint64_t total;
    places_init(&e.places, l, o->rank, UPDATE_TILE);
    carve(&e);
    *out = account(&e, &total);
    places_free(&e.places);
    return 0;
}
