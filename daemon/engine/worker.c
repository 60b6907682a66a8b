/* The worker: one thread that takes the first operation that is ready, in the order of the table
 * below, and carries it out; with helpers where the range is long. It waits only when nothing is
 * ready, for this process (|work|) and all peers at once. */
#include <assert.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/slice.h"
#include "comm/wait.h"
#include "engine/inner.h"

/* Gather before reduce before update; what the next unit's gather waits for before more updates. */
static const struct op_kind *const kinds[] = {
    &op_gather, &op_load, &op_reduce, &op_sum, &op_share, &op_regather, &op_update, &op_hash,
};

enum { WIDE = 1 << 16 }; /* elements below which waking helpers costs more than it saves */

void worker_launch(struct engine *e, uint64_t n,
                   void (*part)(void *ctx, unsigned thread, unsigned threads), void *ctx) {
    e->device->ops->launch(e->device, n < WIDE ? 1 : e->o.threads, part, ctx);
}

static bool take(struct engine *e, struct op *o) {
    if (e->paused) {
        return false;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        *o = (struct op){.kind = kinds[i], .try = e->tries, .ok = true};
        if (kinds[i]->next(e, o)) {
            return true;
        }
    }
    return false;
}

/* Locked before and after. */
static void carry_out(struct engine *e, struct op *o) {
    bool was_done = apply_is_done(e);
    e->current = o;
    pthread_mutex_unlock(&e->lock);
    int64_t begin = clock_ns();
    o->kind->run(e, o);
    int64_t ns = clock_ns() - begin;
    pthread_mutex_lock(&e->lock);
    e->current = NULL;
    if (o->kind->clock) {
        *o->kind->clock(e) += (uint64_t)ns;
    }
    e->comm->ops->resume(e->comm);
    bool is_void = o->kind->of_try && o->try != e->tries;
    if (!is_void || o->kind == &op_gather) { /* a gather's slot has to be given back in any case */
        o->kind->finish(e, o);
    }
    e->ran = true;
    e->progress = e->progress || is_void || (!was_done && apply_is_done(e));
    pthread_cond_broadcast(&e->between);
}

static void tell(struct engine *e) {
    pthread_mutex_unlock(&e->lock);
    e->cb.notify(e->ctx);
    pthread_mutex_lock(&e->lock);
}

static void *work(void *arg) {
    struct engine *e = arg;
    struct op o;
    slice_take(SLICE_NORMAL); /* not that of the thread which started it */
    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        uint32_t seen = atomic_load_explicit(&e->work, memory_order_acquire);
        e->comm->ops->look(e->comm);
        slots_publish(e);
        bool news = slots_grant(e), busy = take(e, &o);
        if (busy) {
            carry_out(e, &o);
        } else if (e->ran) {
            e->ran = false;
            e->progress = true;
        }
        if ((busy || news || e->progress) && events_pending(e)) {
            tell(e);
        }
        if (!busy) {
            pthread_mutex_unlock(&e->lock);
            e->comm->ops->wait(e->comm, &e->work, seen);
            pthread_mutex_lock(&e->lock);
        }
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

int worker_start(struct engine *e, struct err *err) {
    sigset_t all, before;
    sigfillset(&all); /* signals are for the owner's threads */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(&e->worker, NULL, work, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        return err_set(err, ST_RESOURCE_EXHAUSTED, "cannot start the worker: %s", strerror(error));
    }
    e->runs = true;
    return 0;
}

void worker_stop(struct engine *e) {
    if (!e->runs) {
        return;
    }
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    e->comm->ops->abort(e->comm);
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->worker, NULL);
    e->runs = false;
}

void worker_pause(struct engine *e) {
    e->paused++;
    while (e->current) {
        pthread_cond_wait(&e->between, &e->lock);
    }
}

void worker_resume(struct engine *e) {
    assert(e->paused);
    e->paused--;
    worker_poke(e);
}

void worker_poke(struct engine *e) {
    atomic_fetch_add_explicit(&e->work, 1, memory_order_release);
    wait_wake(&e->work, false);
}
