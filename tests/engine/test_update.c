/* An update that is stopped between any two of its writes, and then continued, gives the bits of
 * one that was not stopped. What a stop in the middle of a write may leave is scribbled over first.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/update.h"
#include "tests/base/suite.h"
#include "reference.h"

enum { MAX_THREADS = 2, UNITS_MAX = 8 };

static struct model model;
static struct layout layout;
static struct places places;

struct shard { /* all that is adopted */
    float *master, *m, *v;
    uint16_t *copy;
    struct progress progress[MAX_THREADS];
    float scratch[MAX_THREADS * 4 * UPDATE_TILE];
    uint64_t version[UNITS_MAX];
};

static float *gradients;
static jmp_buf killed;
static uint64_t left; /* writes until the kill; 0: never */
static uint64_t writes;

static void count_writes(void *ctx) {
    (void)ctx;
    writes++;
    if (left && --left == 0) {
        longjmp(killed, 1);
    }
}

static void up(enum strategy s, enum dtype kept) {
    const uint64_t sizes[2][4] = {{9000, 1, 4096, 300}, {2 * 65536, 70, 0, 3000}};
    model = (struct model){0};
    model_defaults(&model);
    model.strategy = s;
    model.param_dtype = DTYPE_BF16;
    model.kept_dtype = kept;
    model.optimizer.weight_decay = 0.1;
    for (int u = 0; u < 2; u++) {
        char name[16];
        (void)snprintf(name, sizeof name, "u%d", u);
        ck_assert_int_eq(model_add_unit(&model, name, 1, NULL), 0);
        for (int t = 0; t < 4; t++) {
            (void)snprintf(name, sizeof name, "u%d.%d", u, t);
            struct tensor x = model_tensor(name, 1, &sizes[u][t]);
            x.decay_multiplier = (float)t * 0.5f;
            x.dtype = u == 1 && t == 1 ? DTYPE_FP16 : DTYPE_NONE; /* a range of its own */
            ck_assert_int_eq(model_add_tensor(&model, &x, NULL), 0);
        }
    }
    model.scaling.dynamic = true;
    ck_assert_int_eq(model_add_plan(&model, "train", NULL), 0);
    for (uint64_t u = 0; u < 2; u++) {
        ck_assert_int_eq(model_add_op(&model, PLAN_GATHER, u, NULL), 0);
        ck_assert_int_eq(model_add_op(&model, PLAN_REDUCE, u, NULL), 0);
    }
    ck_assert_int_eq(model_check(&model, NULL), 0);
    ck_assert_int_eq(layout_init(&layout, &model, 2, NULL), 0);
    places_init(&places, &layout, 1, UPDATE_TILE);
    gradients = calloc(layout.padded, sizeof *gradients);
    for (uint64_t i = 0; i < layout.padded; i++) {
        float g = reference_gradient(3, 0, 0, 0, i);
        uint16_t bits = (uint16_t)(mix64(i) & 0x3F80); /* finite as bf16, too */
        if (kept == DTYPE_FP32) {
            gradients[i] = g;
        } else {
            ((uint16_t *)(void *)gradients)[i] = bits;
        }
    }
}

static void down(void) {
    free(gradients);
    places_free(&places);
    layout_free(&layout);
    model_free(&model);
}

static void shard_init(struct shard *s) {
    size_t n = layout.padded;
    *s = (struct shard){0};
    s->master = calloc(n, sizeof(float));
    s->m = calloc(n, sizeof(float));
    s->v = calloc(n, sizeof(float));
    s->copy = calloc(n, sizeof *s->copy);
    for (size_t r = 0; r < layout.range_count; r++) {
        const struct pieces *q = &places.updated;
        for (size_t i = q->first[r]; i < q->first[r + 1]; i++) {
            for (uint64_t j = 0; j < q->list[i].count; j++) {
                uint64_t at = places.ranges[r].optimizer_at + q->list[i].range_offset + j;
                s->master[at] = reference_initial(at);
            }
        }
    }
}

static void shard_free(struct shard *s) {
    free(s->master);
    free(s->m);
    free(s->v);
    free(s->copy);
}

static struct update update_of(struct shard *s) {
    const struct kernels *list[3];
    return (struct update){.kernels = list[kernels_available(list) - 1],
                           .places = &places,
                           .master = s->master,
                           .state = {s->m, s->v},
                           .kept = gradients,
                           .held = (uint8_t *)s->copy,
                           .progress = s->progress,
                           .scratch = s->scratch,
                           .hook = count_writes};
}

/* Finishes step |step| on all units from wherever it is. */
static void apply(struct shard *s, uint64_t step, unsigned threads) {
    const struct step_scalars scalars =
        step_scalars(&model.optimizer, 1e6, 2, 1, 1e-2 / (double)step, step);
    struct update u = update_of(s);
    for (size_t unit = 0; unit < model.unit_count; unit++) {
        if (s->version[unit] != step) {
            update_resume(&u, unit, step, &scalars, threads);
            s->version[unit] = step;
            count_writes(NULL);
        }
    }
}

/* The tile that a thread was at: what it was writing when it died may be anything. */
static void scribble(struct shard *s, unsigned thread, uint64_t step) {
    struct progress *r = &s->progress[thread];
    size_t tiles = update_scratch_bytes(&model, 1) / sizeof(float);
    float *scratch = s->scratch + thread * tiles;
    bool ready = r->ready_step == step && !(r->done_step == step && r->done_tile == r->ready_tile);
    if (!ready) { /* it may have been computing the next tile into the scratch */
        memset(scratch, 0xA5, sizeof(float) * tiles);
        return;
    }
    size_t range = 0;
    while (range + 1 < layout.range_count && places.ranges[range + 1].first_tile <= r->ready_tile) {
        range++;
    }
    const struct place *p = &places.ranges[range];
    const struct pieces *q = &places.updated;
    uint64_t from = (r->ready_tile - p->first_tile) * UPDATE_TILE, to = from + UPDATE_TILE;
    for (size_t i = q->first[range]; i < q->first[range + 1]; i++) {
        for (uint64_t j = 0; j < q->list[i].count; j++) {
            uint64_t at = q->list[i].range_offset + j;
            if (at >= from && at < to) {
                s->master[p->optimizer_at + at] = -1e30f;
                s->m[p->optimizer_at + at] = -1e30f;
                s->v[p->optimizer_at + at] = -1e30f;
                s->copy[p->held_at / 2 + p->updated.from - p->held.from + at] = 0xA5A5;
            }
        }
    }
}

static void expect_equal(const struct shard *a, const struct shard *b, uint64_t at) {
    size_t n = layout.padded * sizeof(float);
    ck_assert_msg(!memcmp(a->master, b->master, n) && !memcmp(a->m, b->m, n) &&
                      !memcmp(a->v, b->v, n) && !memcmp(a->copy, b->copy, n / 2),
                  "stopped after write %lu: other bits", (unsigned long)at);
}

/* Two steps; in the second it is killed after |kill| writes, and |again| writes later once more. */
static void killed_run(struct shard *volatile s, unsigned volatile threads, uint64_t kill,
                       volatile uint64_t again) {
    left = 0;
    apply(s, 1, threads);
    left = kill;
    while (setjmp(killed)) {
        for (unsigned t = 0; t < threads; t++) {
            scribble(s, t, 2);
        }
        left = again;
        again = 0;
    }
    apply(s, 2, threads);
    left = 0;
}

START_TEST(stopped_anywhere) {
    const enum strategy strategies[] = {STRATEGY_ZERO3, STRATEGY_DDP, STRATEGY_ZERO1};
    up(strategies[_i % 3], _i % 2 ? DTYPE_BF16 : DTYPE_FP32);
    unsigned threads = 1 + (unsigned)_i / 3;
    struct shard *plain = malloc(sizeof *plain), *s = malloc(sizeof *s);
    shard_init(plain);
    apply(plain, 1, threads);
    writes = 0;
    apply(plain, 2, threads);
    uint64_t total = writes;
    ck_assert_uint_gt(total, 100);
    uint64_t stride = 1;
    for (uint64_t kill = 1; kill < total; kill += stride) {
        stride = kill < 110 ? 1 : 7;
        shard_init(s);
        killed_run(s, threads, kill, mix64(kill) % 40);
        expect_equal(plain, s, kill);
        shard_free(s);
    }
    shard_free(plain);
    free(plain);
    free(s);
    down();
}
END_TEST

int main(void) {
    Suite *s = suite_create("update");
    TCase *c = tcase_create("update");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, stopped_anywhere, 0, 6);
    suite_add_tcase(s, c);
    return run_suite(s);
}
