/* What each mode changes, and what it must see.
 *
 * - mean K: K micro-batches; values are exact sums over ranks and micro-batches.
 * - skips: rank 1 does not reduce "second" in step 2: every rank is told, the step is redone.
 * - early: rank 1 steps after one of two micro-batches, likewise.
 * - absent: "expert" may be absent, and ranks leave it out in turns, once all of them.
 * - twice: rank 1 reduces "second" a second time: refused, and the try goes on.
 * - frozen: "first" is frozen: its values stay, it has no gradient.
 * - same-name: a tensor's name is in two units.
 * - other-dtype, other-wire: rank 1 asks for bf16 parameters, for bf16 gradients.
 * - rounding: bf16 parameters of 1, updates far below their resolution.
 * - infinite: fp16: rank 1's gradient is infinite in step 2.
 * - nans N: gradients are no numbers in the first N steps, then three good steps of Adam.
 * - floor: fp16: gradients stay infinite.
 * - norm: the same gradient on every rank; prints norms.
 * - lingers N: rank 1 does nothing for N seconds before step() of step 2.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "field.h"

enum { GOOD_STEPS = 3, ROUNDING_STEPS = 300 };
#define FROZEN_VALUE 0.25

static void set_all(struct field *f, enum zerod_init_kind kind, double a) {
    for (unsigned u = 0; u < UNITS; u++) {
        for (unsigned t = 0; t < TENSORS; t++) {
            f->tensors[u][t].init = (struct zerod_init){.kind = kind, .a = a};
        }
        f->value[u] = (float)a;
    }
}

static void shape_scaled(struct field *f) {
    f->model.param_dtype = ZEROD_FP16;
    f->model.scaling = (struct zerod_scaling){.dynamic = true};
    f->check_values = false;
    f->steps = is(f, "floor") ? 1000 : 4;
}

static void shape_rounding(struct field *f) {
    set_all(f, ZEROD_CONSTANT, 1);
    f->model.param_dtype = ZEROD_BF16;
    f->check_values = false;
    f->lr = 1e-5;
    f->steps = ROUNDING_STEPS;
}

void mode_shape(struct field *f) {
    if (is(f, "mean")) {
        f->model.micro_batches = (uint32_t)f->argument;
    } else if (is(f, "early")) {
        f->model.micro_batches = 2;
    } else if (is(f, "absent")) {
        f->tensors[EXPERT][0].absent_ok = f->tensors[EXPERT][1].absent_ok = true;
    } else if (is(f, "frozen")) {
        set_all(f, ZEROD_CONSTANT, FROZEN_VALUE);
        f->tensors[FIRST][0].frozen = f->tensors[FIRST][1].frozen = true;
        for (size_t i = f->plan.op_count; i-- > 0;) {
            if (f->ops[i].kind == ZEROD_REDUCE && f->ops[i].unit == FIRST) {
                f->plan.op_count = i; /* it is the last */
            }
        }
    } else if (is(f, "same-name")) {
        f->tensors[SECOND][0].name = "a";
    } else if (is(f, "other-dtype") && f->rank == 1) {
        f->model.param_dtype = ZEROD_BF16;
    } else if (is(f, "other-wire") && f->rank == 1) {
        f->model.wire_dtype = ZEROD_BF16;
    } else if (is(f, "rounding")) {
        shape_rounding(f);
    } else if (is(f, "infinite") || is(f, "floor")) {
        shape_scaled(f);
    } else if (is(f, "nans")) {
        f->model.optimizer = ZEROD_ADAMW;
        f->model.beta1 = 0.9;
        f->model.beta2 = 0.95;
        f->model.epsilon = 1e-8;
        f->check_values = false;
        f->lr = 0.01;
        f->steps = f->argument + GOOD_STEPS;
    } else if (is(f, "norm")) {
        f->clip = (double)f->argument * 0x1p-10;
        f->check_values = f->argument == 0;
    }
}

float mode_gradient(const struct field *f, unsigned rank, const struct zerod_try *t,
                    uint64_t micro_batch, unsigned unit) {
    if (is(f, "floor") || (is(f, "infinite") && rank == 1 && t->step == 2)) {
        return INFINITY;
    }
    if (is(f, "nans")) {
        return t->step <= f->argument ? NAN : 0.25f * (float)(t->step - f->argument);
    }
    if (is(f, "norm")) {
        return 0.125f * (float)(unit + 1);
    }
    if (is(f, "rounding")) {
        return 1;
    }
    return (float)((rank + 1) * (micro_batch + 1) + unit + t->step) * 0x1p-6f;
}

static bool is_wrong(const struct field *f, unsigned rank, uint64_t step, uint64_t attempt) {
    (void)f;
    return rank == 1 && step == 2 && attempt == 1;
}

bool mode_leaves_out(const struct field *f, unsigned rank, uint64_t step, uint64_t attempt,
                     uint64_t micro_batch, unsigned unit) {
    (void)micro_batch;
    if (is(f, "skips")) {
        return unit == SECOND && is_wrong(f, rank, step, attempt);
    }
    return is(f, "absent") && unit == EXPERT && (step == 4 || rank == step % f->world);
}

uint64_t mode_micro_batches(const struct field *f, const struct zerod_try *t) {
    return is(f, "early") && is_wrong(f, f->rank, t->step, t->attempt) ? 1 : f->model.micro_batches;
}

void mode_after_reduce(struct field *f, const struct zerod_try *t, uint32_t unit) {
    void *slot;
    if (is(f, "twice") && unit == SECOND && is_wrong(f, f->rank, t->step, t->attempt)) {
        expect(f, zerod_grad(f->z, SECOND, false, &slot), ZEROD_ALREADY_EXISTS, "second");
    }
    /* The last reduce of the plan. */
    if (is(f, "lingers") && unit == FIRST && is_wrong(f, f->rank, t->step, t->attempt)) {
        (void)sleep((unsigned)f->argument);
    }
}

/* In the last step: have bf16 parameters moved by all the updates before it? */
void mode_look(const struct field *f, const struct zerod_try *t, uint32_t unit,
               const void *params) {
    const float want = 1 - (ROUNDING_STEPS - 1) * 1e-5f;
    unsigned moved = 0;
    if (!is(f, "rounding") || t->step < f->steps || unit != FIRST) {
        return;
    }
    for (uint64_t i = 0; i < elements(FIRST, 0); i++) {
        uint16_t half;
        memcpy(&half, (const char *)params + 2 * i, sizeof half);
        const uint32_t bits = (uint32_t)half << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        moved += fabsf(x - want) <= 0x1p-9f && x < 1;
    }
    (void)printf("rank %u: %u of 70 elements moved\n", f->rank, moved);
    (void)fflush(stdout);
}

void mode_after_step(struct field *f, const struct zerod_try *t, const struct zerod_outcome *o) {
    if (o->user[0] != f->world * t->loss_scale) {
        fail(f, "ranks have different loss scales in step %llu: their sum is %g, mine %g",
             (unsigned long long)t->step, o->user[0], t->loss_scale);
    }
    if (is(f, "infinite") && (o->kind == ZEROD_SKIPPED) != (t->step == 2)) {
        fail(f, "step %llu was %s", (unsigned long long)t->step,
             o->kind == ZEROD_SKIPPED ? "skipped" : "committed");
    }
    if (is(f, "floor")) {
        (void)printf("rank %u: skipped with scale %g\n", f->rank, t->loss_scale);
    }
    if (is(f, "norm")) {
        (void)printf("rank %u: norm %.17g\n", f->rank, o->grad_norm);
    }
    if (is(f, "frozen")) {
        f->value[FIRST] = (float)FROZEN_VALUE; /* nothing advances it */
    }
    (void)fflush(stdout);
}

/* The part of the text that tells of the void try, of modes where every rank is told. */
static const char *void_part(const struct field *f) {
    return is(f, "skips") ? "second" : is(f, "early") ? "micro-batch" : NULL;
}

/* Whoever was between two calls when the try became void hears of it here. */
void mode_entered(struct field *f, const struct zerod_try *t) {
    if (void_part(f) && f->told == 0 && t->step == 2 && strstr(t->void_reason, "rank 1") &&
        strstr(t->void_reason, void_part(f))) {
        (void)printf("rank %u: FAILED_PRECONDITION: %s\n", f->rank, t->void_reason);
        (void)fflush(stdout);
        f->told++;
    }
}

void mode_voided(struct field *f, const struct zerod_try *t, int rc) {
    const char *part = void_part(f);
    if (!part || t->step != 2 || t->attempt != 1) {
        (void)printf("rank %u: %s: %s\n", f->rank, zerod_status_name(rc),
                     zerod_last_error(f->z)->text);
        (void)fflush(stdout);
        exit(1);
    }
    if (!strstr(zerod_last_error(f->z)->text, "rank 1")) {
        fail(f, "rank 1 is not named: %s", zerod_last_error(f->z)->text);
    }
    expect(f, rc, ZEROD_FAILED_PRECONDITION, part);
}

void mode_end(const struct field *f) {
    const bool all = is(f, "skips") || is(f, "early");
    const unsigned want = all || (is(f, "twice") && f->rank == 1) ? 1 : 0;
    if (f->told != want) {
        fail(f, "was told %u times, not %u", f->told, want);
    }
    if (is(f, "nans") && f->skipped != f->argument) {
        fail(f, "%llu steps were skipped, not %llu", (unsigned long long)f->skipped,
             (unsigned long long)f->argument);
    }
}
