#include "device/pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct helper {
    struct pool *pool;
    unsigned index; /* from 1 */
    pthread_t thread;
};

struct pool {
    unsigned threads; /* the caller included */
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    uint64_t round;   /* raised for each piece of work */
    unsigned wanted;  /* threads of this round, the caller included */
    unsigned running; /* helpers of this round that have not finished */
    bool stop;
    void (*part)(void *ctx, unsigned thread, unsigned threads);
    void *ctx;
    struct helper helpers[]; /* threads - 1 */
};

static void *help(void *arg) {
    const struct helper *h = arg;
    struct pool *p = h->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && (p->round == seen || h->index >= p->wanted)) {
            seen = p->round;
            pthread_cond_wait(&p->work, &p->lock);
        }
        if (p->stop) {
            break;
        }
        seen = p->round;
        unsigned wanted = p->wanted;
        pthread_mutex_unlock(&p->lock);
        p->part(p->ctx, h->index, wanted);
        pthread_mutex_lock(&p->lock);
        if (--p->running == 0) {
            pthread_cond_signal(&p->finished);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void stop(struct pool *p, unsigned started) {
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(p->helpers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Returns how many helpers run; signals are for the owner's own threads. */
static unsigned start(struct pool *p, int *error) {
    sigset_t all, before;
    unsigned i = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (*error = 0; i + 1 < p->threads; i++) {
        p->helpers[i] = (struct helper){.pool = p, .index = i + 1};
        *error = pthread_create(&p->helpers[i].thread, NULL, help, &p->helpers[i]);
        if (*error) {
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return i;
}

int pool_new(unsigned threads, struct pool **out, struct err *e) {
    if (threads < 1 || threads > POOL_MAX_THREADS) {
        return err_set(e, ST_INVALID_ARGUMENT, "%u threads: must be 1 to %d", threads,
                       POOL_MAX_THREADS);
    }
    struct pool *p = mem_zeroed(1, sizeof *p + (threads - 1) * sizeof p->helpers[0]);
    int error;
    p->threads = threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
    unsigned started = start(p, &error);
    if (error) {
        stop(p, started);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "cannot start thread %u of %u: %s", started + 1,
                       threads, strerror(error));
    }
    *out = p;
    return 0;
}

void pool_del(struct pool *p) {
    if (p) {
        stop(p, p->threads - 1);
    }
}

void pool_run(struct pool *p, unsigned threads,
              void (*part)(void *ctx, unsigned thread, unsigned threads), void *ctx) {
    assert(threads >= 1 && threads <= p->threads);
    if (threads == 1) {
        part(ctx, 0, 1);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->part = part;
    p->ctx = ctx;
    p->wanted = threads;
    p->running = threads - 1;
    p->round++;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    part(ctx, 0, threads);
    pthread_mutex_lock(&p->lock);
    while (p->running) {
        pthread_cond_wait(&p->finished, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}

void pool_share(uint64_t n, uint64_t grain, unsigned thread, unsigned threads, uint64_t *from,
                uint64_t *to) {
    uint64_t grains = (n + grain - 1) / grain; /* at most 2^44 * 256 threads: no overflow */
    uint64_t a = grains * thread / threads * grain, b = grains * (thread + 1) / threads * grain;
    *from = a < n ? a : n;
    *to = b < n ? b : n;
}
