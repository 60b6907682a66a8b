#include "rank_host.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/wait.h"
#include "must.h"

/* ---- the worker (engine/worker.c) runs while the loop's thread waits for it, and only then ----
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rises = PTHREAD_COND_INITIALIZER, sleeps = PTHREAD_COND_INITIALIZER;
static bool asleep, woken, may_run;

void wait_any(const struct wait_word *words, size_t count) {
    (void)count; /* the others are peers', who do nothing here */
    pthread_mutex_lock(&lock);
    asleep = true;
    woken = atomic_load(words[0].word) != words[0].value;
    pthread_cond_signal(&sleeps);
    while (!woken || !may_run) {
        pthread_cond_wait(&rises, &lock);
    }
    asleep = false;
    pthread_mutex_unlock(&lock);
}

void wait_wake(_Atomic uint32_t *word, bool shared) {
    (void)word, (void)shared;
    pthread_mutex_lock(&lock);
    woken = true;
    if (may_run) { /* else it hears of it when it may */
        pthread_cond_signal(&rises);
    }
    pthread_mutex_unlock(&lock);
}

/* Lets it run until it has nothing to do; |news|: it had. */
static void let_run(bool *news) {
    pthread_mutex_lock(&lock);
    *news = *news || woken;
    may_run = true;
    pthread_cond_signal(&rises);
    while (!asleep || woken) {
        pthread_cond_wait(&sleeps, &lock);
    }
    may_run = false;
    pthread_mutex_unlock(&lock);
}

/* For good: it is about to be joined. */
static void let_go(void) {
    pthread_mutex_lock(&lock);
    may_run = true;
    pthread_cond_signal(&rises);
    pthread_mutex_unlock(&lock);
}

#undef pthread_create
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

int fuzz_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                        void *arg) {
    asleep = false;
    int error = pthread_create(thread, attr, run, arg);
    pthread_mutex_lock(&lock);
    while (!error && !asleep) {
        pthread_cond_wait(&sleeps, &lock);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- the trainer's process: an eventfd that is readable once it is dead ---- */

static bool killed;

long fuzz_syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    int fd = va_arg(list, int);
    va_end(list);
    if (number == SYS_pidfd_open) {
        return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    must(number == SYS_pidfd_send_signal, "no other call of the system than these two");
    killed = true;
    return eventfd_write(fd, 1);
}

void rank_host_die(struct rank *r) {
    if (r->session) {
        must(eventfd_write(r->session->pidfd, 1) == 0, "the eventfd takes it");
    }
}

bool rank_host_was_killed(void) {
    bool was = killed;
    killed = false;
    return was;
}

/* ---- main.c's part ---- */

static struct rank self;
static unsigned worked; /* calls of on_work */

void admin_hashed(struct rank *r, uint64_t sum, uint64_t version) {
    (void)r, (void)sum, (void)version;
}

void rank_end(struct rank *r, const char *reason) {
    must(!reason || reason[0], "an end with a reason");
    if (r->ending) {
        return;
    }
    r->ending = true;
    r->failed = reason != NULL;
    session_end(r, false, reason ? reason : "the daemon is ending");
    link_close(r);
    uv_async_send(&r->work);
}

static void on_work(uv_async_t *a) {
    struct rank *r = a->data;
    worked++;
    if (r->ending) {
        let_go();
        engine_del(r->engine);
        r->engine = NULL;
        uv_close((uv_handle_t *)a, NULL);
        return;
    }
    rank_hear_engine(r);
}

struct rank *rank_host_up(unsigned rank, unsigned world, unsigned shape) {
    struct rank *r = &self;
    struct err e = {0};
    memset(r, 0, sizeof *r);
    asleep = woken = may_run = killed = false;
    wire_reset();
    r->options = (struct options){
        .listen = "here",
        .coordinator = "there",
        .job = "fuzz",
        .rank = rank,
        .world = world,
        .gather_slots = 1 + (shape >> 2) % 2,
        .grad_slots = 2,
        .threads = 1,
        .no_overlap = shape & 16,
        .defaults = {.strategy = (enum strategy)(1 + shape % 4)},
    };
    uv_loop_init(&r->loop);
    must(kernels_select("plain", &r->kernels, &e) == 0, "the plain kernels are there");
    must(rank_memory_records(r, &e) == 0, "memory for records");
    r->job = job_rank_new(rank, r->records, &rank_job_ops, r);
    uv_async_init(&r->loop, &r->work, on_work);
    r->work.data = r;
    link_start(r);
    return r;
}

void rank_host_settle(struct rank *r, bool (*pass)(void *user), void *user) {
    bool more = true;
    while (more) {
        unsigned before = worked;
        more = false;
        if (r->engine) {
            let_run(&more);
        }
        uv_run(&r->loop, UV_RUN_NOWAIT);
        more = worked != before || more;
        more = (pass && pass(user)) || more;
    }
}

void rank_host_down(struct rank *r) {
    rank_end(r, NULL);
    wire_hand_over();
    uv_run(&r->loop, UV_RUN_DEFAULT);
    rank_memory_free(r);
    job_rank_del(r->job);
    must(uv_loop_close(&r->loop) == 0, "no handle is left in the loop");
}
