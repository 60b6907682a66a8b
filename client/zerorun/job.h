/* A job and its processes, from the first fork to the last.
 *
 *     STARTING    coordinator and daemons run; each trainer starts when its daemon's socket answers
 *     RUNNING     trainers that die are started again
 *     COLLECTING  all trainers have exited with 0: the daemons are asked for their numbers
 *     ENDING      processes are being ended, in the way that `enum ending` says
 *
 * Everything happens on one libuv loop. The death of a daemon or of the coordinator ends the job
 * with one message naming it; job.c says how the first cause is told from what followed. Files:
 * job.c (what follows from what), begin.c, start.c (command lines, environment), end.c, recover.c
 * (how long a replacement took), collect.c (asking), report.c, dry.c (a dry run). */
#ifndef ZD_ZERORUN_JOB_H
#define ZD_ZERORUN_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "ask.h"
#include "base/err.h"
#include "collect.h"
#include "folder.h"
#include "options.h"
#include "process.h"
#include "progress.h"
#include "talk.h"

enum job_phase { JOB_STARTING, JOB_RUNNING, JOB_COLLECTING, JOB_ENDING };
enum member_kind { COORDINATOR, DAEMON, TRAINER };
enum ending {
    ENDING_NONE,
    ENDING_DONE,    /* orderly: daemons drain */
    ENDING_SUDDEN,  /* trainers are killed at once, daemons soon */
    ENDING_SIGNAL,  /* trainers got the signal and have a grace */
    ENDING_DAEMONS, /* after it: no trainer is left, daemons drain */
};

struct member {
    struct job *job;
    enum member_kind kind;
    unsigned rank;
    struct process *process; /* NULL: not running */
    struct speaker speakers[2];
    char address[FOLDER_PATH]; /* of a coordinator's or daemon's socket */
    bool seen;                 /* a trainer that was started once */
    bool finished;             /* a trainer that exited with 0 */
    struct process_end end;    /* of a process whose exit is being weighed */
    uv_timer_t pause;          /* until then */
    unsigned suspect;          /* a daemon's place among such exits, from 1; 0: not one */
};

struct job {
    const struct options *o;
    uv_loop_t loop;
    enum job_phase phase;
    enum ending ending;
    int status;         /* exit status so far */
    char beside[4096];  /* folder of our own program */
    char trainer[4096]; /* its path, or its name for PATH */
    struct folder folder;
    int holder[2]; /* pipe: daemons have [0] and see when [1], ours alone, closes */
    unsigned ranks;
    struct member coordinator, *daemons, *trainers;
    unsigned running; /* processes */
    unsigned suspects;
    uint64_t restarts;
    struct talk *talk;
    struct progress progress;
    struct ask *watch; /* the coordinator's stream of steps */
    bool watching;     /* it has begun: no step can be missed */
    struct collect *collect;
    struct dry *dry;
    struct results results; /* of collect, once it is done */
    struct recoveries {
        struct recovery *list; /* owned */
        size_t count;
    } recoveries;
    uint64_t void_step, void_attempt; /* of the last void try */
    uint64_t ticks;                   /* of |timer| in this phase */
    uv_timer_t timer;                 /* starting: probes; ending: graces */
    uv_timer_t watch_timer;
    uv_signal_t signals[3];
    int64_t started_ns;
};

/* Runs the job from start to end. Returns the exit status: 0 done, 1 failed, 2 could not be tried
 * as it was asked for. */
int job_run(const struct options *o);

/* ---- between the files ---- */

/* "trainer of rank 3", "zerod of rank 3", "the coordinator". */
const char *member_name(const struct member *m, char text[static 32]);
/* One message, then the end: all processes, suddenly. Only the first failure counts. */
void job_fail(struct job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void begin_processes(struct job *j);

int start_find_programs(struct job *j, struct err *e); /* NOT_FOUND */
int start_coordinator(struct job *j, struct err *e);
int start_daemon(struct job *j, unsigned rank, struct err *e);
int start_trainer(struct job *j, unsigned rank, struct err *e);
void job_on_exit(void *user, const struct process_end *end); /* of struct member */

void end_job(struct job *j, enum ending how, int signal);
void end_kill(struct job *j);        /* everything, now */
void end_member_gone(struct job *j); /* while ENDING */

/* A dry run: asks until every daemon knows what its model will need, prints that, ends the job. */
void dry_begin(struct job *j);
void dry_stop(struct job *j); /* asks no more */

void job_collected(struct job *j, const struct err *failure); /* NULL: results are there */

/* From the death of |rank|'s trainer at |since_ns|: asks its daemon until the next trainer's first
 * gather is counted. */
void recover_begin(struct job *j, unsigned rank, uint64_t step, int64_t since_ns);
void recover_stop(struct job *j); /* no more asking */

struct recovery {
    unsigned rank;
    uint64_t step;          /* the first one not determined when the trainer died */
    double first_gather_ms; /* from the death; negative: not known */
};

#endif
