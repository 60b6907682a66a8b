/* A job's first moments: coordinator and daemons are started, the coordinator is asked for its
 * stream of steps, and each trainer starts once its daemon answers. */
#include <sys/socket.h>
#include <unistd.h>

#include "job.h"
#include "proto/unix_address.h"

enum {
    PROBE_MS = 2,         /* between looks whether sockets answer */
    START_LIMIT_S = 10,   /* for all of them to answer */
    WATCH_GRACE_MS = 500, /* between the end of the coordinator's stream and its death */
};

/* ---- the coordinator's stream of steps ---- */

static void on_step(void *user, const ProtobufCMessage *message) {
    struct job *j = user;
    const Zerod__V1__StepEvent *event = (const Zerod__V1__StepEvent *)message;
    if (event->outcome == ZEROD__V1__OUTCOME_KIND__OUTCOME_UNSPECIFIED && event->fence) {
        j->void_step = event->fence->step;
        j->void_attempt = event->fence->attempt;
    }
    if (j->phase != JOB_ENDING) {
        progress_event(&j->progress, event);
    }
}

static void on_watch_grace(uv_timer_t *timer) {
    struct job *j = timer->data;
    job_fail(j, "the coordinator ended its stream of steps; the job ends");
}

static void on_watch_done(void *user, int code, const char *text) {
    (void)code;
    (void)text;
    struct job *j = user;
    j->watch = NULL;
    if (j->phase == JOB_STARTING || j->phase == JOB_RUNNING) {
        (void)uv_timer_start(&j->watch_timer, on_watch_grace, WATCH_GRACE_MS, 0);
    }
}

static void on_watching(void *user) {
    ((struct job *)user)->watching = true;
}

static void watch_steps(struct job *j) {
    static const Zerod__V1__WatchRequest request = ZEROD__V1__WATCH_REQUEST__INIT;
    struct ask_options o = {
        .path = j->coordinator.address,
        .method = "/zerod.v1.Admin/Watch",
        .request = &request.base,
        .reply = &zerod__v1__step_event__descriptor,
        .on_taken = on_watching,
        .on_reply = on_step,
        .on_done = on_watch_done,
        .user = j,
    };
    (void)ask_start(&j->loop, &o, &j->watch, NULL); /* nobody there yet: the next probe tries */
}

/* ---- starting ---- */

static bool answers(const char *path) {
    struct sockaddr_un address;
    if (unix_address(path, &address, NULL)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool yes = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return yes;
}

/* Starts trainers whose daemons answer; false while some do not, and names one that does not. */
static bool start_trainers(struct job *j, const struct member **missing) {
    bool all = true;
    for (unsigned r = 0; r < j->ranks; r++) {
        struct member *t = &j->trainers[r];
        struct err e;
        if (t->seen) {
            continue;
        }
        if (!answers(j->daemons[r].address)) {
            *missing = &j->daemons[r];
            all = false;
            continue;
        }
        t->seen = true;
        if (start_trainer(j, r, &e)) {
            job_fail(j, "trainer of rank %u: %s", r, e.text);
            return true;
        }
    }
    return all;
}

static void on_probe(uv_timer_t *timer) {
    struct job *j = timer->data;
    const struct member *missing = &j->coordinator;
    if (!j->watch) {
        watch_steps(j);
    }
    if (j->watching && start_trainers(j, &missing)) {
        if (j->phase == JOB_STARTING) {
            j->phase = JOB_RUNNING;
            (void)uv_timer_stop(timer);
            if (j->o->dry_run) {
                dry_begin(j);
            }
        }
        return;
    }
    if (++j->ticks > START_LIMIT_S * 1000 / PROBE_MS) {
        char name[32];
        job_fail(j, "%s does not answer at %s after %d s", member_name(missing, name),
                 missing->address, START_LIMIT_S);
    }
}

void begin_processes(struct job *j) {
    struct err e;
    int rc = start_coordinator(j, &e);
    for (unsigned r = 0; r < j->ranks && !rc; r++) {
        rc = start_daemon(j, r, &e);
    }
    if (rc) {
        job_fail(j, "%s", e.text);
    } else {
        (void)uv_timer_start(&j->timer, on_probe, PROBE_MS, PROBE_MS);
    }
}
