/* The engine as a whole: its life, the hand-over of memory, and the protocol's calls. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "engine/inner.h"

/* ---- life ---- */

int engine_new(const struct layout *l, const struct engine_options *o,
               const struct engine_callbacks *cb, void *ctx, struct engine **out, struct err *err) {
    int rc = carve_check_options(l, o, err);
    if (rc) {
        return rc;
    }
    struct engine *e = mem_zeroed(1, sizeof *e);
    e->l = l;
    e->model = l->model;
    e->o = *o;
    e->cb = *cb;
    e->ctx = ctx;
    e->units = l->model->unit_count;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->between, NULL);
    rc = device_cpu(o->threads, &e->device, err);
    if (!rc) {
        rc = tables_init(e, err);
    }
    if (!rc) {
        rc = memory_init(e, err);
    }
    if (!rc) {
        rc = worker_start(e, err);
    }
    if (rc) {
        engine_del(e);
        return rc;
    }
    *out = e;
    return 0;
}

void engine_del(struct engine *e) {
    if (!e) {
        return;
    }
    worker_stop(e);
    if (e->comm) {
        e->comm->ops->del(e->comm);
    }
    if (e->places.units) { /* memory was begun, tables are whole */
        memory_free(e);
    }
    if (e->device) {
        e->device->ops->del(e->device);
    }
    tables_free(e);
    pthread_cond_destroy(&e->between);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* ---- memory hand-over ---- */

void engine_state_fds(const struct engine *e, int fds[ENGINE_STATE_FDS]) {
    for (int i = 0; i < ENGINE_STATE_FDS; i++) {
        fds[i] = e->mem.state_fds[i];
    }
}

void *engine_records(struct engine *e) {
    return e->mem.records;
}

int engine_grad_fd(const struct engine *e) {
    return e->mem.grad_fd;
}

void engine_trainer_fds(const struct engine *e, int fds[2], uint64_t bytes[2]) {
    fds[0] = e->mem.params_fd;
    fds[1] = e->mem.arenas[ARENA_GRADS].fd;
    bytes[0] = e->mem.arenas[ARENA_PARAMS].bytes;
    bytes[1] = e->mem.arenas[ARENA_GRADS].bytes;
}

int engine_attach(struct engine *e, uint64_t attachment, struct err *err) {
    pthread_mutex_lock(&e->lock);
    if (e->t.open && e->t.asked > e->t.done) {
        pthread_mutex_unlock(&e->lock);
        return err_set(err, ST_FAILED_PRECONDITION,
                       "attachment %" PRIu64 ": gradients of step %" PRIu64
                       " are still read from the attachment before",
                       attachment, e->t.fence.step);
    }
    worker_pause(e);
    e->attached = false;
    shm_own_grads(e->comm, NULL);
    worker_resume(e);
    pthread_mutex_unlock(&e->lock);
    memory_free_grads(e); /* freed first: a machine may not hold two */
    int rc = memory_new_grads(e, err);
    if (rc) {
        return rc;
    }
    pthread_mutex_lock(&e->lock);
    worker_pause(e);
    shm_own_grads(e->comm, e->mem.arenas[ARENA_GRADS].base);
    e->attachment = attachment;
    e->attached = true;
    worker_resume(e);
    pthread_mutex_unlock(&e->lock);
    return 0;
}

static int check_peer(const struct engine *e, unsigned rank, struct err *err) {
    if (rank < e->l->world && rank != e->o.rank) {
        return 0;
    }
    return err_set(err, ST_INVALID_ARGUMENT, "rank %u is no peer of rank %u of %u", rank, e->o.rank,
                   e->l->world);
}

static void close_all(const int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

int engine_peer_state(struct engine *e, unsigned rank, int fds[ENGINE_STATE_FDS], struct err *err) {
    int rc = check_peer(e, rank, err);
    if (rc) {
        close_all(fds, ENGINE_STATE_FDS);
        return rc;
    }
    pthread_mutex_lock(&e->lock);
    worker_pause(e);
    rc = shm_peer_state(e->comm, rank, fds, err);
    worker_resume(e);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

int engine_peer_grads(struct engine *e, unsigned rank, uint64_t attachment, int fd,
                      struct err *err) {
    int rc = check_peer(e, rank, err);
    if (rc) {
        close_all(&fd, 1);
        return rc;
    }
    pthread_mutex_lock(&e->lock);
    worker_pause(e);
    rc = shm_peer_grads(e->comm, rank, attachment, fd, err);
    worker_resume(e);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* ---- the protocol above ---- */

/* Ends the try, whatever it came to: what runs of it is void, nothing of it is reported any more.
 */
static void close_try(struct engine *e) {
    e->tries++;
    e->t.open = false;
    leases_start(&e->leases, NULL, false);
    if (e->current && e->current->kind->of_try) {
        e->comm->ops->abort(e->comm);
    }
}

void engine_open(struct engine *e, const struct fence *f) {
    pthread_mutex_lock(&e->lock);
    assert(!e->t.open && !(e->current && e->current->kind->of_try)); /* BEGIN waits for idle */
    e->tries++;
    e->t = (struct attempt){.open = true, .fence = *f};
    if (f->step > 0) {
        leases_start(&e->leases, &e->gathers, false);
        reduce_conclude(e); /* nothing in the model is trained: done before it begins */
    }
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
}

void engine_cancel(struct engine *e, const struct fence *f) {
    pthread_mutex_lock(&e->lock);
    if (e->t.open && fence_equal(&e->t.fence, f)) {
        close_try(e);
        e->t.entered = false;
    }
    pthread_mutex_unlock(&e->lock);
}

void engine_enter(struct engine *e) {
    pthread_mutex_lock(&e->lock);
    assert(e->t.open);
    e->t.entered = true;
    slots_grant(e);
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
    engine_events(e);
}

void engine_apply(struct engine *e, uint64_t step, bool commit, const struct step_scalars *s) {
    pthread_mutex_lock(&e->lock);
    assert(e->t.open && e->t.fence.step == step && apply_is_done(e));
    assert(e->t.reduced || !commit);
    close_try(e);
    e->t.entered = false;
    e->a = (struct applying){.active = true, .commit = commit, .step = step};
    if (s) {
        e->a.scalars = *s;
    }
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
}

static struct engine *mutable(const struct engine *e) {
    return (struct engine *)(uintptr_t)e;
}

static bool is_idle(const struct engine *e) {
    return !(e->current && e->current->kind->of_try);
}

bool engine_idle(const struct engine *e) {
    pthread_mutex_lock(&mutable(e)->lock);
    bool idle = is_idle(e);
    pthread_mutex_unlock(&mutable(e)->lock);
    return idle;
}

bool engine_quiet(const struct engine *e) {
    pthread_mutex_lock(&mutable(e)->lock);
    bool quiet = is_idle(e) && apply_is_done(e);
    pthread_mutex_unlock(&mutable(e)->lock);
    return quiet;
}

void engine_hold_updates(struct engine *e, bool hold) {
    pthread_mutex_lock(&e->lock);
    e->hold = hold;
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
}

void engine_hash(struct engine *e) {
    pthread_mutex_lock(&e->lock);
    e->hash_wanted = true;
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
}
