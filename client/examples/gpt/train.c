/* See train.h. */
#include "train.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "finish.h"

static void pause_in_compute(const struct train *t) {
    const uint64_t ms = t->o->sleep_ms;
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (ms > 0 && nanosleep(&left, &left) != 0) {
    }
}

static int initial_tensor(struct train *t, const struct gpt_tensor *tensor, uint64_t first,
                          float *at, struct err *e) {
    const struct safetensors_entry *entry = NULL;
    if (!t->init.path) {
        gpt_initial(tensor, t->o->seed, first, at);
        return 0;
    }
    const int rc = safetensors_find(&t->init, tensor->name, tensor->dims, tensor->shape, &entry, e);
    return rc < 0 ? rc : safetensors_read(&t->init, entry, at, e);
}

/* Step 0: every rank writes the same values. */
static int load_unit(struct train *t, size_t unit, uint64_t *first, struct err *e) {
    struct gpt_unit u;
    float *to = NULL;
    gpt_describe(&t->gpt.shape, unit, &u);
    if (t->store->ops->elements(t->store, STORE_INITIAL, unit) == 0) {
        return 0; /* the store makes them */
    }
    int rc = t->store->ops->initial(t->store, unit, &to, e);
    for (size_t i = 0; i < u.count && rc == 0; i++) {
        if (!u.tensors[i].tied) {
            rc = initial_tensor(t, &u.tensors[i], *first,
                                to + t->units.offset[unit].at[STORE_INITIAL][i], e);
            *first += u.tensors[i].elements;
        }
    }
    return rc < 0 ? rc : t->store->ops->load(t->store, unit, e);
}

static int load_all(struct train *t, struct err *e) {
    struct store_outcome outcome;
    uint64_t first = 0;
    for (size_t unit = 0; unit < t->units.count; unit++) {
        const int rc = load_unit(t, unit, &first, e);
        if (rc < 0) {
            return rc;
        }
    }
    return t->store->ops->step(t->store, NULL, &outcome, e);
}

static void fill_batch(struct train *t, uint64_t step, uint64_t micro_batch) {
    const size_t seq = t->gpt.shape.seq;
    for (size_t i = 0; i < t->gpt.shape.batch; i++) {
        const struct text_place place = {t->o->seed, step, micro_batch, t->store->rank, i};
        const uint8_t *from = t->text.bytes + text_offset(&place, t->text.count - seq);
        memcpy(t->gpt.tokens + i * seq, from, seq);
        memcpy(t->gpt.targets + i * seq, from + 1, seq);
    }
}

static const uint64_t *places(const struct train *t, enum store_part part, size_t unit) {
    return t->units.offset[unit].at[part];
}

/* Is it the head, and its matrix embed's? Then embed is borrowed beside it. */
static bool leans_on_embed(const struct train *t, size_t unit) {
    return t->gpt.shape.tied && unit + 1 == t->units.count;
}

/* Gathers the unit, a tied head's embed first. */
static int borrow(struct train *t, size_t unit, const float **params, struct err *e) {
    const float *embed = NULL;
    int rc = 0;
    if (leans_on_embed(t, unit)) {
        rc = units_borrow(&t->units, 0, &embed, e);
        t->gpt.tied = rc == 0 ? embed + places(t, STORE_PARAMS, 0)[EMBED_WTE] : NULL;
    }
    return rc == 0 ? units_borrow(&t->units, unit, params, e) : rc;
}

static int release(struct train *t, size_t unit, struct err *e) {
    const int rc = units_release(&t->units, unit, e);
    return rc == 0 && leans_on_embed(t, unit) ? units_release(&t->units, 0, e) : rc;
}

static int forward(struct train *t, size_t unit, struct err *e) {
    const float *params = NULL;
    const int rc = borrow(t, unit, &params, e);
    if (rc < 0) {
        return rc;
    }
    pause_in_compute(t);
    gpt_forward(&t->gpt, unit, params, places(t, STORE_PARAMS, unit));
    return release(t, unit, e);
}

/* A tied head's part of embed's gradient: the other tensor's is 0. */
static int open_embed_grad(struct train *t, struct err *e) {
    float *grad = NULL;
    const int rc = t->store->ops->grad(t->store, 0, &grad, e);
    if (rc == 0) {
        memset(grad, 0, t->store->ops->elements(t->store, STORE_GRADIENT, 0) * sizeof *grad);
        t->gpt.d_tied = grad + places(t, STORE_GRADIENT, 0)[EMBED_WTE];
    }
    return rc;
}

static int backward(struct train *t, size_t unit, struct err *e) {
    const float *params = NULL;
    float *grad = NULL;
    const bool both = leans_on_embed(t, unit);
    int rc = borrow(t, unit, &params, e);
    rc = rc == 0 ? t->store->ops->grad(t->store, unit, &grad, e) : rc;
    rc = rc == 0 && both ? open_embed_grad(t, e) : rc;
    if (rc < 0) {
        return rc;
    }
    pause_in_compute(t);
    gpt_backward(&t->gpt, unit, params, places(t, STORE_PARAMS, unit), grad,
                 places(t, STORE_GRADIENT, unit));
    rc = release(t, unit, e);
    rc = rc == 0 ? t->store->ops->reduce(t->store, unit, e) : rc;
    return rc == 0 && both ? t->store->ops->reduce(t->store, 0, e) : rc;
}

static int micro_batch(struct train *t, struct err *e) {
    int rc = 0;
    for (size_t unit = 0; unit < t->units.count && rc == 0; unit++) {
        rc = forward(t, unit, e);
    }
    for (size_t unit = t->units.count; unit-- > 0 && rc == 0;) {
        rc = backward(t, unit, e);
    }
    return rc;
}

/* Rises in equal parts over the warm-up, then stays. */
static double learning_rate(const struct options *o, uint64_t step) {
    return step < o->warmup ? o->lr * (double)step / (double)o->warmup : o->lr;
}

static int train_step(struct train *t, const struct store_try *try, struct err *e) {
    const uint64_t count = t->o->micro_batches;
    int rc = cursor_restore(&t->cursor, try->step, try->cursor, try->cursor_bytes, e);
    double loss = 0;
    t->gpt.gradient_scale = (float)try->loss_scale / (float)count;
    t->report.loss_scale = try->loss_scale;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        fill_batch(t, try->step, i);
        rc = micro_batch(t, e);
        loss += t->gpt.loss;
    }
    if (rc < 0) {
        return rc;
    }
    uint8_t bytes[CURSOR_BYTES];
    struct cursor next = t->cursor;
    next.step = try->step;
    next.sequences += count * t->o->batch;
    cursor_encode(&next, bytes);
    const struct store_step step = {
        .lr = learning_rate(t->o, try->step),
        .clip = t->o->clip,
        .loss = loss / (double)count,
        .cursor = bytes,
        .cursor_bytes = sizeof bytes,
    };
    struct store_outcome outcome;
    rc = t->store->ops->step(t->store, &step, &outcome, e);
    if (rc == 0) {
        report_step(&t->report, try->step, outcome.loss, outcome.grad_norm, outcome.skipped);
    }
    return rc;
}

static void tell_void(const struct train *t, uint64_t step, uint64_t attempt, const char *why) {
    if (t->store->rank == 0 || t->o->verbose) {
        fprintf(stderr, "gpt[%u]: step %" PRIu64 " attempt %" PRIu64 " is void, redoing it: %s\n",
                t->store->rank, step, attempt, why);
    }
}

/* One try. |*aborted|: the one before it was void, and that was told; then whether this one was. */
static int run_try(struct train *t, bool *done, bool *aborted, struct err *e) {
    struct store_try try;
    int rc = t->store->ops->begin(t->store, &try, e);
    if (rc < 0) {
        return rc;
    }
    if (try.attempt > 1 && try.void_reason && *try.void_reason && !*aborted) {
        tell_void(t, try.step, try.attempt - 1,
                  try.void_reason); /* it was void between two calls */
    }
    if (try.loading) {
        rc = load_all(t, e);
    } else if (try.step <= t->o->steps) {
        report_begin(&t->report);
        rc = train_step(t, &try, e);
    } else {
        rc = finish(t, e);
        *done = rc == 0;
    }
    *aborted = rc == -ST_ABORTED;
    if (*aborted) {
        tell_void(t, try.step, try.attempt, e->text);
    }
    return *aborted ? 0 : rc;
}

int train_run(struct train *t, struct err *e) {
    bool done = false, aborted = false;
    int rc = 0;
    while (!done && rc == 0) {
        rc = run_try(t, &done, &aborted, e);
    }
    return rc;
}
