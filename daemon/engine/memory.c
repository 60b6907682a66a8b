/* All memory of one rank (design §5, §9, §10): four arenas, carved once (carve.c).
 *
 *   control  the control page; peers map it read-only
 *   state    adopted memory: header, per-unit state, progress, scratch tiles, records, master,
 *            optimizer states, kept gradients, and the shard of sharded parameters; peers map it
 *            read-only where they read it
 *   params   gather slots, or the replica; trainers map it read-only, peers too where they gather
 *            replicas again after an update
 *   grads    gradient slots; the trainer writes them; new for each attachment
 */
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc.h"
#include "comm/control.h"
#include "engine/inner.h"

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
    for (unsigned k = 0; k < optimizer_states(&e->model->optimizer); k++) {
        m->state[k] = (void *)(base + h->state_at[k]);
    }
    m->kept = base + h->kept_at;
    m->wide = h->wide_at ? (void *)(base + h->wide_at) : NULL;
    m->shard = h->shard_at ? base + h->shard_at : NULL;
    m->params = m->arenas[ARENA_PARAMS].base;
    for (size_t u = 0; u < e->units; u++) {
        atomic_store(&m->units[u].version, COMM_NO_VERSION);
    }
}

static void set_up_update(struct engine *e) {
    const struct memory_map *m = &e->mem;
    e->update = (struct update){
        .kernels = e->o.kernels,
        .places = &e->places,
        .master = m->master,
        .state = {m->state[0], m->state[1]},
        .kept = m->kept,
        .held = e->l->params_sharded ? m->shard : m->params,
        .progress = m->progress,
        .scratch = m->scratch,
    };
}

/* What peers read, and where it is in the arenas whose descriptors they get. */
static void make_comm(struct engine *e) {
    const struct memory_map *m = &e->mem;
    const struct state_header *h = m->header;
    const struct places *p = &e->places;
    struct shm_options o = {.layout = e->l,
                            .rank = e->o.rank,
                            .grad_slots = e->o.slots.grad,
                            .kernels = e->o.kernels,
                            .device = e->device,
                            .page = m->arenas[ARENA_CONTROL].base};
    uint64_t kept = p->kept_elements.padded * dtype_bytes(e->model->kept_dtype);
    o.memory[COMM_KEPT] = (struct shm_memory){m->kept, h->kept_at, kept};
    if (e->l->params_sharded) {
        uint64_t master = p->optimizer_elements.padded * sizeof(float);
        o.memory[COMM_MASTER] = (struct shm_memory){(void *)m->master, h->master_at, master};
        o.memory[COMM_SHARD] = (struct shm_memory){m->shard, h->shard_at, p->held_bytes.padded};
    } else {
        o.memory[COMM_REPLICA] = (struct shm_memory){m->params, 0, p->held_bytes.padded};
    }
    e->comm = shm_new(&o);
}

static int make_fds(struct engine *e, struct err *err) {
    static const int arenas[ENGINE_STATE_FDS] = {
        [SHM_PAGE] = ARENA_CONTROL, [SHM_STATE] = ARENA_STATE, [SHM_PARAMS] = ARENA_PARAMS};
    struct memory_map *m = &e->mem;
    int rc = e->device->ops->readonly(e->device, &m->arenas[ARENA_PARAMS], &m->params_fd, err);
    for (int i = 0; i < ENGINE_STATE_FDS && !rc; i++) {
        rc = e->device->ops->readonly(e->device, &m->arenas[arenas[i]], &m->state_fds[i], err);
    }
    return rc;
}

int memory_init(struct engine *e, struct err *err) {
    static const struct {
        int arena;
        const char *name;
        enum arena_use use;
    } arenas[] = {{ARENA_CONTROL, "zerod-control", ARENA_PUBLISHED},
                  {ARENA_STATE, "zerod-state", ARENA_SHARED},
                  {ARENA_PARAMS, "zerod-params", ARENA_PUBLISHED}};
    struct memory_map *m = &e->mem;
    m->grad_fd = m->params_fd = -1;
    for (int i = 0; i < ENGINE_STATE_FDS; i++) {
        m->state_fds[i] = -1;
    }
    carve(e);
    int rc = carve_check(e, err);
    for (size_t i = 0; i < sizeof arenas / sizeof *arenas && !rc; i++) {
        rc = e->device->ops->alloc(e->device, &m->arenas[arenas[i].arena], arenas[i].name,
                                   arenas[i].use, err);
    }
    if (!rc) {
        rc = make_fds(e, err);
    }
    if (!rc) { /* memory_free is the caller's */
        point(e);
        set_up_update(e);
        make_comm(e);
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
    for (int i = 0; i < ENGINE_STATE_FDS; i++) {
        close_fd(&m->state_fds[i]);
    }
    for (int i = 0; i < ARENAS; i++) {
        e->device->ops->free(e->device, &m->arenas[i]);
    }
}

uint64_t memory_lease_offset(const struct engine *e, const struct lease_slot *s, uint32_t slot) {
    return e->l->params_sharded ? slot * e->mem.params_stride : e->places.units[s->unit].replica;
}
