/* How an attachment ends: the trainer dies (stream or pidfd tell), detaches, has finished, or the
 * daemon ends. job/ decides what it means for the try. A trainer that lost its stream but still
 * runs is killed: two writers of one rank must never be. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "zerod/session.h"

static void on_death_closed(uv_handle_t *h) {
    struct session *s = h->data;
    close(s->pidfd);
    free(s);
}

static bool process_lives(const struct session *s) {
    struct pollfd dead = {.fd = s->pidfd, .events = POLLIN}; /* also when it is a zombie still */
    return poll(&dead, 1, 0) == 0;
}

static void kill_trainer_group(const struct session *s) {
    if (s->group > 1 && s->group != getpgrp()) {
        (void)kill(-s->group, SIGKILL);
    }
    (void)syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
}

/* The session leaves the rank; its memory goes when the pidfd's handle is closed. */
void session_drop(struct session *s) {
    struct rank *r = s->rank;
    if (r->session == s) {
        r->session = NULL;
    }
    if (s->call) {
        grpc_call_set_data(s->call, NULL);
        s->call = NULL;
    }
    if (s->held) {
        zerod__v1__trainer_request__free_unpacked(s->held, NULL);
        s->held = NULL;
    }
    uv_close((uv_handle_t *)&s->death, on_death_closed);
}

/* A trainer that has finished leaves the try that its last step opened. That is the job's end as
 * long as the other ranks finish too, so the try stays as it is; the peers are told, and one whose
 * trainer goes on in it refuses that (calls.c). */

static void begin_farewell(struct rank *r) {
    Zerod__V1__Finished finished = ZEROD__V1__FINISHED__INIT;
    Zerod__V1__DaemonMessage m = ZEROD__V1__DAEMON_MESSAGE__INIT;
    finished.rank = (uint32_t)r->options.rank;
    m.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_FINISHED;
    m.finished = &finished;
    r->finishing = true;
    link_send(r, &m);
}

void session_end_farewell(struct rank *r) {
    if (r->finishing) {
        r->finishing = false;
        job_rank_detached(r->job, ST_ABORTED, "another trainer comes after one that had finished");
    }
}

void session_lost(struct session *s) {
    struct rank *r = s->rank;
    char reason[JOB_REASON];
    bool lives = process_lives(s);
    (void)snprintf(reason, sizeof reason,
                   "rank %u's trainer (pid %d) %s in step %llu, attempt %llu",
                   (unsigned)r->options.rank, (int)s->pid,
                   s->detached ? "detached"
                   : lives     ? "lost its connection"
                               : "died",
                   (unsigned long long)s->fence.step, (unsigned long long)s->fence.attempt);
    bool attached = s->state == SESSION_ATTACHED;
    if (!s->detached && attached) {
        kill_trainer_group(s); /* and the workers that it forked */
    }
    if (!s->detached && attached) {
        log_info("%s", reason);
    }
    bool finished = s->finished;
    session_drop(s);
    if (attached && !r->ending && finished) {
        begin_farewell(r);
    } else if (attached && !r->ending) {
        job_rank_detached(r->job, ST_ABORTED, reason);
    }
}

void session_lose(struct session *s, const char *text) {
    struct grpc_call *call = s->call;
    session_lost(s);
    if (call) {
        grpc_call_finish(call, ST_ABORTED, text);
    }
}

void session_on_death(uv_poll_t *p, int status, int events) {
    (void)status;
    (void)events;
    uv_poll_stop(p);
    session_lose(p->data, "the trainer's process is gone");
}

void session_end(struct rank *r, bool kill_trainer, const char *reason) {
    struct session *s = r->session;
    if (!s) {
        return;
    }
    if (kill_trainer) {
        kill_trainer_group(s);
    }
    struct grpc_call *call = s->call;
    session_drop(s);
    if (call) {
        grpc_call_finish(call, ST_UNAVAILABLE, reason);
    }
}

uint64_t session_trainer_pid(const struct rank *r) {
    return r->session && r->session->state == SESSION_ATTACHED ? (uint64_t)r->session->pid : 0;
}
