/* The training loop over a store that voids steps, loses its trainer or sees a gradient that is not
 * finite, at chosen calls. The whole program runs (trainer_main); below it lies a stand-alone store
 * that outlives the trainers, as a daemon does, behind a wrapper that also checks the declared
 * plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "client/examples/gpt/trainer.h"
#include "tests/base/suite.h"

enum { LAYERS = 2, UNITS = LAYERS + 2, PLAN = 3 * UNITS, NEVER = 1 << 30 };

static char text_path[] = "/tmp/zerod-train-text-XXXXXX";
static char json_path[] = "/tmp/zerod-train-json-XXXXXX";
static char dump_path[] = "/tmp/zerod-train-dump-XXXXXX";

static struct harness {
    struct store store; /* what the trainer sees */
    struct store *inner;
    int calls;           /* of operations, since the last reset */
    int void_at, die_at; /* call numbers */
    int poison_at;       /* this call, a reduce, finds a NaN in its slot */
    size_t position;     /* in the plan */
    float *slot;
    const char *void_reason;
} h;

static int disturb(struct err *e) {
    const int call = h.calls++;
    if (call == h.void_at) {
        h.void_reason = "planned by the test";
        return err_set(e, ST_ABORTED, "planned by the test");
    }
    return call == h.die_at ? err_set(e, ST_UNAVAILABLE, "this trainer dies") : 0;
}

/* Units in order, gathered; then backwards, each gathered and reduced. */
static void follow_plan(bool reduce, size_t unit) {
    const size_t at = h.position++ % PLAN;
    if (at < UNITS) {
        ck_assert(!reduce && unit == at);
    } else {
        ck_assert(reduce == ((at - UNITS) % 2 == 1) && unit == UNITS - 1 - (at - UNITS) / 2);
    }
}

static int wrapped_begin(struct store *s, struct store_try *t, struct err *e) {
    (void)s;
    h.position = 0;
    const int rc = h.inner->ops->begin(h.inner, t, e);
    t->void_reason = h.void_reason ? h.void_reason : "";
    h.void_reason = NULL;
    return rc;
}

static int wrapped_gather(struct store *s, size_t unit, const void **params, struct err *e) {
    (void)s;
    const int rc = disturb(e);
    if (rc == 0) {
        follow_plan(false, unit);
    }
    return rc < 0 ? rc : h.inner->ops->gather(h.inner, unit, params, e);
}

static int wrapped_release(struct store *s, size_t unit, struct err *e) {
    (void)s;
    const int rc = disturb(e);
    return rc < 0 ? rc : h.inner->ops->release(h.inner, unit, e);
}

static int wrapped_grad(struct store *s, size_t unit, float **grad, struct err *e) {
    (void)s;
    int rc = disturb(e);
    rc = rc < 0 ? rc : h.inner->ops->grad(h.inner, unit, grad, e);
    h.slot = rc == 0 ? *grad : NULL;
    return rc;
}

static int wrapped_reduce(struct store *s, size_t unit, struct err *e) {
    (void)s;
    if (h.calls == h.poison_at) {
        h.slot[0] = 0.0f / 0.0f;
    }
    const int rc = disturb(e);
    if (rc == 0) {
        follow_plan(true, unit);
    }
    return rc < 0 ? rc : h.inner->ops->reduce(h.inner, unit, e);
}

static int wrapped_initial(struct store *s, size_t unit, float **values, struct err *e) {
    (void)s;
    const int rc = disturb(e);
    return rc < 0 ? rc : h.inner->ops->initial(h.inner, unit, values, e);
}

static int wrapped_load(struct store *s, size_t unit, struct err *e) {
    (void)s;
    const int rc = disturb(e);
    return rc < 0 ? rc : h.inner->ops->load(h.inner, unit, e);
}

static int wrapped_step(struct store *s, const struct store_step *step, struct store_outcome *o,
                        struct err *e) {
    (void)s;
    const int rc = disturb(e);
    return rc < 0 ? rc : h.inner->ops->step(h.inner, step, o, e);
}

static int wrapped_begin_eval(struct store *s, struct err *e) {
    (void)s;
    return h.inner->ops->begin_eval(h.inner, e);
}

static int wrapped_end_eval(struct store *s, struct err *e) {
    (void)s;
    return h.inner->ops->end_eval(h.inner, e);
}

static uint64_t wrapped_elements(const struct store *s, enum store_part part, size_t unit) {
    (void)s;
    return h.inner->ops->elements(h.inner, part, unit);
}

static uint64_t wrapped_offset(const struct store *s, enum store_part part, size_t unit,
                               size_t tensor) {
    (void)s;
    return h.inner->ops->offset(h.inner, part, unit, tensor);
}

static bool wrapped_hash(const struct store *s, uint64_t *hash) {
    (void)s;
    return h.inner->ops->hash(h.inner, hash);
}

static void wrapped_close(struct store *s, bool finished) {
    (void)s;
    (void)finished;
}

static const struct store_ops wrapped_ops = {
    .begin = wrapped_begin,
    .gather = wrapped_gather,
    .release = wrapped_release,
    .grad = wrapped_grad,
    .reduce = wrapped_reduce,
    .initial = wrapped_initial,
    .load = wrapped_load,
    .step = wrapped_step,
    .begin_eval = wrapped_begin_eval,
    .end_eval = wrapped_end_eval,
    .elements = wrapped_elements,
    .offset = wrapped_offset,
    .hash = wrapped_hash,
    .close = wrapped_close,
};

static int wrapped_open(const struct store_config *c, struct store **s, struct err *e) {
    const int rc = h.inner ? 0 : store_standalone_open(c, &h.inner, e);
    if (rc == 0) {
        h.store = *h.inner;
        h.store.ops = &wrapped_ops;
        *s = &h.store;
    }
    return rc;
}

static int trainer(const char *dtype, const char *dump) {
    char *argv[] = {"gpt",
                    "--layers",
                    "2",
                    "--heads",
                    "2",
                    "--channels",
                    "16",
                    "--seq",
                    "8",
                    "--batch",
                    "2",
                    "--micro-batches",
                    "2",
                    "--steps",
                    "5",
                    "--quiet",
                    "--data",
                    text_path,
                    "--json",
                    json_path,
                    "--dtype",
                    (char *)dtype,
                    dump ? "--dump" : NULL,
                    dump_path,
                    NULL};
    const int argc = (int)(sizeof argv / sizeof *argv) - (dump ? 1 : 3);
    return trainer_main(argc, argv, "gpt", wrapped_open);
}

static void reset(void) {
    if (h.inner) {
        h.inner->ops->close(h.inner, true);
    }
    h = (struct harness){.void_at = NEVER, .die_at = NEVER, .poison_at = NEVER};
}

static uint64_t hash_now(void) {
    uint64_t hash = 0;
    ck_assert(h.inner->ops->hash(h.inner, &hash));
    return hash;
}

/* The JSON file up to the times, which differ. */
static void read_json(char *to, size_t size) {
    FILE *f = fopen(json_path, "r");
    ck_assert_ptr_nonnull(f);
    to[fread(to, 1, size - 1, f)] = '\0';
    fclose(f);
    char *end = strstr(to, "\"tokens_per_second\"");
    ck_assert_ptr_nonnull(end);
    *end = '\0';
}

static int undisturbed(uint64_t *hash, char *json, size_t size) {
    reset();
    ck_assert_int_eq(trainer("fp32", NULL), 0);
    *hash = hash_now();
    read_json(json, size);
    return h.calls;
}

START_TEST(void_steps_are_redone) {
    uint64_t hash;
    char want[4096], got[4096];
    const int calls = undisturbed(&hash, want, sizeof want);
    for (int at = 0; at < calls; at += 1 + at % 7) {
        reset();
        h.void_at = at;
        ck_assert_int_eq(trainer("fp32", NULL), 0);
        ck_assert_int_gt(h.calls, at);
        ck_assert_msg(hash_now() == hash, "hash differs after a void at call %d", at);
        read_json(got, sizeof got);
        ck_assert_str_eq(got, want); /* no loss twice, none missing */
    }
}
END_TEST

START_TEST(another_trainer_goes_on) {
    uint64_t hash;
    char want[4096], got[4096];
    const int calls = undisturbed(&hash, want, sizeof want);
    for (int at = 0; at < calls; at += 1 + at % 7) {
        reset();
        h.die_at = at;
        ck_assert_int_eq(trainer("fp32", NULL), 1);
        h.die_at = NEVER;
        ck_assert_int_eq(trainer("fp32", NULL), 0);
        ck_assert_msg(hash_now() == hash, "hash differs after a death at call %d", at);
    }
    read_json(got, sizeof got); /* the last death was in step 5 */
    ck_assert_ptr_nonnull(strstr(got, "\"first_step\": 5"));
}
END_TEST

START_TEST(another_text_is_refused) {
    reset();
    h.die_at = 200;
    ck_assert_int_eq(trainer("fp32", NULL), 1);
    h.die_at = NEVER;
    FILE *f = fopen(text_path, "a");
    fputs("one more line\n", f);
    fclose(f);
    ck_assert_int_eq(trainer("fp32", NULL), 1);
    ck_assert_int_eq(truncate(text_path, 5000), 0);
    ck_assert_int_eq(trainer("fp32", NULL), 0);
}
END_TEST

START_TEST(not_finite_is_skipped) {
    uint64_t hash;
    char want[4096], got[4096];
    const int calls = undisturbed(&hash, want, sizeof want);
    const int load = 2 * UNITS + 1, step = (calls - load) / 5;
    reset();
    /* Step 3, micro-batch 1: the second call from its end is the last unit's reduce. */
    h.poison_at = load + 3 * step - 2;
    ck_assert_int_eq(trainer("fp32", NULL), 0);
    ck_assert_uint_ne(hash_now(), hash);
    read_json(got, sizeof got);
    ck_assert_ptr_nonnull(strstr(got, "\"skipped\": 1"));
    ck_assert_ptr_nonnull(strstr(got, "null"));
}
END_TEST

START_TEST(bf16_is_redone_too) {
    reset();
    ck_assert_int_eq(trainer("bf16", dump_path), 0);
    const uint64_t hash = hash_now();
    reset();
    h.void_at = 100;
    ck_assert_int_eq(trainer("bf16", dump_path), 0);
    ck_assert(hash_now() == hash);
}
END_TEST

static bool make_files(void) {
    FILE *f = fdopen(mkstemp(text_path), "w");
    if (!f) {
        return false;
    }
    for (uint64_t i = 0; i < 5000; i++) {
        fputc("etaoin shrdlu\n"[mix64(i) % 14], f);
    }
    fclose(f);
    return close(mkstemp(json_path)) == 0 && close(mkstemp(dump_path)) == 0;
}

int main(void) {
    /* Each void and death says so on stderr: hundreds of lines here. */
    if (!make_files() || !freopen("/dev/null", "w", stderr)) {
        return EXIT_FAILURE;
    }
    Suite *s = suite_create("train");
    TCase *t = tcase_create("train");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, void_steps_are_redone);
    tcase_add_test(t, another_trainer_goes_on);
    tcase_add_test(t, another_text_is_refused);
    tcase_add_test(t, not_finite_is_skipped);
    tcase_add_test(t, bf16_is_redone_too);
    suite_add_tcase(s, t);
    const int rc = run_suite(s);
    unlink(text_path);
    unlink(json_path);
    unlink(dump_path);
    return rc;
}
