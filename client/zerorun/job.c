/* What follows from what.
 *
 * The first cause: when a process dies, others see it at once through their sockets, complain, and
 * exit with a status, and their exits may be seen here before the death itself. So a death by a
 * signal counts at once, an exit with a status after a pause in which a death may turn up. Among
 * daemons that all exited the one that complained first is the cause, and a trainer's exit counts
 * only when no daemon did. */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "report.h"
#include "screen.h"

enum {
    IDLE_MS = 10000,   /* until it is said that one trainer is done and others are not */
    PAUSE_MS = 100,    /* in which a first cause may turn up */
    TRAINER_USAGE = 2, /* exit status of a trainer that a restart cannot help */
};

const char *member_name(const struct member *m, char text[static 32]) {
    switch (m->kind) {
    case COORDINATOR:
        (void)snprintf(text, 32, "the coordinator");
        break;
    case DAEMON:
        (void)snprintf(text, 32, "zerod of rank %u", m->rank);
        break;
    case TRAINER:
        (void)snprintf(text, 32, "trainer of rank %u", m->rank);
        break;
    }
    return text;
}

void job_fail(struct job *j, const char *fmt, ...) {
    if (j->phase == JOB_ENDING) {
        return;
    }
    char text[900];
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    talk_silence(j->talk);
    screen_keep_progress();
    screen_say("%s", text);
    j->status = 1;
    end_job(j, ENDING_SUDDEN, 0);
}

/* ---- trainers ---- */

static bool trainers_finished(const struct job *j) {
    for (unsigned r = 0; r < j->ranks; r++) {
        if (!j->trainers[r].finished) {
            return false;
        }
    }
    return true;
}

/* The step that is being tried, as far as the coordinator has told. */
static uint64_t current_step(const struct job *j) {
    return j->progress.steps ? j->progress.last_step + 1 : j->progress.loaded ? 1 : 0;
}

static void trainer_died(struct member *m, const struct process_end *end) {
    struct job *j = m->job;
    char name[32], text[128];
    int64_t now = clock_ns();
    process_end_text(member_name(m, name), end, text, sizeof text);
    if (!end->killed && end->code == TRAINER_USAGE) {
        talk_first_cause(j->talk, m);
        job_fail(j, "%s: it cannot work like this and is not started again", text);
        return;
    }
    if (!end->killed && !j->progress.loaded) {
        job_fail(j, "%s before the initial values were loaded: not started again", text);
        return;
    }
    if (j->restarts >= j->o->max_restarts) {
        job_fail(j, "%s, and the job's %" PRIu64 " restarts are used up", text, j->o->max_restarts);
        return;
    }
    j->restarts++;
    j->progress.restarts = j->restarts;
    uint64_t step = current_step(j);
    uint64_t attempt = j->void_attempt && j->void_step == step ? j->void_attempt + 1 : 1;
    talk_say(j->talk,
             "%s in step %" PRIu64 ", attempt %" PRIu64 "; starting it again (restart %" PRIu64
             " of %" PRIu64 ")",
             text, step, attempt, j->restarts, j->o->max_restarts);
    recover_begin(j, m->rank, step, now);
    struct err e;
    if (start_trainer(j, m->rank, &e)) {
        job_fail(j, "trainer of rank %u: %s", m->rank, e.text);
    }
}

static void on_trainer_weighed(uv_timer_t *timer) {
    struct member *m = timer->data;
    if (!m->job->suspects && m->job->phase != JOB_ENDING) {
        trainer_died(m, &m->end);
    }
}

static void on_still_running(uv_timer_t *timer) {
    struct member *m = timer->data;
    unsigned left = 0;
    for (unsigned r = 0; r < m->job->ranks; r++) {
        left += !m->job->trainers[r].finished;
    }
    if (left && m->job->phase != JOB_ENDING) {
        talk_say(m->job->talk,
                 "trainer of rank %u exited with status 0 %d s ago, %u of %u still run", m->rank,
                 IDLE_MS / 1000, left, m->job->ranks);
    }
}

static void trainer_exited(struct member *m, const struct process_end *end) {
    struct job *j = m->job;
    if (end->killed) {
        trainer_died(m, end);
        return;
    }
    if (end->code) {
        m->end = *end;
        (void)uv_timer_start(&m->pause, on_trainer_weighed, PAUSE_MS, 0);
        return;
    }
    m->finished = true;
    (void)uv_timer_start(&m->pause, on_still_running, IDLE_MS, 0);
    if (trainers_finished(j)) {
        j->phase = JOB_COLLECTING;
        recover_stop(j);
        collect_begin(j);
    }
}

void job_collected(struct job *j, const struct err *failure) {
    j->collect = NULL;
    if (failure) {
        job_fail(j, "%s", failure->text);
        return;
    }
    talk_flush(j->talk);
    progress_finish(&j->progress);
    talk_flush(j->talk);
    struct err e;
    if (report_json(j, &e)) {
        job_fail(j, "%s", e.text);
        return;
    }
    report_summary(j);
    end_job(j, ENDING_DONE, 0);
}

/* ---- what follows from an exit ---- */

static void blame(struct member *m, const struct process_end *end) {
    char name[32], text[128];
    talk_first_cause(m->job->talk, m);
    job_fail(m->job, "%s: the job ends",
             process_end_text(member_name(m, name), end, text, sizeof text));
}

/* Does |a| come before |b| as a cause? */
static bool earlier(const struct member *a, const struct member *b) {
    size_t place_a = talk_place(a->job->talk, a), place_b = talk_place(b->job->talk, b);
    return place_a != place_b ? place_a < place_b : a->suspect < b->suspect;
}

static void on_daemons_weighed(uv_timer_t *timer) {
    struct job *j = ((struct member *)timer->data)->job;
    struct member *cause = j->coordinator.suspect ? &j->coordinator : NULL;
    for (unsigned r = 0; r < j->ranks; r++) {
        struct member *m = &j->daemons[r];
        if (m->suspect && (!cause || earlier(m, cause))) {
            cause = m;
        }
    }
    if (j->phase != JOB_ENDING) {
        blame(cause, &cause->end);
    }
}

static void daemon_exited(struct member *m, const struct process_end *end) {
    struct job *j = m->job;
    if (end->killed) {
        blame(m, end);
        return;
    }
    m->end = *end;
    m->suspect = ++j->suspects;
    if (j->suspects == 1) {
        talk_pause(j->talk);
        (void)uv_timer_start(&m->pause, on_daemons_weighed, PAUSE_MS, 0);
    }
}

/* After a job that is done, processes that see others go first may complain and say so with a
 * status of 1; a crash, or a sanitizer's status, is another matter. */
static bool ended_badly(const struct process_end *end) {
    return end->killed ? end->code != SIGTERM : end->code > 1;
}

static void exited_while_ending(struct member *m, const struct process_end *end) {
    struct job *j = m->job;
    if (j->ending == ENDING_DONE && ended_badly(end)) {
        char name[32], text[128];
        talk_release(j->talk, m);
        screen_say("%s after the job was done",
                   process_end_text(member_name(m, name), end, text, sizeof text));
        j->status = 1;
    }
    end_member_gone(j);
}

void job_on_exit(void *user, const struct process_end *end) {
    struct member *m = user;
    struct job *j = m->job;
    m->process = NULL;
    j->running--;
    for (int i = 0; i < 2; i++) {
        talk_end(j->talk, &m->speakers[i]);
    }
    if (j->phase == JOB_ENDING) {
        exited_while_ending(m, end);
    } else if (m->kind == TRAINER) {
        trainer_exited(m, end);
    } else {
        daemon_exited(m, end);
    }
}

/* ---- signals ---- */

static void on_signal(uv_signal_t *handle, int number) {
    struct job *j = handle->data;
    if (j->ending) { /* asked twice, or too slow for somebody */
        j->status = 1;
        end_kill(j);
        return;
    }
    screen_keep_progress();
    screen_say("%s: the job ends; once more to kill it", strsignal(number));
    j->status = 1;
    end_job(j, ENDING_SIGNAL, number);
}

/* ---- the whole ---- */

static void init_member(struct job *j, struct member *m, enum member_kind kind, unsigned rank) {
    m->job = j;
    m->kind = kind;
    m->rank = rank;
    (void)uv_timer_init(&j->loop, &m->pause);
    m->pause.data = m;
    if (kind == COORDINATOR) {
        folder_coordinator(&j->folder, m->address);
    } else if (kind == DAEMON) {
        folder_rank(&j->folder, rank, m->address);
    }
}

static void init_loop(struct job *j) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    (void)uv_loop_init(&j->loop);
    j->talk = talk_new(&j->loop);
    j->progress.talk = j->talk;
    (void)uv_timer_init(&j->loop, &j->timer);
    (void)uv_timer_init(&j->loop, &j->watch_timer);
    j->timer.data = j->watch_timer.data = j;
    for (int i = 0; i < 3; i++) {
        (void)uv_signal_init(&j->loop, &j->signals[i]);
        j->signals[i].data = j;
        (void)uv_signal_start(&j->signals[i], on_signal, numbers[i]);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    init_member(j, &j->coordinator, COORDINATOR, 0);
    for (unsigned r = 0; r < j->ranks; r++) {
        init_member(j, &j->daemons[r], DAEMON, r);
        init_member(j, &j->trainers[r], TRAINER, r);
    }
}

/* The folder of the sockets, and the pipe that tells our death. */
static int prepare_folder(struct job *j, struct err *e) {
    int rc = folder_make(&j->folder, e);
    if (rc) {
        return rc;
    }
    if (j->o->observed) {
        rc = folder_open_to(&j->folder, (gid_t)j->o->observers, e);
    }
    if (!rc && pipe2(j->holder, O_CLOEXEC)) {
        rc = err_set(e, ST_UNAVAILABLE, "cannot make a pipe: %s", strerror(errno));
    }
    if (rc) {
        folder_remove(&j->folder);
    }
    return rc;
}

static int prepare(struct job *j, struct err *e) {
    int rc = start_find_programs(j, e);
    if (!rc && j->o->json) {
        rc = report_check_file(j->o->json, e);
    }
    return rc ? rc : prepare_folder(j, e);
}

static void release(struct job *j) {
    folder_remove(&j->folder);
    close(j->holder[0]);
    close(j->holder[1]);
    progress_free(&j->progress);
    results_free(&j->results, j->ranks);
    free(j->recoveries.list);
    free(j->daemons);
    free(j->trainers);
}

int job_run(const struct options *o) {
    struct job *j = mem_zeroed(1, sizeof *j);
    struct err e;
    j->o = o;
    j->ranks = (unsigned)o->ranks;
    int rc = prepare(j, &e);
    if (rc) {
        screen_say("%s", e.text);
        free(j);
        return rc == -ST_UNAVAILABLE ? 1 : 2;
    }
    j->started_ns = clock_ns();
    j->daemons = mem_zeroed(j->ranks, sizeof *j->daemons);
    j->trainers = mem_zeroed(j->ranks, sizeof *j->trainers);
    init_loop(j);
    begin_processes(j);
    (void)uv_run(&j->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&j->loop);
    release(j);
    int status = j->status;
    free(j);
    return status;
}
