/* A whole trainer in one file, as another tree would have it: fits y = 3x + 1 on all ranks.
 *
 *     zerorun -n 2 -- example
 *
 * One unit of two tensors; each rank has points of its own, and the mean of their gradients moves
 * the shared weights. Prints the weights at the end; exit status 0 when they are near 3 and 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zerod.h>

enum { POINTS = 16, STEPS = 300 };

/* Names of the library's inside: they must not meet ours. */
int err_set(void);
int err_set(void) {
    return 1;
}

static struct zerod *z;

static _Noreturn void fail(const char *what, int code, const char *text) {
    (void)fprintf(stderr, "example: %s: %s: %s\n", what, zerod_status_name(code), text);
    exit(1);
}

static float value(const void *unit, uint64_t offset) {
    float x;
    memcpy(&x, (const char *)unit + offset, sizeof x);
    return x;
}

static int load(void) {
    float *values;
    struct zerod_outcome out;
    int rc = zerod_initial(z, 0, &values);
    if (!rc) {
        values[zerod_initial_offset(z, 0, 0) / sizeof *values] = 0;
        values[zerod_initial_offset(z, 0, 1) / sizeof *values] = 0;
        rc = zerod_load(z, 0);
    }
    return rc ? rc : zerod_step(z, NULL, &out);
}

static int train(float *w, float *b) {
    const void *params;
    void *slot;
    float dw = 0, db = 0;
    int rc = zerod_gather(z, 0, &params);
    if (rc) {
        return rc;
    }
    *w = value(params, zerod_param_offset(z, 0, 0));
    *b = value(params, zerod_param_offset(z, 0, 1));
    for (int i = 0; i < POINTS; i++) {
        const float x = (float)i / POINTS - 0.5f + 0.01f * (float)zerod_rank(z);
        const float error = *w * x + *b - (3 * x + 1);
        dw += 2 * error * x / POINTS;
        db += 2 * error / POINTS;
    }
    rc = zerod_release(z, 0);
    rc = rc ? rc : zerod_grad(z, 0, false, &slot);
    if (!rc) {
        memcpy((char *)slot + zerod_grad_offset(z, 0, 0), &dw, sizeof dw);
        memcpy((char *)slot + zerod_grad_offset(z, 0, 1), &db, sizeof db);
        rc = zerod_reduce(z, 0);
    }
    const struct zerod_step step = {.learning_rate = 0.05};
    struct zerod_outcome out;
    return rc ? rc : zerod_step(z, &step, &out);
}

int main(void) {
    const struct zerod_tensor tensors[] = {{.name = "w"}, {.name = "b"}};
    const struct zerod_unit unit = {.name = "line", .tensor_count = 2, .tensors = tensors};
    const struct zerod_op ops[] = {{ZEROD_GATHER, 0}, {ZEROD_REDUCE, 0}};
    const struct zerod_plan plan = {"train", 2, ops};
    const struct zerod_model model = {.unit_count = 1,
                                      .units = &unit,
                                      .plan_count = 1,
                                      .plans = &plan,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .epsilon = 1e-8};
    struct zerod_error e;
    float w = 0, b = 0;
    if (zerod_attach(NULL, &model, &z, &e)) {
        fail("attach", e.code, e.text);
    }
    for (;;) {
        struct zerod_try t;
        int rc = zerod_begin(z, &t);
        if (!rc && t.step > STEPS) {
            break;
        }
        rc = rc ? rc : t.loading ? load() : train(&w, &b);
        if (rc && rc != -ZEROD_ABORTED) {
            fail("training", rc, zerod_last_error(z)->text);
        }
    }
    (void)printf("rank %u of %u: y = %.3f x + %.3f\n", zerod_rank(z), zerod_world_size(z),
                 (double)w, (double)b);
    zerod_detach(z, true);
    return fabsf(w - 3) < 0.05f && fabsf(b - 1) < 0.05f ? 0 : 1;
}
