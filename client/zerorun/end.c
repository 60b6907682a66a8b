/* Ending a job: who gets which signal, when, and what is closed once nobody is left. */
#include <signal.h>

#include "job.h"

enum {
    TRAINER_GRACE_MS = 5000, /* after a forwarded signal */
    DRAIN_GRACE_MS = 5000,   /* for daemons in an orderly end */
    SUDDEN_GRACE_MS = 1000,  /* for daemons in a sudden one: all is over within 2 s */
};

static void signal_trainers(struct job *j, int signal) {
    for (unsigned r = 0; r < j->ranks; r++) {
        if (j->trainers[r].process) {
            process_signal(j->trainers[r].process, signal);
        }
    }
}

static void signal_daemons(struct job *j, int signal) {
    for (unsigned r = 0; r < j->ranks; r++) {
        if (j->daemons[r].process) {
            process_signal(j->daemons[r].process, signal);
        }
    }
    if (j->coordinator.process) {
        process_signal(j->coordinator.process, signal);
    }
}

void end_kill(struct job *j) {
    signal_trainers(j, SIGKILL);
    signal_daemons(j, SIGKILL);
}

static bool trainers_left(const struct job *j) {
    for (unsigned r = 0; r < j->ranks; r++) {
        if (j->trainers[r].process) {
            return true;
        }
    }
    return false;
}

static void on_grace_over(uv_timer_t *timer) {
    struct job *j = timer->data;
    if (j->ending == ENDING_SIGNAL) {
        signal_trainers(j, SIGKILL);
    } else {
        end_kill(j);
    }
}

static void grace(struct job *j, uint64_t ms) {
    (void)uv_timer_start(&j->timer, on_grace_over, ms, 0);
}

static void drain_daemons(struct job *j, uint64_t ms) {
    signal_daemons(j, SIGTERM);
    grace(j, ms);
}

static void close_timer(uv_timer_t *timer) {
    (void)uv_timer_stop(timer);
    uv_close((uv_handle_t *)timer, NULL);
}

/* Nobody is left: the loop ends when these are closed. */
static void close_all(struct job *j) {
    close_timer(&j->timer);
    close_timer(&j->watch_timer);
    close_timer(&j->coordinator.pause);
    for (unsigned r = 0; r < j->ranks; r++) {
        close_timer(&j->daemons[r].pause);
        close_timer(&j->trainers[r].pause);
    }
    for (int i = 0; i < 3; i++) {
        uv_close((uv_handle_t *)&j->signals[i], NULL);
    }
    talk_close(j->talk);
}

void end_member_gone(struct job *j) {
    if (j->ending == ENDING_SIGNAL && !trainers_left(j)) {
        j->ending = ENDING_DAEMONS;
        talk_silence(j->talk);
        drain_daemons(j, DRAIN_GRACE_MS);
    }
    if (j->running == 0) {
        close_all(j);
    }
}

void end_job(struct job *j, enum ending how, int signal) {
    j->phase = JOB_ENDING;
    j->ending = how;
    if (j->watch) {
        ask_cancel(j->watch);
    }
    collect_cancel(j->collect);
    j->collect = NULL;
    recover_stop(j);
    dry_stop(j);
    (void)uv_timer_stop(&j->watch_timer);
    switch (how) {
    case ENDING_SUDDEN:
        signal_trainers(j, SIGKILL);
        drain_daemons(j, SUDDEN_GRACE_MS);
        break;
    case ENDING_SIGNAL:
        signal_trainers(j, signal);
        grace(j, TRAINER_GRACE_MS);
        break;
    case ENDING_DONE:
        talk_quarantine(j->talk);
        drain_daemons(j, DRAIN_GRACE_MS);
        break;
    case ENDING_DAEMONS:
    case ENDING_NONE:
        break;
    }
    end_member_gone(j); /* perhaps nobody was there */
}
