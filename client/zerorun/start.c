/* Command lines and environment of the job's processes. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "job.h"

enum { WORDS = 64, WORD = 4200 };

/* A command line being written. */
struct words {
    char *list[WORDS + 1];
    size_t count;
};

static void add(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct words *w, const char *fmt, ...) {
    char text[WORD];
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    if (w->count < WORDS) {
        w->list[w->count++] = mem_text(text);
    }
}

static void forget(struct words *w) {
    while (w->count) {
        free(w->list[--w->count]);
    }
}

static bool runs(const char *path) {
    return access(path, X_OK) == 0;
}

static bool in_search_path(const char *name) {
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t n = strcspn(at, ":");
        char path[4096];
        (void)snprintf(path, sizeof path, "%.*s/%s", (int)n, at, name);
        if (runs(path)) {
            return true;
        }
        at += n + (at[n] == ':');
    }
    return false;
}

static int find_trainer(struct job *j, struct err *e) {
    const char *name = j->o->trainer[0];
    char beside[sizeof j->trainer];
    (void)snprintf(j->trainer, sizeof j->trainer, "%s", name);
    if (strchr(name, '/')) {
        return runs(name) ? 0
                          : err_set(e, ST_NOT_FOUND, "cannot run the trainer %.200s: %s", name,
                                    strerror(errno));
    }
    int n = snprintf(beside, sizeof beside, "%.3800s/%.200s", j->beside, name);
    if (n > 0 && runs(beside)) {
        memcpy(j->trainer, beside, (size_t)n + 1);
        return 0;
    }
    return in_search_path(name)
               ? 0
               : err_set(e, ST_NOT_FOUND,
                         "cannot find the trainer %.100s beside zerorun or in PATH", name);
}

int start_find_programs(struct job *j, struct err *e) {
    ssize_t n = readlink("/proc/self/exe", j->beside, sizeof j->beside - 1);
    if (n <= 0) {
        return err_set(e, ST_NOT_FOUND, "cannot read /proc/self/exe: %s", strerror(errno));
    }
    j->beside[n] = 0;
    *strrchr(j->beside, '/') = 0;
    static const char *const programs[] = {"zerod", "zerocoord"};
    for (int i = 0; i < 2; i++) {
        char path[sizeof j->beside + 16];
        (void)snprintf(path, sizeof path, "%s/%s", j->beside, programs[i]);
        if (!runs(path)) {
            return err_set(e, ST_UNAVAILABLE, "cannot run %.200s, which belongs beside zerorun: %s",
                           path, strerror(errno));
        }
    }
    return find_trainer(j, e);
}

static const char *job_name(const struct job *j) {
    return strrchr(j->folder.path, '/') + 1;
}

static void on_output(void *user, int stream, const char *bytes, size_t n) {
    struct member *m = user;
    talk_hear(m->job->talk, &m->speakers[stream - 1], bytes, n);
}

static int start_argv(struct member *m, char *const *argv, const struct words *environment,
                      const struct words *defaults, struct err *e) {
    struct job *j = m->job;
    bool trainer = m->kind == TRAINER;
    for (int i = 0; i < 2; i++) {
        struct speaker *s = &m->speakers[i];
        *s = (struct speaker){.owner = m, .fd = i + 1};
        if (trainer) {
            s->as_it_comes = i == 0 && m->rank == 0;
            (void)snprintf(s->prefix, sizeof s->prefix, "[rank %u] ", m->rank);
        } else {
            s->fd = 2; /* standard output is the trainers' */
        }
    }
    struct process_options o = {
        .argv = argv,
        .environment = environment ? environment->list : NULL,
        .defaults = defaults ? defaults->list : NULL,
        .keep_fd = trainer ? -1 : j->holder[0],
        .dies_with_us = trainer,
        .on_output = on_output,
        .on_exit = job_on_exit,
        .user = m,
    };
    int rc = process_start(&j->loop, &o, &m->process, e);
    j->running += rc == 0;
    return rc;
}

static int start(struct member *m, struct words *w, struct err *e) {
    int rc = start_argv(m, w->list, NULL, NULL, e);
    forget(w);
    return rc;
}

static void add_number(struct words *w, const char *name, uint64_t n) {
    add(w, "%s", name);
    add(w, "%" PRIu64, n);
}

static void add_job(struct words *w, const struct member *m) {
    add(w, "--listen");
    add(w, "%s", m->address);
    add(w, "--job");
    add(w, "%s", job_name(m->job));
    add(w, "--world");
    add(w, "%u", m->job->ranks);
    add(w, "--holder-fd");
    add(w, "%d", PROCESS_KEPT_FD);
    if (m->job->o->observed) {
        add_number(w, "--observers", m->job->o->observers);
    }
}

int start_coordinator(struct job *j, struct err *e) {
    struct words w = {.count = 0};
    add(&w, "%s/zerocoord", j->beside);
    add_job(&w, &j->coordinator);
    add_number(&w, "--max-skips", j->o->max_skips);
    return start(&j->coordinator, &w, e);
}

static void add_text(struct words *w, const char *name, const char *value) {
    if (value) {
        add(w, "%s", name);
        add(w, "%s", value);
    }
}

int start_daemon(struct job *j, unsigned rank, struct err *e) {
    const struct options *o = j->o;
    struct member *m = &j->daemons[rank];
    char handover[FOLDER_PATH];
    folder_handover(&j->folder, rank, handover);
    struct words w = {.count = 0};
    add(&w, "%s/zerod", j->beside);
    add_job(&w, m);
    add_text(&w, "--handover", handover);
    add_text(&w, "--coordinator", j->coordinator.address);
    add_number(&w, "--rank", rank);
    add_text(&w, "--strategy", o->strategy);
    add_text(&w, "--param-dtype", o->param_dtype);
    add_text(&w, "--wire-dtype", o->wire_dtype);
    add_text(&w, "--kept-grad", o->kept_grad);
    add_number(&w, "--shard-size", o->shard_size);
    add_number(&w, "--gather-slots", o->gather_slots);
    add_number(&w, "--grad-slots", o->grad_slots);
    add_number(&w, "--threads", o->threads);
    add(&w, "--trainer-groups");
    if (o->device_memory) {
        add_number(&w, "--device-memory", o->device_memory);
    }
    if (o->no_overlap) {
        add(&w, "--no-overlap");
    }
    if (o->dry_run) {
        add(&w, "--dry-run");
    }
    add_text(&w, "--drill", o->drill);
    return start(m, &w, e);
}

/* Cores for one trainer's own threads. */
static unsigned cores_each(unsigned ranks) {
    cpu_set_t set;
    unsigned cores = sched_getaffinity(0, sizeof set, &set) ? 1 : (unsigned)CPU_COUNT(&set);
    return cores > ranks ? cores / ranks : 1;
}

int start_trainer(struct job *j, unsigned rank, struct err *e) {
    struct member *m = &j->trainers[rank];
    struct words environment = {.count = 0}, defaults = {.count = 0};
    add(&environment, "RANK=%u", rank);
    add(&environment, "WORLD_SIZE=%u", j->ranks);
    add(&environment, "LOCAL_RANK=%u", rank);
    add(&environment, "LOCAL_WORLD_SIZE=%u", j->ranks);
    add(&environment, "ZEROD_ADDRESS=%s", j->daemons[rank].address);
    add(&defaults, "OPENBLAS_NUM_THREADS=%u", cores_each(j->ranks));
    add(&defaults, "OMP_NUM_THREADS=%u", cores_each(j->ranks));
    size_t count = 0;
    while (j->o->trainer[count]) {
        count++;
    }
    /* The trainer's command line is the caller's, of any length; only its first word is ours. */
    char **argv = mem_zeroed(count + 1, sizeof *argv);
    memcpy(argv, j->o->trainer, count * sizeof *argv);
    argv[0] = j->trainer;
    int rc = start_argv(m, argv, &environment, &defaults, e);
    free(argv);
    forget(&environment);
    forget(&defaults);
    return rc;
}
