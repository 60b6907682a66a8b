/* A trainer whose computing takes a fixed time and no core: what is left of a step is what zerod
 * costs it. jobs.py runs it under zerorun.
 *
 * A model of equal tensors; a step gathers all units forwards, then backwards with a reduce each.
 * With --step-ms the units' computation is a sleep until moments of a clock that all ranks share,
 * so that ranks are ready together, as on cores of their own; without, nothing is waited for. Every
 * call is timed; what the calls and the computing leave of a step's wall time is "rest". Rank 0
 * writes medians over the steps (after the first) as JSON, in seconds; each rank writes beside it
 * when its zerod_step was called and came back, nanoseconds. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/opt.h"
#include "client/zerod.h"

enum { MAX_STEPS = 10000, NAME = 48 };

/* All up to REST add up to WALL; NO_CORE is the part of the calls in which this thread could have
 * run, but others had the cores. */
enum part { PREFETCH, GATHER, RELEASE, GRAD, REDUCE, STEP, COMPUTE, REST, WALL, NO_CORE, PARTS };
static const char *const part_names[PARTS] = {"prefetch", "gather",  "release", "grad", "reduce",
                                              "step",     "compute", "rest",    "wall", "no_core"};

static struct {
    uint64_t units, tensors, elements, steps, step_ms;
    const char *json;
    bool help;
} o;

static struct zerod *z;
static int64_t (*times)[PARTS]; /* [step - 1] */
static int64_t (*stepped)[2];   /* [step - 1]: when zerod_step was called, and came back */
static int schedstat;           /* this thread's, open */
static int64_t *spent;          /* of the step under way */
static int64_t origin;          /* when step 1 begins, on all ranks */

/* Adds what has passed since |start| to a part of the step. */
static void add(enum part p, int64_t start) {
    spent[p] += clock_ns() - start;
}

/* How long this thread has waited for a core in its life: the second number of schedstat, ns. */
static int64_t waited_for_core(void) {
    char text[96];
    const ssize_t n = pread(schedstat, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    const char *second = strchr(text, ' ');
    return second ? strtoll(second, NULL, 10) : 0;
}

/* A call of the library's: what it takes, and how much of that a core was missing. */
struct call {
    int64_t waited, start;
};

static struct call call_begin(void) {
    const int64_t waited = waited_for_core();
    return (struct call){waited, clock_ns()};
}

static void call_end(enum part p, struct call c) {
    add(p, c.start);
    spent[NO_CORE] += waited_for_core() - c.waited;
}

/* ---- the model ---- */

static int attach(struct zerod_error *e) {
    struct zerod_unit *units = calloc(o.units, sizeof *units);
    struct zerod_tensor *tensors = calloc(o.units * o.tensors, sizeof *tensors);
    char(*names)[NAME] = calloc(o.units * (o.tensors + 1), sizeof *names);
    struct zerod_op *ops = calloc(3 * o.units, sizeof *ops);
    char(*name)[NAME] = names;
    size_t n = 0;
    if (!units || !tensors || !names || !ops) {
        log_error("no memory for %llu units", (unsigned long long)o.units);
        exit(1);
    }
    for (uint64_t u = 0; u < o.units; u++) {
        (void)snprintf(*name, NAME, "u%llu", (unsigned long long)u);
        units[u] = (struct zerod_unit){
            .name = *name++, .tensor_count = o.tensors, .tensors = &tensors[u * o.tensors]};
        for (uint64_t t = 0; t < o.tensors; t++) {
            (void)snprintf(*name, NAME, "u%llu.t%llu", (unsigned long long)u,
                           (unsigned long long)t);
            tensors[u * o.tensors + t] = (struct zerod_tensor){
                .name = *name++, .dims = 1, .shape = &o.elements, .weight_decay_multiplier = 1};
        }
        ops[n++] = (struct zerod_op){ZEROD_GATHER, (uint32_t)u};
    }
    for (uint64_t u = o.units; u-- > 0;) {
        ops[n++] = (struct zerod_op){ZEROD_GATHER, (uint32_t)u};
        ops[n++] = (struct zerod_op){ZEROD_REDUCE, (uint32_t)u};
    }
    const struct zerod_plan plan = {"train", n, ops};
    const struct zerod_model model = {.unit_count = o.units,
                                      .units = units,
                                      .plan_count = 1,
                                      .plans = &plan,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .epsilon = 1e-8};
    const int rc = zerod_attach(NULL, &model, &z, e);
    free(units);
    free(tensors);
    free(names);
    free(ops);
    return rc;
}

static void fill(float *to, uint64_t bytes, float value) {
    for (uint64_t i = 0; i < bytes / sizeof *to; i++) {
        to[i] = value;
    }
}

/* ---- a step ---- */

/* Computes until the |part|-th of |parts| of the step's time is over. */
static void compute(uint64_t step, uint64_t part, uint64_t parts) {
    const int64_t start = clock_ns(), each = (int64_t)o.step_ms * 1000000;
    /* 90 %: what is left is for the calls, so that the next step is never late */
    const int64_t until =
        origin + (int64_t)(step - 1) * each + each * 9 / 10 * (int64_t)part / (int64_t)parts;
    if (each && until > start) {
        const struct timespec t = {until / 1000000000, until % 1000000000};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
    add(COMPUTE, start);
}

static int gather(uint32_t unit) {
    const void *params;
    const struct call c = call_begin();
    const int rc = zerod_gather(z, unit, &params);
    call_end(GATHER, c);
    return rc;
}

static int release(uint32_t unit) {
    const struct call c = call_begin();
    const int rc = zerod_release(z, unit);
    call_end(RELEASE, c);
    return rc;
}

static int reduce(uint32_t unit) {
    void *slot;
    struct call c = call_begin();
    int rc = zerod_grad(z, unit, false, &slot);
    call_end(GRAD, c);
    if (rc) {
        return rc;
    }
    const int64_t start = clock_ns();
    fill(slot, zerod_grad_bytes(z, unit), 1e-3f);
    add(COMPUTE, start);
    c = call_begin();
    rc = zerod_reduce(z, unit);
    call_end(REDUCE, c);
    return rc;
}

static int passes(uint64_t step) {
    const uint32_t units = (uint32_t)o.units;
    int rc = 0;
    for (uint32_t u = 0; u < units && !rc; u++) {
        rc = gather(u);
        compute(step, 1 + u, 3 * o.units);
        rc = rc ? rc : release(u);
    }
    for (uint32_t u = units; u-- > 0 && !rc;) { /* a backward pass takes twice as long */
        rc = gather(u);
        compute(step, o.units + 2 * (o.units - u), 3 * o.units);
        rc = rc ? rc : reduce(u);
        rc = rc ? rc : release(u);
    }
    return rc;
}

static int train(uint64_t step) {
    const struct zerod_step numbers = {.learning_rate = 1e-3, .clip = 1};
    struct zerod_outcome out;
    if (step == 1) {
        const int64_t each = (int64_t)o.step_ms * 1000000;
        origin = each ? (clock_ns() / each + 2) * each : 0;
    }
    spent = times[step - 1];
    memset(spent, 0, sizeof times[0]);
    const int64_t start = clock_ns();
    struct call c = call_begin();
    int rc = zerod_prefetch(z); /* while the batch is waited for */
    call_end(PREFETCH, c);
    compute(step, 0, 1);
    rc = rc ? rc : passes(step);
    if (!rc) {
        c = call_begin();
        rc = zerod_step(z, &numbers, &out);
        stepped[step - 1][0] = c.start;
        stepped[step - 1][1] = clock_ns();
        call_end(STEP, c);
    }
    add(WALL, start);
    spent[REST] = spent[WALL];
    for (int p = 0; p < REST; p++) {
        spent[REST] -= spent[p];
    }
    return rc;
}

static int load(void) {
    struct zerod_outcome out;
    int rc = 0;
    for (uint32_t u = 0; u < o.units && !rc; u++) {
        float *values;
        rc = zerod_initial(z, u, &values);
        if (!rc) {
            fill(values, zerod_initial_bytes(z, u), 0.1f);
            rc = zerod_load(z, u);
        }
    }
    return rc ? rc : zerod_step(z, NULL, &out);
}

/* ---- results ---- */

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median(enum part p) {
    static int64_t list[MAX_STEPS];
    const size_t first = o.steps > 1, n = (size_t)o.steps - first;
    for (size_t i = 0; i < n; i++) {
        list[i] = times[first + i][p];
    }
    qsort(list, n, sizeof list[0], ascending);
    return (double)list[n / 2] * 1e-9;
}

static int write_json(double attach_s, double load_s) {
    FILE *f = fopen(o.json, "we");
    if (!f) {
        log_error("cannot write %s", o.json);
        return 1;
    }
    (void)fprintf(f, "{\"attach\": %.9f, \"load\": %.9f, \"first_step\": %.9f", attach_s, load_s,
                  (double)times[0][WALL] * 1e-9);
    for (int p = 0; p < PARTS; p++) {
        (void)fprintf(f, ", \"%s\": %.9f", part_names[p], median((enum part)p));
    }
    (void)fprintf(f, "}\n");
    return fclose(f) ? 1 : 0;
}

/* When this rank called zerod_step, and when it came back, each step: the clock is the machine's,
 * so the ranks' files show how long all waited for the last. */
static int write_steps(void) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s.%u", o.json, zerod_rank(z));
    FILE *f = fopen(path, "we");
    if (!f) {
        log_error("cannot write %s", path);
        return 1;
    }
    for (uint64_t i = 0; i < o.steps; i++) {
        (void)fprintf(f, "%s[%lld, %lld]", i ? ", " : "[", (long long)stepped[i][0],
                      (long long)stepped[i][1]);
    }
    (void)fprintf(f, "]\n");
    return fclose(f) ? 1 : 0;
}

static int run(void) {
    struct zerod_error e;
    int64_t start = clock_ns(), loading = 0;
    if (attach(&e)) {
        log_error("%s: %s", zerod_status_name(e.code), e.text);
        return 1;
    }
    const double attach_s = (double)(clock_ns() - start) * 1e-9;
    for (;;) {
        struct zerod_try t;
        int rc = zerod_begin(z, &t);
        if (!rc && t.step > o.steps) {
            break;
        }
        start = clock_ns();
        rc = rc ? rc : t.loading ? load() : train(t.step);
        loading += t.loading ? clock_ns() - start : 0;
        if (rc && rc != -ZEROD_ABORTED) {
            log_error("%s: %s", zerod_status_name(rc), zerod_last_error(z)->text);
            return 1;
        }
    }
    int rc = zerod_rank(z) || !o.json ? 0 : write_json(attach_s, (double)loading * 1e-9);
    rc = rc || !o.json ? rc : write_steps();
    zerod_detach(z, true);
    return rc;
}

int main(int argc, char **argv) {
    struct opt options[] = {
        OPT_UNSIGNED(0, "units", "U", "6", NULL, 1, 100000, &o.units, "Units."),
        OPT_UNSIGNED(0, "tensors", "T", "4", NULL, 1, 1000, &o.tensors, "Tensors of each."),
        OPT_UNSIGNED(0, "elements", "E", "65536", NULL, 1, UINT64_C(1) << 32, &o.elements,
                     "Elements of each tensor."),
        OPT_UNSIGNED(0, "steps", "N", "20", NULL, 1, MAX_STEPS, &o.steps, "Steps."),
        OPT_UNSIGNED(0, "step-ms", "M", "0", NULL, 0, 60000, &o.step_ms,
                     "What a step's computing takes; 0: nothing."),
        OPT_TEXT(0, "json", "FILE", NULL, &o.json,
                 "Where rank 0 writes what was measured; FILE.RANK: moments of steps."),
        OPT_FLAG('h', "help", &o.help, "Print this help."),
        OPT_END,
    };
    struct err e;
    int rest;
    log_name("paced_trainer");
    if (opt_parse(options, argc, argv, &rest, &e)) {
        log_error("%s", e.text);
        return 2;
    }
    if (o.help) {
        printf("usage: zerorun ... -- paced_trainer [options]\n\n");
        opt_help(options, stdout);
        return 0;
    }
    times = calloc(o.steps, sizeof *times);
    stepped = calloc(o.steps, sizeof *stepped);
    schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC); /* else no_core is 0 */
    return times && stepped ? run() : 1;
}
