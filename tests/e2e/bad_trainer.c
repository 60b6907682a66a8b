/* A small trainer that does one thing wrong, chosen by its argument, and checks what it is told.
 *
 * Three units, five steps; gradients depend on rank and step. What is wrong happens on rank 1 in
 * step 3, first attempt (or where the mode says). Each error is printed as "rank R: STATUS: text".
 * Modes in which the job can go on come back through zerod_begin() and exit with 0 when all five
 * steps are done and every rank was told exactly what its mode must tell; otherwise 1. The mode
 * "good" does nothing wrong and prints each step that it enters. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/zerod.h"

enum { UNITS = 3, STEPS = 5, WRONG_STEP = 3, ROWS = 16, COLUMNS = 16 };
enum { WRONG_RANK = 1, OTHER_REPLICA = 2 }; /* of four ranks, two to a group */
enum { EMBED, BODY, LAST };

static struct zerod *z;
static unsigned rank;
static const char *mode;
static unsigned told; /* errors (or skips) of the kind that the mode expects */

static bool is(const char *name) {
    return strcmp(mode, name) == 0;
}

static _Noreturn void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static _Noreturn void fail(const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    (void)fprintf(stderr, "bad_trainer %s, rank %u: ", mode, rank);
    (void)vfprintf(stderr, fmt, list);
    (void)fputc('\n', stderr);
    va_end(list);
    exit(1);
}

static void say(int code, const char *text) {
    (void)printf("rank %u: %s: %s\n", rank, zerod_status_name(code), text);
    (void)fflush(stdout);
}

/* Prints the last error, which must be of |code| (or |other|). */
static void expect(int rc, int code, int other) {
    say(rc, zerod_last_error(z)->text);
    if (rc != -code && rc != -other) {
        fail("got %s, expected %s", zerod_status_name(rc), zerod_status_name(code));
    }
    told++;
}

/* ---- the model ---- */

static struct zerod_tensor tensor(const char *name, uint32_t dims, const uint64_t *shape) {
    return (struct zerod_tensor){
        .name = name, .dims = dims, .shape = shape, .weight_decay_multiplier = dims > 1 ? 1 : 0};
}

static int attach(struct zerod **handle, struct zerod_error *e) {
    const uint64_t matrix[2] = {ROWS, COLUMNS}, vector[1] = {ROWS};
    const uint64_t other[2] = {24, COLUMNS};
    bool differs = is("other-shape") && rank == WRONG_RANK;
    const struct zerod_tensor embed[] = {tensor("embed.weight", 2, matrix)};
    const struct zerod_tensor body[] = {tensor("body.weight", 2, differs ? other : matrix),
                                        tensor("body.bias", 1, vector)};
    const struct zerod_tensor last[] = {tensor("last.weight", 2, matrix)};
    const struct zerod_unit units[UNITS] = {{.name = "embed", .tensor_count = 1, .tensors = embed},
                                            {.name = "body", .tensor_count = 2, .tensors = body},
                                            {.name = "last", .tensor_count = 1, .tensors = last}};
    const struct zerod_op train[] = {
        {ZEROD_GATHER, EMBED}, {ZEROD_GATHER, BODY}, {ZEROD_GATHER, LAST},  {ZEROD_REDUCE, LAST},
        {ZEROD_GATHER, BODY},  {ZEROD_REDUCE, BODY}, {ZEROD_GATHER, EMBED}, {ZEROD_REDUCE, EMBED}};
    const struct zerod_plan plans[] = {{"train", sizeof train / sizeof *train, train}};
    const struct zerod_model model = {.unit_count = UNITS,
                                      .units = units,
                                      .plan_count = 1,
                                      .plans = plans,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .epsilon = 1e-8,
                                      .weight_decay = 0.1};
    return zerod_attach(NULL, &model, handle, e);
}

/* ---- what is wrong ---- */

static bool now(const struct zerod_try *t) {
    return rank == WRONG_RANK && t->step == WRONG_STEP && t->attempt == 1;
}

/* Two slots and two held units: the third gather can only be helped by our own release. */
static int hold_all(void) {
    const void *p;
    int rc = zerod_gather(z, EMBED, &p);
    rc = rc ? rc : zerod_gather(z, BODY, &p);
    if (rc) {
        return rc;
    }
    expect(zerod_gather(z, LAST, &p), ZEROD_RESOURCE_EXHAUSTED, ZEROD_RESOURCE_EXHAUSTED);
    rc = zerod_release(z, EMBED);
    rc = rc ? rc : zerod_gather(z, LAST, &p);
    rc = rc ? rc : zerod_release(z, BODY);
    return rc ? rc : zerod_release(z, LAST);
}

static void attach_again(void) {
    struct zerod *second;
    struct zerod_error e;
    char pid[16];
    int rc = attach(&second, &e);
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    say(e.code, e.text);
    if (rc != -ZEROD_ALREADY_EXISTS || !strstr(e.text, pid)) {
        fail("a second attachment got %s", zerod_status_name(rc));
    }
    told++;
}

/* ---- a step ---- */

static int forward(const struct zerod_try *t) {
    const void *p;
    if (is("holds-all") && now(t)) {
        return hold_all();
    }
    for (uint32_t u = 0; u < UNITS; u++) {
        uint32_t asked = is("leaves-plan") && now(t) && u == BODY ? LAST : u;
        int rc = zerod_gather(z, asked, &p);
        rc = rc ? rc : zerod_release(z, asked);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* Elements of tensors and padding alike: zerod ignores the latter. */
static void fill_with(float *to, uint64_t bytes, double value) {
    for (uint64_t i = 0; i < bytes / sizeof *to; i++) {
        to[i] = (float)(value + 1e-3 * (double)(i % 7));
    }
}

static int fill(uint32_t unit, double value) {
    void *to;
    int rc = zerod_grad(z, unit, false, &to);
    if (!rc) {
        fill_with(to, zerod_grad_bytes(z, unit), value);
    }
    return rc;
}

static int fill_initial(uint32_t unit, double value) {
    float *to;
    int rc = zerod_initial(z, unit, &to);
    if (!rc) {
        fill_with(to, zerod_initial_bytes(z, unit), value);
    }
    return rc;
}

static int backward(const struct zerod_try *t) {
    const void *p;
    for (uint32_t u = UNITS; u-- > 0;) {
        bool keep = u == LAST || (is("leaks-lease") && now(t) && u == BODY);
        int rc = u == LAST ? 0 : zerod_gather(z, u, &p);
        rc = rc || keep ? rc : zerod_release(z, u);
        double value = 0.01 * (double)(t->step + rank);
        if (is("not-finite") && now(t) && u == BODY) {
            value = NAN;
        }
        rc = rc ? rc : fill(u, value);
        rc = rc ? rc : zerod_reduce(z, u);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static int finish(const struct zerod_try *t) {
    struct zerod_outcome out;
    double loss = 1.0 / (double)t->step;
    struct zerod_step step = {.learning_rate = 1e-3,
                              .clip = 1,
                              .user_count = 1,
                              .user = &loss,
                              .rank_cursor = &t->step,
                              .rank_cursor_bytes = sizeof t->step};
    if (is("other-lr") && now(t)) {
        step.learning_rate = 2e-3;
    }
    int rc = zerod_step(z, &step, &out);
    if (!rc && out.kind == ZEROD_SKIPPED) {
        (void)printf("rank %u: step %llu was skipped\n", rank, (unsigned long long)t->step);
        told++;
    }
    return rc;
}

static int load(void) {
    const void *p;
    if (is("early-gather") && rank == WRONG_RANK && !told) { /* refused; the try stays open */
        expect(zerod_gather(z, EMBED, &p), ZEROD_FAILED_PRECONDITION, ZEROD_FAILED_PRECONDITION);
    }
    for (uint32_t u = 0; u < UNITS; u++) {
        bool differs = u == BODY && ((is("other-values") && rank == WRONG_RANK) ||
                                     (is("other-replica") && rank == OTHER_REPLICA));
        int rc = fill_initial(u, differs ? 0.5 : 0.25);
        rc = rc ? rc : zerod_load(z, u);
        if (rc) {
            return rc;
        }
    }
    struct zerod_outcome out;
    return zerod_step(z, NULL, &out);
}

static int train(const struct zerod_try *t) {
    if (is("second") && now(t)) {
        attach_again();
    }
    if (is("aborts") && now(t)) {
        return zerod_abort(z, "out of luck");
    }
    int rc = forward(t);
    rc = rc ? rc : backward(t);
    return rc ? rc : finish(t);
}

/* ---- what every rank must be told ---- */

/* The status that ends a try in this mode. */
static int ends_with(void) {
    if (is("aborts")) {
        return ZEROD_ABORTED;
    }
    return ZEROD_FAILED_PRECONDITION;
}

static bool ends_a_try(void) {
    return is("leaves-plan") || is("leaks-lease") || is("other-lr") || is("aborts");
}

static unsigned must_be_told(void) {
    if (is("holds-all") || is("second") || is("early-gather")) {
        return rank == WRONG_RANK;
    }
    return is("good") ? 0 : 1;
}

static void voided(int rc) {
    if (!ends_a_try()) {
        say(rc, zerod_last_error(z)->text);
        exit(1); /* the job cannot go on */
    }
    bool only_hears = rank != WRONG_RANK && is("leaks-lease"); /* may be told ABORTED */
    expect(rc, ends_with(), only_hears ? ZEROD_ABORTED : ends_with());
}

/* Whoever was between two calls when the try became void hears of it here. */
static void hear(const struct zerod_try *t) {
    if (ends_a_try() && told == 0 && t->void_reason && *t->void_reason) {
        say(ends_with(), t->void_reason);
        told++;
    }
}

/* The cursor is the number of the step that it was committed with. */
static void check_cursor(const struct zerod_try *t) {
    uint64_t before = 0;
    if (t->rank_cursor_bytes == sizeof before) {
        memcpy(&before, t->rank_cursor, sizeof before);
    }
    if (t->step > 1 && before + 1 != t->step) {
        fail("step %llu has the cursor of step %llu", (unsigned long long)t->step,
             (unsigned long long)before);
    }
    if (is("good")) {
        (void)printf("rank %u: attachment %llu enters step %llu\n", rank,
                     (unsigned long long)zerod_attachment(z), (unsigned long long)t->step);
        (void)fflush(stdout);
    }
}

static void run(void) {
    struct zerod_try t;
    for (;;) {
        int rc = zerod_begin(z, &t);
        if (rc) {
            say(rc, zerod_last_error(z)->text);
            exit(1);
        }
        if (t.step > STEPS) {
            return;
        }
        hear(&t);
        check_cursor(&t);
        rc = t.loading ? load() : train(&t);
        if (rc) {
            voided(rc);
        }
    }
}

int main(int argc, char **argv) {
    struct zerod_error e;
    const char *number = getenv("RANK");
    if (argc != 2 || !number) {
        (void)fprintf(stderr, "usage: zerorun ... -- bad_trainer MODE\n");
        return 2;
    }
    mode = argv[1];
    rank = (unsigned)atoi(number);
    int rc = attach(&z, &e);
    if (rc) {
        (void)printf("rank %u: %s: %s\n", rank, zerod_status_name(rc), e.text);
        return 1;
    }
    run();
    if (told != must_be_told()) {
        fail("was told %u times, not %u", told, must_be_told());
    }
    zerod_detach(z, true);
    return 0;
}
