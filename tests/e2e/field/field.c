/* field MODE [ARGUMENT]: see field.h. Exit status 0: the mode saw what it must. */
#include "field.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t sizes[UNITS][TENSORS] = {{70, 5}, {33, 0}, {12, 1}};
static const char *const names[UNITS][TENSORS] = {{"a", "b"}, {"w", "v"}, {"e", "f"}};

bool is(const struct field *f, const char *mode) {
    return strcmp(f->mode, mode) == 0;
}

_Noreturn void fail(const struct field *f, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    (void)fprintf(stderr, "field %s, rank %u: ", f->mode, f->rank);
    (void)vfprintf(stderr, fmt, list);
    (void)fputc('\n', stderr);
    va_end(list);
    exit(1);
}

void expect(struct field *f, int rc, int code, const char *part) {
    const char *text = zerod_last_error(f->z)->text;
    (void)printf("rank %u: %s: %s\n", f->rank, zerod_status_name(rc), text);
    (void)fflush(stdout);
    if (rc != -code || !strstr(text, part)) {
        fail(f, "got %s, expected %s with \"%s\"", zerod_status_name(rc), zerod_status_name(code),
             part);
    }
    f->told++;
}

uint64_t elements(unsigned unit, unsigned tensor) {
    return sizes[unit][tensor];
}

static void shape(struct field *f) {
    static const char *const units[UNITS] = {"first", "second", "expert"};
    for (unsigned u = 0; u < UNITS; u++) {
        for (unsigned t = 0; t < TENSORS; t++) {
            f->tensors[u][t] = (struct zerod_tensor){.name = names[u][t],
                                                     .dims = 1,
                                                     .shape = &sizes[u][t],
                                                     .init = {.kind = ZEROD_ZEROS}};
        }
        f->units[u] = (struct zerod_unit){
            .name = units[u], .tensor_count = TENSORS, .tensors = f->tensors[u]};
        f->ops[f->plan.op_count++] = (struct zerod_op){ZEROD_GATHER, u};
    }
    for (uint32_t u = UNITS; u-- > 0;) {
        f->ops[f->plan.op_count++] = (struct zerod_op){ZEROD_GATHER, u};
        f->ops[f->plan.op_count++] = (struct zerod_op){ZEROD_REDUCE, u};
    }
    f->plan.name = "train";
    f->plan.ops = f->ops;
    f->model = (struct zerod_model){.unit_count = UNITS,
                                    .units = f->units,
                                    .plan_count = 1,
                                    .plans = &f->plan,
                                    .micro_batches = 1,
                                    .optimizer = ZEROD_SGD};
    f->lr = 1;
    f->check_values = true;
}

/* Every element is what it must be. */
static void look(const struct field *f, uint32_t unit, const void *params) {
    for (uint32_t t = 0; f->check_values && t < TENSORS; t++) {
        const float *p =
            (const float *)(const void *)((const char *)params + zerod_param_offset(f->z, unit, t));
        for (uint64_t i = 0; i < elements(unit, t); i++) {
            if (p[i] != f->value[unit]) {
                fail(f, "unit %u, tensor %u, element %llu is %.9g, expected %.9g", unit, t,
                     (unsigned long long)i, (double)p[i], (double)f->value[unit]);
            }
        }
    }
}

static int reduce(struct field *f, const struct zerod_try *t, uint64_t micro_batch, uint32_t unit) {
    void *slot;
    int rc = zerod_grad(f->z, unit, true, &slot);
    if (rc) {
        return rc;
    }
    const float g = mode_gradient(f, f->rank, t, micro_batch, unit);
    for (uint32_t i = 0; i < TENSORS; i++) {
        const uint64_t offset = zerod_grad_offset(f->z, unit, i);
        float *to = (float *)(void *)((char *)slot + offset);
        for (uint64_t j = 0; offset != ZEROD_NOWHERE && j < elements(unit, i); j++) {
            to[j] = g;
        }
    }
    rc = zerod_reduce(f->z, unit);
    if (!rc) {
        mode_after_reduce(f, t, unit);
    }
    return rc;
}

static int micro_batch(struct field *f, const struct zerod_try *t, uint64_t k) {
    for (uint32_t at = 0; at < 2 * UNITS; at++) {
        const uint32_t u = at < UNITS ? at : 2 * UNITS - 1 - at;
        const void *params;
        if (mode_leaves_out(f, f->rank, t->step, t->attempt, k, u)) {
            continue;
        }
        int rc = zerod_gather(f->z, u, &params);
        if (!rc) {
            look(f, u, params);
            mode_look(f, t, u, params);
            rc = zerod_release(f->z, u);
        }
        const bool reduces = at >= UNITS && zerod_grad_bytes(f->z, u) > 0;
        rc = rc || !reduces ? rc : reduce(f, t, k, u);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* What SGD with learning rate 1 makes of all ranks' gradients. */
static void advance(struct field *f, const struct zerod_try *t) {
    for (unsigned u = 0; u < UNITS; u++) {
        float sum = 0;
        for (unsigned r = 0; r < f->world; r++) {
            for (uint64_t k = 0; k < f->model.micro_batches; k++) {
                if (!mode_leaves_out(f, r, t->step, t->attempt, k, u)) {
                    sum += mode_gradient(f, r, t, k, u);
                }
            }
        }
        f->value[u] -= (float)f->lr * (sum / (float)f->world);
    }
}

static int train(struct field *f, const struct zerod_try *t) {
    struct zerod_outcome out;
    const double scale = t->loss_scale;
    const struct zerod_step step = {
        .learning_rate = f->lr, .clip = f->clip, .user_count = 1, .user = &scale};
    for (uint64_t k = 0; k < mode_micro_batches(f, t); k++) {
        int rc = micro_batch(f, t, k);
        if (rc) {
            return rc;
        }
    }
    int rc = zerod_step(f->z, &step, &out);
    if (rc) {
        return rc;
    }
    if (out.kind == ZEROD_COMMITTED) {
        advance(f, t);
    }
    f->skipped += out.kind == ZEROD_SKIPPED;
    mode_after_step(f, t, &out);
    return 0;
}

int main(int argc, char **argv) {
    static struct field f;
    struct zerod_error e;
    struct zerod_outcome out;
    if (argc < 2 || !getenv("RANK")) {
        (void)fprintf(stderr, "usage: zerorun ... -- field MODE [ARGUMENT]\n");
        return 2;
    }
    f.mode = argv[1];
    f.argument = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    f.rank = (unsigned)atoi(getenv("RANK"));
    f.world = (unsigned)atoi(getenv("WORLD_SIZE"));
    f.steps = 4;
    shape(&f);
    mode_shape(&f);
    if (zerod_attach(NULL, &f.model, &f.z, &e)) {
        (void)fprintf(stderr, "rank %u: %s: %s\n", f.rank, zerod_status_name(e.code), e.text);
        return 1;
    }
    for (;;) {
        struct zerod_try t;
        int rc = zerod_begin(f.z, &t);
        if (!rc && t.step > f.steps) {
            break;
        }
        if (!rc) {
            mode_entered(&f, &t);
        }
        rc = rc ? rc : t.loading ? zerod_step(f.z, NULL, &out) : train(&f, &t);
        if (rc) {
            mode_voided(&f, &t, rc);
        }
    }
    mode_end(&f);
    zerod_detach(f.z, true);
    return 0;
}
