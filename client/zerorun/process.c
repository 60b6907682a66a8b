#include "process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"

enum { READ_BYTES = 65536, READS_AT_ONCE = 16 };

struct feed {
    struct process *process;
    uv_poll_t poll;
    int fd; /* -1: ended */
    int stream;
};

struct process {
    struct process_options o;
    pid_t pid;
    int pidfd;
    uv_poll_t exit_poll;
    struct feed feeds[2];
    unsigned handles; /* not closed yet */
};

static void closed(uv_handle_t *handle) {
    struct process *p = handle->data;
    if (--p->handles == 0) {
        free(p);
    }
}

static void feed_end(struct feed *f) {
    if (f->fd >= 0) {
        (void)uv_poll_stop(&f->poll);
        close(f->fd);
        f->fd = -1;
        uv_close((uv_handle_t *)&f->poll, closed);
    }
}

/* Hands over what the pipe has; at most |reads| pieces so that others get their turn. */
static void feed_read(struct feed *f, unsigned reads) {
    static char bytes[READ_BYTES];
    while (f->fd >= 0 && reads--) {
        ssize_t n = read(f->fd, bytes, sizeof bytes);
        if (n > 0) {
            f->process->o.on_output(f->process->o.user, f->stream, bytes, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            feed_end(f);
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

static void on_feed(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    struct process *p = poll->data;
    feed_read(poll == &p->feeds[0].poll ? &p->feeds[0] : &p->feeds[1], READS_AT_ONCE);
}

static void on_exited(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    struct process *p = poll->data;
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid) {
        return;
    }
    (void)kill(-p->pid, SIGKILL); /* the zombie keeps the group's number ours until it is reaped */
    for (int i = 0; i < 2; i++) {
        feed_read(&p->feeds[i], READS_AT_ONCE); /* more than a pipe holds */
        feed_end(&p->feeds[i]);
    }
    (void)waitid(P_PID, (id_t)p->pid, &info, WEXITED);
    struct process_end end = {p->pid, info.si_code != CLD_EXITED, info.si_status};
    p->pid = 0;
    (void)uv_poll_stop(poll);
    close(p->pidfd);
    p->o.on_exit(p->o.user, &end);
    uv_close((uv_handle_t *)poll, closed);
}

/* ---- the child's side, after fork ---- */

static void set_environment(char *const *list, bool replace) {
    for (; list && *list; list++) {
        char *name = mem_text(*list);
        char *equals = strchr(name, '=');
        assert(equals);
        *equals = 0;
        (void)setenv(name, equals + 1, replace);
    }
}

static void reset_signals(void) {
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int s = 1; s < NSIG; s++) {
        (void)sigaction(s, &standard, NULL);
    }
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Everything of ours is close-on-exec; dup2 makes the copies that stay. */
static int arrange_descriptors(const struct process_options *o, int out, int err_fd) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err_fd, 2) < 0) {
        return -1;
    }
    if (o->keep_fd == PROCESS_KEPT_FD) {
        return fcntl(o->keep_fd, F_SETFD, 0);
    }
    return o->keep_fd >= 0 ? dup2(o->keep_fd, PROCESS_KEPT_FD) : 0;
}

static _Noreturn void run_child(const struct process_options *o, pid_t parent, int out, int err_fd,
                                int report) {
    reset_signals();
    (void)setpgid(0, 0);
    /* PROCESS_KEPT_FD must not be where the report goes */
    int high = fcntl(report, F_DUPFD_CLOEXEC, PROCESS_KEPT_FD + 1);
    if (o->dies_with_us) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(127);
        }
    }
    if (high >= 0 && arrange_descriptors(o, out, err_fd) >= 0) {
        set_environment(o->environment, true);
        set_environment(o->defaults, false);
        execvp(o->argv[0], o->argv);
    }
    int why = errno;
    ssize_t n = write(high >= 0 ? high : report, &why, sizeof why);
    _exit(n > 0 ? 127 : 126);
}

/* ---- starting ---- */

static int make_pipe(int ends[2]) {
    ends[0] = ends[1] = -1;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC)) {
        return -1;
    }
    /* Away from the low numbers, which the child arranges anew. */
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 10);
        close(fds[i]);
    }
    return ends[0] < 0 || ends[1] < 0 ? -1 : 0;
}

static void close_pipe(int ends[2]) {
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
            ends[i] = -1;
        }
    }
}

/* 0: it runs; else errno of its exec. Waits for the exec, which closes the pipe. */
static int exec_result(int fd) {
    int why = 0;
    ssize_t n;
    do {
        n = read(fd, &why, sizeof why);
    } while (n < 0 && errno == EINTR);
    return n == sizeof why ? why : 0;
}

static void watch(uv_loop_t *loop, uv_poll_t *poll, int fd, struct process *p, uv_poll_cb cb) {
    int rc = uv_poll_init(loop, poll, fd);
    assert(rc == 0 && "pipes and pidfds can be polled");
    (void)rc;
    poll->data = p;
    p->handles++;
    (void)uv_poll_start(poll, UV_READABLE, cb);
}

static void adopt(uv_loop_t *loop, struct process *p, int out, int err_fd) {
    int fds[2] = {out, err_fd};
    for (int i = 0; i < 2; i++) {
        (void)fcntl(fds[i], F_SETFL, O_NONBLOCK);
        p->feeds[i] = (struct feed){.process = p, .fd = fds[i], .stream = i + 1};
        watch(loop, &p->feeds[i].poll, fds[i], p, on_feed);
    }
    watch(loop, &p->exit_poll, p->pidfd, p, on_exited);
}

static int fork_child(struct process *p, int out, int err_fd, int report) {
    pid_t parent = getpid();
    p->pid = fork();
    if (p->pid == 0) {
        run_child(&p->o, parent, out, err_fd, report);
    }
    if (p->pid < 0) {
        return errno;
    }
    (void)setpgid(p->pid, p->pid); /* also here: a signal may follow at once */
    p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    return p->pidfd < 0 ? errno : 0;
}

int process_start(uv_loop_t *loop, const struct process_options *o, struct process **out,
                  struct err *e) {
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}; /* stdout, stderr, exec's errno */
    struct process *p = mem_zeroed(1, sizeof *p);
    p->o = *o;
    p->pidfd = -1;
    int why = 0;
    for (int i = 0; i < 3 && !why; i++) {
        why = make_pipe(pipes[i]) ? errno : 0;
    }
    if (!why) {
        why = fork_child(p, pipes[0][1], pipes[1][1], pipes[2][1]);
    }
    for (int i = 0; i < 3; i++) {
        if (pipes[i][1] >= 0) {
            close(pipes[i][1]);
            pipes[i][1] = -1;
        }
    }
    if (!why) {
        why = exec_result(pipes[2][0]);
    }
    if (!why) {
        close(pipes[2][0]);
        adopt(loop, p, pipes[0][0], pipes[1][0]);
        *out = p;
        return 0;
    }
    if (p->pid > 0) {
        (void)kill(p->pid, SIGKILL);
        (void)waitpid(p->pid, NULL, 0);
    }
    if (p->pidfd >= 0) {
        close(p->pidfd);
    }
    for (int i = 0; i < 3; i++) {
        close_pipe(pipes[i]);
    }
    free(p);
    return err_set(e,
                   why == ENOENT   ? ST_NOT_FOUND
                   : why == EACCES ? ST_PERMISSION_DENIED
                                   : ST_UNAVAILABLE,
                   "cannot start %.200s: %s", o->argv[0], strerror(why));
}

pid_t process_pid(const struct process *p) {
    return p->pid;
}

void process_signal(struct process *p, int signal) {
    if (p->pid > 0) {
        (void)kill(-p->pid, signal);
    }
}

const char *process_end_text(const char *name, const struct process_end *end, char *text,
                             size_t size) {
    if (end->killed) {
        (void)snprintf(text, size, "%s (pid %d) was killed by signal %d (%s)", name, (int)end->pid,
                       end->code, strsignal(end->code));
    } else {
        (void)snprintf(text, size, "%s (pid %d) exited with status %d", name, (int)end->pid,
                       end->code);
    }
    return text;
}
