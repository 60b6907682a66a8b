/* A child process: started with pipes for what it says, watched through a pidfd, ended as a group.
 *
 * Each is the leader of a process group of its own, so that a terminal's ^C reaches only zerorun
 * and that whatever it started goes with it: when the leader has ended, the rest of its group is
 * killed. Its standard input is /dev/null. */
#ifndef ZD_ZERORUN_PROCESS_H
#define ZD_ZERORUN_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"

struct process;

struct process_end {
    pid_t pid;
    bool killed; /* |code| is a signal, else an exit status */
    int code;
};

struct process_options {
    char *const *argv;        /* argv[0] is searched for in PATH if it has no slash */
    char *const *environment; /* "NAME=VALUE" added to ours; NULL: none */
    char *const *defaults;    /* the same, unless set already; NULL: none */
    int keep_fd;              /* stays open in the child, as PROCESS_KEPT_FD; -1: none */
    bool dies_with_us;        /* gets SIGKILL when zerorun is gone, however that came */
    /* |stream| is 1 or 2. Bytes as they come. */
    void (*on_output)(void *user, int stream, const char *bytes, size_t n);
    /* Once, last, after all its output; the process is freed afterwards. */
    void (*on_exit)(void *user, const struct process_end *end);
    void *user;
};

enum { PROCESS_KEPT_FD = 3 };

/* 0 and a running process; NOT_FOUND or PERMISSION_DENIED: it cannot be executed; UNAVAILABLE: no
 * more processes or descriptors. Nothing of it is left then. */
int process_start(uv_loop_t *loop, const struct process_options *o, struct process **p,
                  struct err *e);
pid_t process_pid(const struct process *p);
/* To the whole group. Nothing when it has ended. */
void process_signal(struct process *p, int signal);

/* "NAME (pid 12) was killed by signal 9 (Killed)", "NAME (pid 12) exited with status 1". */
const char *process_end_text(const char *name, const struct process_end *end, char *text,
                             size_t size);

#endif
