/* All memory of one rank (design §5, §9, §10): four arenas, carved once.
 *
 *   control  the control page; peers map it read-only
 *   state    adopted memory: header, per-unit state, progress, scratch tiles, records, master, m,
 * v, kept gradients, and the bf16 shard of zero3; peers map it read-only where they read it params
 * gather slots (zero3) or the replica; trainers map it read-only grads    gradient slots; the
 * trainer writes them; new for each attachment
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc.h"
#include "comm/control.h"
#include "engine/inner.h"

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t c;
    return __builtin_mul_overflow(a, b, &c) ? UINT64_MAX : c;
}

static bool has_shard(const struct engine *e) {
    return e->l->params_sharded && e->model->param_dtype != DTYPE_FP32;
}

/* Part of a state that is |n| elements long with |real| real ones. */
static uint64_t carve_state(struct arena *a, uint64_t real, uint64_t n, uint64_t element,
                            uint64_t *line) {
    return arena_carve(a, real * element, (n - real) * element, line);
}

static void carve(struct engine *e) {
    struct arena *a = e->mem.arenas, *s = &a[ARENA_STATE];
    struct state_header *at = &e->mem.places;
    const struct layout *l = e->l;
    uint64_t updated = places_updated(&e->places)->elements, n = e->places.optimizer;
    uint64_t param = e->element, real = l->elements;
    arena_carve(&a[ARENA_CONTROL], control_bytes(l, e->o.slots.grad), 0,
                &a[ARENA_CONTROL].lines.fixed);

    arena_carve(s, sizeof *at, 0, &s->lines.fixed);
    at->units_at = arena_carve(s, e->units * sizeof *e->mem.units, 0, &s->lines.fixed);
    at->progress_at = arena_carve(s, e->o.threads * sizeof *e->mem.progress, 0, &s->lines.fixed);
    at->scratch_at = arena_carve(s, update_scratch_bytes(e->o.threads), 0, &s->lines.fixed);
    at->records_bytes = e->o.records_bytes;
    at->records_at = arena_carve(s, at->records_bytes, 0, &s->lines.fixed);
    at->master_at = carve_state(s, updated, n, sizeof(float), &s->lines.optimizer);
    at->m_at = carve_state(s, updated, n, sizeof(float), &s->lines.optimizer);
    at->v_at = carve_state(s, updated, n, sizeof(float), &s->lines.optimizer);
    at->kept_at = carve_state(s, places_kept(&e->places)->elements, e->places.kept, sizeof(float),
                              &s->lines.grads);
    if (has_shard(e)) {
        at->shard_at = carve_state(s, e->places.part.elements, l->part, param, &s->lines.params);
    }

    struct arena *p = &a[ARENA_PARAMS];
    e->mem.params_stride = l->largest * param;
    if (l->params_sharded) {
        arena_carve(p, times(e->o.slots.gather, e->mem.params_stride), 0, &p->lines.gather_slots);
    } else {
        arena_carve(p, real * param, (l->padded - real) * param, &p->lines.params);
    }
    arena_carve(&a[ARENA_GRADS], times(e->o.slots.grad, l->largest * sizeof(float)), 0,
                &a[ARENA_GRADS].lines.grad_slots);
    for (int i = 0; i < ARENAS; i++) {
        if (!a[i].used) { /* a model without elements: a memfd has at least a page */
            arena_carve(&a[i], 1, 0, &a[i].lines.fixed);
        }
    }
}

static int check_limit(const struct engine *e, struct err *err) {
    struct memory m = {0};
    uint64_t total = 0;
    for (int i = 0; i < ARENAS; i++) {
        uint64_t size = arena_size(&e->mem.arenas[i]);
        total = total > UINT64_MAX - size ? UINT64_MAX : total + size;
        memory_add(&m, &e->mem.arenas[i].lines);
    }
    if (!e->o.device_memory || total <= e->o.device_memory) {
        return 0;
    }
    return err_set(err, ST_RESOURCE_EXHAUSTED,
                   "rank %u needs %" PRIu64 " bytes (parameters %" PRIu64 ", gradients %" PRIu64
                   ", optimizer %" PRIu64 ", gather slots %" PRIu64 ", gradient slots %" PRIu64
                   "), the limit is %" PRIu64,
                   e->o.rank, total, m.params, m.grads, m.optimizer, m.gather_slots, m.grad_slots,
                   e->o.device_memory);
}

/* Turns offsets into pointers and writes the header. */
static void point(struct engine *e) {
    struct memory_map *m = &e->mem;
    uint8_t *base = m->arenas[ARENA_STATE].base;
    struct state_header *h = (void *)base;
    *h = m->places;
    h->magic = STATE_MAGIC;
    h->version = STATE_VERSION;
    h->rank = e->o.rank;
    h->world = e->l->world;
    h->layout = control_fingerprint(e->l);
    h->threads = e->o.threads;
    h->tile = UPDATE_TILE;
    h->crc = crc32c(h, offsetof(struct state_header, crc));
    m->header = h;
    m->units = (void *)(base + h->units_at);
    m->progress = (void *)(base + h->progress_at);
    m->scratch = (void *)(base + h->scratch_at);
    m->records = base + h->records_at;
    m->master = (void *)(base + h->master_at);
    m->m = (void *)(base + h->m_at);
    m->v = (void *)(base + h->v_at);
    m->kept = (void *)(base + h->kept_at);
    if (e->l->params_sharded) {
        m->shard = base + (has_shard(e) ? h->shard_at : h->master_at);
    }
    m->params = m->arenas[ARENA_PARAMS].base;
    for (size_t u = 0; u < e->units; u++) {
        atomic_store(&m->units[u].version, COMM_NO_VERSION);
    }
}

/* What peers read from: which arena, and where it starts there. */
static int source(const struct engine *e, uint64_t *offset) {
    const struct memory_map *m = &e->mem;
    if (!e->l->grads_sharded) {
        *offset = m->header->kept_at;
        return ARENA_STATE;
    }
    if (e->l->params_sharded) {
        *offset = (uint64_t)(m->shard - m->arenas[ARENA_STATE].base);
        return ARENA_STATE;
    }
    *offset = 0;
    return ARENA_PARAMS;
}

static void set_up_update(struct engine *e) {
    const struct memory_map *m = &e->mem;
    e->update = (struct update){
        .kernels = e->o.kernels,
        .places = &e->places,
        .master = m->master,
        .m = m->m,
        .v = m->v,
        .kept = m->kept,
        .bf16 = e->model->param_dtype == DTYPE_BF16,
        .progress = m->progress,
        .scratch = m->scratch,
    };
    if (!e->l->params_sharded) {
        e->update.copy = m->params;
    } else if (has_shard(e)) {
        e->update.copy = m->shard;
    }
}

int memory_init(struct engine *e, struct err *err) {
    struct memory_map *m = &e->mem;
    m->grad_fd = m->params_fd = m->state_fds[0] = m->state_fds[1] = -1;
    for (int i = 0; i < ARENAS; i++) {
        arena_init(&m->arenas[i]);
    }
    carve(e);
    int rc = check_limit(e, err);
    static const struct {
        int arena;
        const char *name;
        enum arena_use use;
    } arenas[] = {{ARENA_CONTROL, "zerod-control", ARENA_PUBLISHED},
                  {ARENA_STATE, "zerod-state", ARENA_SHARED},
                  {ARENA_PARAMS, "zerod-params", ARENA_PUBLISHED}};
    for (size_t i = 0; i < sizeof arenas / sizeof *arenas && !rc; i++) {
        rc = e->device->ops->alloc(e->device, &m->arenas[arenas[i].arena], arenas[i].name,
                                   arenas[i].use, err);
    }
    if (rc) {
        return rc; /* memory_free is the caller's */
    }
    point(e);
    set_up_update(e);
    uint64_t offset;
    const struct arena *from = &m->arenas[source(e, &offset)];
    rc = e->device->ops->readonly(e->device, &m->arenas[ARENA_CONTROL], &m->state_fds[0], err);
    if (!rc) {
        rc = e->device->ops->readonly(e->device, from, &m->state_fds[1], err);
    }
    if (!rc) {
        rc = e->device->ops->readonly(e->device, &m->arenas[ARENA_PARAMS], &m->params_fd, err);
    }
    if (!rc) {
        e->comm = shm_new(&(struct shm_options){.layout = e->l,
                                                .rank = e->o.rank,
                                                .grad_slots = e->o.slots.grad,
                                                .kernels = e->o.kernels,
                                                .device = e->device,
                                                .page = m->arenas[ARENA_CONTROL].base,
                                                .source = from->base + offset,
                                                .source_offset = offset});
    }
    return rc;
}

static void close_fd(int *fd) {
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void memory_free_grads(struct engine *e) {
    close_fd(&e->mem.grad_fd);
    e->device->ops->free(e->device, &e->mem.arenas[ARENA_GRADS]);
}

int memory_new_grads(struct engine *e, struct err *err) {
    struct memory_map *m = &e->mem;
    struct arena *a = &m->arenas[ARENA_GRADS];
    int rc = e->device->ops->alloc(e->device, a, "zerod-grads", ARENA_SHARED, err);
    if (!rc) {
        rc = e->device->ops->readonly(e->device, a, &m->grad_fd, err);
    }
    if (rc) {
        memory_free_grads(e);
    }
    return rc;
}

void memory_free(struct engine *e) {
    struct memory_map *m = &e->mem;
    close_fd(&m->grad_fd);
    close_fd(&m->params_fd);
    close_fd(&m->state_fds[0]);
    close_fd(&m->state_fds[1]);
    for (int i = 0; i < ARENAS; i++) {
        e->device->ops->free(e->device, &m->arenas[i]);
    }
}

uint64_t memory_lease_offset(const struct engine *e, const struct lease_slot *s, uint32_t slot) {
    return e->l->params_sharded ? slot * e->mem.params_stride
                                : e->l->units[s->unit].flat_start * e->element;
}

float *memory_grad_slot(const struct engine *e, uint32_t slot) {
    float *base = (void *)e->mem.arenas[ARENA_GRADS].base;
    return base + slot * e->l->largest;
}
