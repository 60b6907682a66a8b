/* A trainer in the shapes that trainers come in: with forked workers, on other threads, two in one
 * process. It trains a tiny network for a few steps, always with the same numbers, so that every
 * mode ends with one param_hash; numpy_trainer.py does the same arithmetic in Python.
 *
 *   plain            one thread, no children
 *   workers          each step's data comes from a worker forked in mid-step, as a DataLoader's
 *                    does; the worker tries every call, which must be refused in words, finds the
 *                    lent memory gone, and detaches its copy
 *   worker-outlives  one worker for all steps; on rank 1 the trainer dies in step 2 and leaves it
 *                    behind, alive: the next trainer must be let in all the same
 *   thread           all calls on a thread that is not the main one
 *   threads          attached on one thread, each step on a new one
 *   two              rank 0's process attaches to rank 0's and to rank 1's daemon, a thread each;
 *                    rank 1's process only waits for it
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/zerod.h"
#include "network.h"

enum { STEPS = 3 };

struct trainer {
    struct zerod *z;
    const char *address; /* NULL: $ZEROD_ADDRESS */
    int data[2];         /* of the worker that outlives: requests to it, batches from it */
};

static const char *mode;

static bool is(const char *name) {
    return strcmp(mode, name) == 0;
}

static _Noreturn void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void fail(const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    (void)fprintf(stderr, "reach_trainer %s: ", mode);
    (void)vfprintf(stderr, fmt, list);
    (void)fputc('\n', stderr);
    va_end(list);
    exit(1);
}

static void must(const struct trainer *t, const char *what, int rc) {
    if (rc) {
        fail("%s: %s: %s", what, zerod_status_name(rc), zerod_last_error(t->z)->text);
    }
}

/* ---- workers ---- */

/* Every call on a handle whose process was forked: refused, saying whose it is. */
static void try_all(struct zerod *z) {
    struct zerod_try t;
    struct zerod_outcome out;
    const void *params;
    void *slot;
    float *values;
    const int got[] = {zerod_begin(z, &t),
                       zerod_prefetch(z),
                       zerod_gather(z, FIRST, &params),
                       zerod_release(z, FIRST),
                       zerod_grad(z, FIRST, false, &slot),
                       zerod_reduce(z, FIRST),
                       zerod_initial(z, FIRST, &values),
                       zerod_load(z, FIRST),
                       zerod_step(z, NULL, &out),
                       zerod_begin_eval(z),
                       zerod_end_eval(z),
                       zerod_abort(z, "a worker's whim")};
    for (size_t i = 0; i < sizeof got / sizeof got[0]; i++) {
        if (got[i] != -ZEROD_FAILED_PRECONDITION || !strstr(zerod_last_error(z)->text, "forked")) {
            fail("call %zu in a worker: %s: %s", i, zerod_status_name(got[i]),
                 zerod_last_error(z)->text);
        }
    }
}

/* What the trainer was lent does not come along: not even reading is possible. */
static void check_unmapped(const void *lent) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *at = (void *)((uintptr_t)lent / page * page); /* NOLINT: rounding down to its page */
    if (!msync(at, page, MS_ASYNC) || errno != ENOMEM) {
        fail("a worker has the lent memory mapped");
    }
}

static void send_all(int fd, const void *bytes, size_t n) {
    if (write(fd, bytes, n) != (ssize_t)n) {
        fail("pipe: %s", strerror(errno));
    }
}

static void load_in_worker(struct trainer *t, uint64_t step, const void *lent, struct batch *b) {
    int fds[2], status;
    const unsigned rank = zerod_rank(t->z);
    if (pipe(fds)) {
        fail("pipe: %s", strerror(errno));
    }
    const pid_t child = fork();
    if (child == 0) {
        try_all(t->z);
        check_unmapped(lent);
        make_batch(step, rank, b);
        send_all(fds[1], b, sizeof *b);
        zerod_detach(t->z, true); /* frees the copy; ends nothing */
        _exit(0);
    }
    close(fds[1]);
    if (child < 0 || read(fds[0], b, sizeof *b) != (ssize_t)sizeof *b) {
        fail("the worker gave no batch");
    }
    close(fds[0]);
    if (waitpid(child, &status, 0) != child || status) {
        fail("the worker ended with %d", status);
    }
}

/* Serves batches until the trainer's end of the pipe closes, and then lives on for a while. */
static void serve(unsigned rank, int requests, int replies) {
    uint64_t step;
    struct batch b;
    while (read(requests, &step, sizeof step) == sizeof step) {
        make_batch(step, rank, &b);
        send_all(replies, &b, sizeof b);
    }
    (void)sleep(1);
    _exit(0);
}

static void start_worker(struct trainer *t) {
    int to[2], from[2];
    if (pipe(to) || pipe(from)) {
        fail("pipe: %s", strerror(errno));
    }
    const pid_t child = fork();
    if (child < 0) {
        fail("fork: %s", strerror(errno));
    }
    if (child == 0) {
        close(to[1]);
        close(from[0]);
        (void)setsid(); /* else it is killed with its trainer's group */
        serve(zerod_rank(t->z), to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    t->data[0] = to[1];
    t->data[1] = from[0];
}

static void get_batch(struct trainer *t, uint64_t step, const void *lent, struct batch *b) {
    if (is("workers")) {
        load_in_worker(t, step, lent, b);
    } else if (is("worker-outlives")) {
        send_all(t->data[0], &step, sizeof step);
        if (read(t->data[1], b, sizeof *b) != (ssize_t)sizeof *b) {
            fail("the worker gave no batch");
        }
    } else {
        make_batch(step, zerod_rank(t->z), b);
    }
}

/* ---- steps ---- */

static int reduce(struct trainer *t, uint32_t unit, const struct layer *gradient) {
    void *slot;
    int rc = zerod_grad(t->z, unit, false, &slot);
    if (!rc) {
        char *at = slot;
        write_layer(unit, gradient, (void *)(at + zerod_grad_offset(t->z, unit, 0)),
                    (void *)(at + zerod_grad_offset(t->z, unit, 1)));
        rc = zerod_reduce(t->z, unit);
    }
    return rc;
}

static int train(struct trainer *t, const struct zerod_try *try) {
    const void *params[UNITS];
    struct layer l[UNITS], gradient[UNITS];
    struct zerod_outcome out;
    struct batch b;
    for (uint32_t u = 0; u < UNITS; u++) {
        int rc = zerod_gather(t->z, u, &params[u]);
        if (rc) {
            return rc;
        }
        const char *at = params[u];
        read_layer(u, (const void *)(at + zerod_param_offset(t->z, u, 0)),
                   (const void *)(at + zerod_param_offset(t->z, u, 1)), &l[u]);
    }
    get_batch(t, try->step, params[FIRST], &b);
    const double loss = network(l, &b, gradient);
    for (uint32_t u = UNITS; u-- > 0;) {
        int rc = zerod_release(t->z, u);
        rc = rc ? rc : reduce(t, u, &gradient[u]);
        if (rc) {
            return rc;
        }
    }
    if (is("worker-outlives") && zerod_rank(t->z) == 1 && try->step == 2 &&
        zerod_attachment(t->z) == 1) {
        (void)raise(SIGKILL);
    }
    const struct zerod_step step = {.learning_rate = 0.05 / (double)try->step,
                                    .clip = 1,
                                    .user_count = 1,
                                    .user = &loss,
                                    .rank_cursor = &try->step,
                                    .rank_cursor_bytes = sizeof try->step};
    return zerod_step(t->z, &step, &out);
}

static int load(struct trainer *t) {
    struct zerod_outcome out;
    for (uint32_t u = 0; u < UNITS; u++) {
        struct layer l;
        float *values;
        make_layer(u, &l);
        int rc = zerod_initial(t->z, u, &values);
        if (!rc) {
            write_layer(u, &l, values + zerod_initial_offset(t->z, u, 0) / sizeof *values,
                        values + zerod_initial_offset(t->z, u, 1) / sizeof *values);
            rc = zerod_load(t->z, u);
        }
        if (rc) {
            return rc;
        }
    }
    return zerod_step(t->z, NULL, &out);
}

static void check_cursor(const struct zerod_try *t) {
    uint64_t before = 0;
    if (t->rank_cursor_bytes == sizeof before) {
        memcpy(&before, t->rank_cursor, sizeof before);
    }
    if (t->step > 1 && before + 1 != t->step) {
        fail("step %" PRIu64 " has the cursor of step %" PRIu64, t->step, before);
    }
}

/* One try. False: all steps are done. */
static bool one_try(struct trainer *t) {
    struct zerod_try try;
    must(t, "begin", zerod_begin(t->z, &try));
    if (try.step > STEPS) {
        return false;
    }
    check_cursor(&try);
    const int rc = try.loading ? load(t) : train(t, &try);
    if (rc != -ZEROD_ABORTED) {
        must(t, "a step", rc);
    }
    return true;
}

static void attach(struct trainer *t) {
    const uint64_t w1[] = {HIDDEN, IN}, b1[] = {HIDDEN}, w2[] = {OUT, HIDDEN}, b2[] = {OUT};
    const struct zerod_tensor
        first[] = {{.name = "w1", .dims = 2, .shape = w1, .weight_decay_multiplier = 1},
                   {.name = "b1", .dims = 1, .shape = b1}},
        second[] = {{.name = "w2", .dims = 2, .shape = w2, .weight_decay_multiplier = 1},
                    {.name = "b2", .dims = 1, .shape = b2}};
    const struct zerod_unit units[UNITS] = {{"first", 2, first, 0}, {"second", 2, second, 0}};
    const struct zerod_op ops[] = {{ZEROD_GATHER, FIRST},
                                   {ZEROD_GATHER, SECOND},
                                   {ZEROD_REDUCE, SECOND},
                                   {ZEROD_REDUCE, FIRST}};
    const struct zerod_plan plan = {"train", 4, ops};
    const struct zerod_model model = {.unit_count = UNITS,
                                      .units = units,
                                      .plan_count = 1,
                                      .plans = &plan,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .epsilon = 1e-8,
                                      .weight_decay = 0.1};
    struct zerod_error e;
    int rc = zerod_attach(t->address, &model, &t->z, &e);
    /* Only our own rank's daemon listens for sure when we are started. */
    for (int tries = 0; t->address && rc == -ZEROD_UNAVAILABLE && tries < 500; tries++) {
        (void)usleep(10000);
        rc = zerod_attach(t->address, &model, &t->z, &e);
    }
    if (rc) {
        fail("attach: %s: %s", zerod_status_name(e.code), e.text);
    }
    if (is("worker-outlives")) {
        start_worker(t);
    }
}

static void *whole(void *context) {
    struct trainer *t = context;
    attach(t);
    while (one_try(t)) {
    }
    zerod_detach(t->z, true);
    return NULL;
}

/* ---- threads ---- */

static void *one_on_thread(void *context) {
    return one_try(context) ? context : NULL;
}

/* Runs it on a new thread and waits for that. */
static void *on_thread(void *(*work)(void *context), void *context) {
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, work, context) || pthread_join(thread, &result)) {
        fail("no thread");
    }
    return result;
}

/* Rank 1's daemon is beside rank 0's: .../rank0.sock, .../rank1.sock. */
static void two_in_one(void) {
    char other[256];
    const char *mine = getenv("ZEROD_ADDRESS");
    pthread_t thread;
    (void)snprintf(other, sizeof other, "%s", mine ? mine : "");
    char *digit = strstr(other, "rank0");
    if (!digit) {
        fail("ZEROD_ADDRESS '%s' names no rank 0", other);
    }
    digit[4] = '1';
    struct trainer a = {0}, b = {.address = other};
    if (pthread_create(&thread, NULL, whole, &b)) {
        fail("no thread");
    }
    (void)whole(&a);
    (void)pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    struct trainer t = {0};
    const char *rank = getenv("RANK");
    if (argc < 2 || argc > 3 || !rank) {
        (void)fprintf(stderr, "usage: zerorun ... -- reach_trainer MODE [FILE]\n"
                              "FILE, of \"two\": made when the training is over\n");
        return 2;
    }
    mode = argv[1];
    if (is("two") && strcmp(rank, "0") != 0) {
        while (access(argv[2], F_OK)) {
            (void)usleep(10000);
        }
    } else if (is("two")) {
        two_in_one();
        FILE *f = fopen(argv[2], "w");
        return !f || fclose(f) ? 1 : 0;
    } else if (is("threads")) {
        attach(&t);
        while (on_thread(one_on_thread, &t)) {
        }
        zerod_detach(t.z, true);
    } else if (is("thread")) {
        (void)on_thread(whole, &t);
    } else {
        (void)whole(&t);
    }
    return 0;
}
