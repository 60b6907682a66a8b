/* The trainer's calls: checked against the plan before anything happens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/inner.h"

/* Is there a try that the trainer is in, and such a unit? Locked. */
static int check(const struct engine *e, uint64_t unit, const char *what, struct err *err) {
    if (!e->t.open || !e->t.entered) {
        return err_set(err, ST_FAILED_PRECONDITION, "%s: the trainer is in no try", what);
    }
    if (unit >= e->units) {
        return err_set(err, ST_INVALID_ARGUMENT,
                       "%s: there is no unit %" PRIu64 ", the model has %zu", what, unit, e->units);
    }
    return 0;
}

static const char *name_of(const struct engine *e, uint64_t unit) {
    return e->model->units[unit].name;
}

static int check_loaded(const struct engine *e, uint64_t unit, struct err *err) {
    if (e->t.fence.step) {
        return 0;
    }
    return err_set(err, ST_FAILED_PRECONDITION,
                   "step 0: nothing is loaded yet, unit \"%s\" cannot be gathered",
                   name_of(e, unit));
}

static int gather(struct engine *e, uint64_t unit, struct err *err) {
    const struct leases *l = &e->leases;
    uint64_t step = e->t.fence.step;
    char held[ERR_TEXT / 2];
    bool ahead;
    int rc = check_loaded(e, unit, err);
    if (rc) {
        return rc;
    }
    uint32_t gap = course_gap(l->course, l->asked, unit, e->may_be_absent);
    if (gap == UINT32_MAX) {
        return course_refuse(l->course, step, l->asked, unit, err);
    }
    if (leases_full(l)) {
        leases_list(l, held, sizeof held);
        return err_set(err, ST_RESOURCE_EXHAUSTED,
                       "step %" PRIu64
                       ": gather of \"%s\" could only be served by a release of the "
                       "trainer's own: it holds all %" PRIu32 " gather slots, %s",
                       step, name_of(e, unit), l->slot_count, held);
    }
    leases_skip(&e->leases, gap);
    leases_ask(&e->leases, &ahead);
    if (l->eval) {
        e->eval_count++;
    } else {
        e->gather_count++;
        e->ahead_count += ahead;
    }
    return 0;
}

int engine_gather(struct engine *e, uint64_t unit, struct err *err) {
    pthread_mutex_lock(&e->lock);
    int rc = check(e, unit, "gather", err);
    if (!rc) {
        rc = gather(e, unit, err);
    }
    worker_poke(e); /* where a replica is lent, one asked for makes room for one more ahead */
    pthread_mutex_unlock(&e->lock);
    return rc;
}

int engine_prefetch(struct engine *e, struct err *err) {
    pthread_mutex_lock(&e->lock);
    int rc = check(e, 0, "prefetch", err);
    rc = rc ? rc : check_loaded(e, 0, err);
    if (!rc) {
        leases_expect(&e->leases);
    }
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

int engine_release(struct engine *e, uint64_t unit, struct err *err) {
    pthread_mutex_lock(&e->lock);
    int rc = check(e, unit, "release", err);
    if (!rc && !leases_release(&e->leases, unit)) {
        rc = err_set(err, ST_INVALID_ARGUMENT,
                     "step %" PRIu64 ": release of \"%s\", which the "
                     "trainer does not hold",
                     e->t.fence.step, name_of(e, unit));
    }
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

static int check_slot(const struct engine *e, uint64_t unit, const char *what, struct err *err) {
    if (e->t.calls < e->t.told) {
        return 0;
    }
    return err_set(err, ST_FAILED_PRECONDITION,
                   "step %" PRIu64 ": %s of \"%s\" without a gradient "
                   "slot: the trainer was granted %" PRIu32,
                   e->t.fence.step, what, name_of(e, unit), e->t.told);
}

static int reduce(struct engine *e, uint64_t unit, struct err *err) {
    const struct course *c = &e->reduces;
    uint64_t step = e->t.fence.step;
    uint32_t q = e->t.asked;
    if (step == 0) {
        return err_set(err, ST_FAILED_PRECONDITION,
                       "step 0: nothing is loaded yet, unit \"%s\" "
                       "cannot be reduced",
                       name_of(e, unit));
    }
    if (e->leases.eval) {
        return err_set(err, ST_FAILED_PRECONDITION,
                       "step %" PRIu64 ": reduce of \"%s\" within an eval pass", step,
                       name_of(e, unit));
    }
    uint32_t gap = course_gap(c, q, unit, e->may_be_absent);
    if (gap == UINT32_MAX && q < course_total(c) && course_had(c, q, unit)) {
        return err_set(
            err, ST_ALREADY_EXISTS,
            "step %" PRIu64 ", micro-batch %" PRIu32 ": unit \"%s\" was reduced already%s", step,
            q / c->length, name_of(e, unit), e->may_be_absent[unit] ? ", or left out" : "");
    }
    if (gap == UINT32_MAX) {
        return course_refuse(c, step, q, unit, err);
    }
    int rc = check_slot(e, unit, "reduce", err);
    if (!rc) {
        slots_skip(e, gap);
        slots_say(e);
    }
    return rc;
}

int engine_reduce(struct engine *e, uint64_t unit, struct err *err) {
    pthread_mutex_lock(&e->lock);
    int rc = check(e, unit, "reduce", err);
    if (!rc) {
        rc = reduce(e, unit, err);
    }
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

static int load(struct engine *e, uint64_t unit, struct err *err) {
    uint64_t step = e->t.fence.step;
    uint32_t q = e->t.asked;
    if (step != 0) {
        return err_set(err, ST_FAILED_PRECONDITION,
                       "step %" PRIu64 ": unit \"%s\" cannot be "
                       "loaded, initial values are step 0's",
                       step, name_of(e, unit));
    }
    if (!model_unit_is_loaded(e->model, unit)) {
        return err_set(err, ST_FAILED_PRECONDITION,
                       "step 0: nothing of unit \"%s\" is loaded, its tensors have initialisers",
                       name_of(e, unit));
    }
    if (q == e->load_count || unit < e->loads[q]) {
        return err_set(err, ST_ALREADY_EXISTS, "step 0: unit \"%s\" was loaded already",
                       name_of(e, unit));
    }
    if (unit != e->loads[q]) {
        return err_set(err, ST_FAILED_PRECONDITION,
                       "step 0: units are loaded in their order, next "
                       "is \"%s\", the trainer loads \"%s\"",
                       name_of(e, e->loads[q]), name_of(e, unit));
    }
    int rc = check_slot(e, unit, "load", err);
    if (!rc) {
        e->t.asked++;
        e->t.calls++;
    }
    return rc;
}

int engine_load(struct engine *e, uint64_t unit, struct err *err) {
    pthread_mutex_lock(&e->lock);
    int rc = check(e, unit, "load", err);
    if (!rc) {
        rc = load(e, unit, err);
    }
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* ---- passes and their ends ---- */

static int refuse_held(const struct engine *e, const char *what, struct err *err) {
    uint32_t unit;
    if (!leases_any(&e->leases, &unit)) {
        return 0;
    }
    return err_set(err, ST_FAILED_PRECONDITION,
                   "step %" PRIu64 ": %s while unit \"%s\" is still "
                   "held",
                   e->t.fence.step, what, name_of(e, unit));
}

/* Is nothing expected any more but what may be left out? Else |*expected| is the first. */
static bool may_end(const struct engine *e, const struct course *c, uint32_t n,
                    uint32_t *expected) {
    while (n < course_total(c) && e->may_be_absent[course_unit(c, n)]) {
        n++;
    }
    *expected = n;
    return n == course_total(c);
}

static int begin_eval(struct engine *e, struct err *err) {
    uint64_t step = e->t.fence.step;
    if (step == 0) {
        return err_set(err, ST_FAILED_PRECONDITION,
                       "step 0: nothing is loaded yet, there is "
                       "nothing to evaluate");
    }
    if (!e->evals.plan) {
        return err_set(err, ST_FAILED_PRECONDITION,
                       "step %" PRIu64 ": the model has no plan "
                       "\"eval\"",
                       step);
    }
    if (e->leases.eval || e->leases.asked || e->t.asked) {
        return err_set(err, ST_FAILED_PRECONDITION,
                       "step %" PRIu64 ": an eval pass begins before "
                       "the try's first collective, and not within another",
                       step);
    }
    leases_start(&e->leases, &e->evals, true);
    return 0;
}

int engine_begin_eval(struct engine *e, struct err *err) {
    pthread_mutex_lock(&e->lock);
    int rc = check(e, 0, "eval pass", err);
    if (!rc) {
        rc = begin_eval(e, err);
    }
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

static int end_eval(struct engine *e, struct err *err) {
    const struct leases *l = &e->leases;
    if (!l->eval) {
        return err_set(err, ST_FAILED_PRECONDITION, "step %" PRIu64 ": no eval pass to end",
                       e->t.fence.step);
    }
    int rc = refuse_held(e, "the eval pass ended", err);
    uint32_t expected;
    if (!rc && !may_end(e, l->course, l->asked, &expected)) {
        rc = course_unfinished(l->course, e->t.fence.step, expected, "", err);
    }
    if (!rc) {
        leases_start(&e->leases, &e->gathers, false);
    }
    return rc;
}

int engine_end_eval(struct engine *e, struct err *err) {
    pthread_mutex_lock(&e->lock);
    int rc = check(e, 0, "end of an eval pass", err);
    if (!rc) {
        rc = end_eval(e, err);
    }
    worker_poke(e);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* "; not reduced: "a", "b"": units whose gradients are missing, cut to |cap|. A pass names all. */
static void list_missing(const struct engine *e, char *text, size_t cap) {
    const struct course *c = &e->reduces;
    bool *seen = mem_zeroed(e->units, sizeof *seen);
    uint32_t more = 0;
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = e->t.asked; i < course_total(c) && i - e->t.asked < c->length; i++) {
        uint32_t u = course_unit(c, i);
        size_t need = strlen(name_of(e, u)) + 16;
        if (seen[u] || e->may_be_absent[u]) {
            continue;
        }
        seen[u] = true;
        if (more || at + need + 16 > cap) {
            more++;
            continue;
        }
        at += (size_t)snprintf(text + at, cap - at, "%s\"%s\"",
                               at ? ", " : "; not reduced: ", name_of(e, u));
    }
    if (more) {
        (void)snprintf(text + at, cap - at, " and %" PRIu32 " more", more);
    }
    free(seen);
}

static int finish(struct engine *e, struct err *err) {
    const struct leases *l = &e->leases;
    uint64_t step = e->t.fence.step;
    uint32_t expected;
    char missing[ERR_TEXT / 2];
    if (step == 0) {
        return e->t.asked == e->load_count
                   ? 0
                   : err_set(err, ST_FAILED_PRECONDITION, "step 0: unit \"%s\" was not loaded",
                             name_of(e, e->loads[e->t.asked]));
    }
    if (l->eval) {
        return err_set(err, ST_FAILED_PRECONDITION, "step %" PRIu64 ": the eval pass was not ended",
                       step);
    }
    int rc = refuse_held(e, "the trainer ended it", err);
    list_missing(e, missing, sizeof missing);
    if (!rc && !may_end(e, l->course, l->asked, &expected)) {
        rc = course_unfinished(l->course, step, expected, missing, err);
    }
    if (!rc && !may_end(e, &e->reduces, e->t.asked, &expected)) {
        rc = course_unfinished(&e->reduces, step, expected, missing, err);
    }
    if (!rc) {
        leases_skip(&e->leases, course_total(l->course) - l->asked);
        slots_skip(e, course_total(&e->reduces) - e->t.asked);
        worker_poke(e);
    }
    return rc;
}

int engine_finish(struct engine *e, struct err *err) {
    pthread_mutex_lock(&e->lock);
    int rc = check(e, 0, "step", err);
    if (!rc) {
        rc = finish(e, err);
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}
