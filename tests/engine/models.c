/* The models that the tests train. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "reference.h"

static unsigned number;

static struct tensor tensor_of(const char *unit, uint64_t size) {
    char name[32];
    (void)snprintf(name, sizeof name, "%s.%u", unit, number++);
    return model_tensor(name, 1, &size);
}

static void add(struct model *m, const struct tensor *t) {
    struct err e = {0};
    ck_assert_msg(!model_add_tensor(m, t, &e), "%s", e.text);
}

static void add_unit(struct model *m, const char *name, const uint64_t *sizes, size_t n) {
    ck_assert_int_eq(model_add_unit(m, name, 1, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        struct tensor t = tensor_of(name, sizes[i]);
        t.decay_multiplier = (float)(i % 3) * 0.5f;
        add(m, &t);
    }
}

static void add_plain(struct model *m, uint64_t n, bool large) {
    add_unit(m, "embedding", (uint64_t[]){large ? 100003 : 300, 0, 1}, 3);
    add_unit(m, "block0", (uint64_t[]){n > 1 ? n - 1 : 0, n, n + 1, 64, 65}, 5);
    add_unit(m, "block1", (uint64_t[]){large ? 70001 : 777, 3, 128 * n, 5}, 4);
    add_unit(m, "empty", (uint64_t[]){0}, 1);
    add_unit(m, "head", (uint64_t[]){1}, 1);
}

static struct tensor with_init(struct tensor t, enum init_kind kind, double a, double b) {
    t.init = (struct initializer){.kind = kind, .seed = 7, .a = a, .b = b};
    return t;
}

static struct tensor frozen(struct tensor t, enum dtype dtype) {
    t.frozen = true;
    t.dtype = dtype;
    return t;
}

static void add_mixed(struct model *m) {
    struct tensor t = tensor_of("mixed", 70);
    ck_assert_int_eq(model_add_unit(m, "mixed", 1, NULL), 0);
    t.lr_multiplier = 0.5f;
    add(m, &t);
    t = frozen(tensor_of("mixed", 129), DTYPE_NONE);
    add(m, &t);
    t = tensor_of("mixed", 65);
    t.dtype = DTYPE_FP32;
    t.decay_multiplier = 0;
    add(m, &t);
    t = with_init(frozen(tensor_of("mixed", 33), DTYPE_FP32), INIT_UNIFORM, -1, 1);
    add(m, &t);
    t = tensor_of("mixed", 100000);
    t.ignored = true;
    add(m, &t);
    t = with_init(tensor_of("mixed", 5000), INIT_NORMAL, 0.5, 0.02);
    t.lr_multiplier = 2;
    t.decay_multiplier = 0.25f;
    add(m, &t);
}

static void add_rich(struct model *m) {
    struct tensor t = with_init(tensor_of("embedding", 300), INIT_NORMAL, 0, 0.02);
    char shared[MODEL_NAME];
    memcpy(shared, t.name, sizeof shared);
    ck_assert_int_eq(model_add_unit(m, "embedding", 2, NULL), 0);
    add(m, &t);
    add_mixed(m);
    ck_assert_int_eq(model_add_unit(m, "expert", 1, NULL), 0);
    t = with_init(tensor_of("expert", 200), INIT_CONSTANT, 0.125, 0);
    t.absent_ok = true;
    add(m, &t);
    t = tensor_of("expert", 3);
    t.absent_ok = true;
    add(m, &t);
    ck_assert_int_eq(model_add_unit(m, "frozen", 1, NULL), 0);
    t = frozen(tensor_of("frozen", 77), DTYPE_NONE);
    add(m, &t);
    ck_assert_int_eq(model_add_unit(m, "tied", 1, NULL), 0);
    t = tensor_of("tied", 300);
    memcpy(t.alias, shared, sizeof shared);
    add(m, &t);
    t = with_init(tensor_of("tied", 10), INIT_ZEROS, 0, 0);
    add(m, &t);
}

static void add_made(struct model *m, bool trained) {
    for (int u = 0; u < 2; u++) {
        const char *name = u ? "second" : "first";
        ck_assert_int_eq(model_add_unit(m, name, 1, NULL), 0);
        struct tensor t = with_init(tensor_of(name, 5000), INIT_UNIFORM, -0.1, 0.1);
        t.frozen = !trained;
        add(m, &t);
        t = with_init(tensor_of(name, 70), INIT_CONSTANT, 1, 0);
        t.frozen = !trained;
        add(m, &t);
    }
}

static bool is_trained(const struct model *m, uint64_t unit) {
    const struct unit *u = &m->units[unit];
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        if (tensor_has_place(&m->tensors[i]) && !m->tensors[i].frozen) {
            return true;
        }
    }
    return false;
}

/* Not the train plan's: the second and third unit change places. */
static uint64_t other_order(const struct model *m, uint64_t u) {
    return m->unit_count < 3 || u == 0 || u > 2 ? u : 3 - u;
}

/* The last unit is gathered twice in a row; one with two contributions is reduced first, too. */
static void add_plans(struct model *m) {
    ck_assert_int_eq(model_add_plan(m, "train", NULL), 0);
    for (uint64_t u = 0; u < m->unit_count; u++) {
        ck_assert_int_eq(model_add_op(m, PLAN_GATHER, u, NULL), 0);
    }
    for (uint64_t u = 0; u < m->unit_count; u++) {
        for (uint32_t i = 1; i < m->units[u].contributions; i++) {
            ck_assert_int_eq(model_add_op(m, PLAN_REDUCE, u, NULL), 0);
        }
    }
    for (uint64_t u = m->unit_count; u-- > 0;) {
        ck_assert_int_eq(model_add_op(m, PLAN_GATHER, u, NULL), 0);
        if (is_trained(m, u)) {
            ck_assert_int_eq(model_add_op(m, PLAN_REDUCE, u, NULL), 0);
        }
    }
    ck_assert_int_eq(model_add_plan(m, "eval", NULL), 0);
    for (uint64_t u = 0; u < m->unit_count; u++) {
        ck_assert_int_eq(model_add_op(m, PLAN_GATHER, other_order(m, u), NULL), 0);
    }
}

void reference_model(struct model *m, unsigned ranks, const struct variant *v) {
    struct err e = {0};
    *m = (struct model){0};
    model_defaults(m);
    m->strategy = v->strategy;
    m->shard_size = v->shard_size;
    m->param_dtype = v->param ? v->param : DTYPE_FP32;
    m->wire_dtype = v->wire ? v->wire : DTYPE_FP32;
    m->kept_dtype = v->kept ? v->kept : DTYPE_FP32;
    m->micro_batches = v->micro_batches ? v->micro_batches : 1;
    m->optimizer.kind = v->optimizer ? v->optimizer : OPTIMIZER_ADAMW;
    m->optimizer.weight_decay = 0.1;
    m->optimizer.momentum = v->momentum;
    m->optimizer.nesterov = v->momentum > 0.9;
    m->optimizer.clip_value = v->clip_value;
    m->scaling.dynamic = m->param_dtype == DTYPE_FP16;
    number = 0;
    switch (v->shape) {
    case SHAPE_RICH:
        add_rich(m);
        break;
    case SHAPE_MADE:
    case SHAPE_FROZEN:
        add_made(m, v->shape == SHAPE_MADE);
        break;
    default:
        add_plain(m, ranks, v->shape == SHAPE_LARGE);
    }
    add_plans(m);
    ck_assert_msg(!model_check(m, &e), "%s", e.text);
}

bool reference_absent(uint64_t step, uint32_t batch, unsigned rank, uint32_t unit) {
    uint64_t h = mix64(mix64(mix64(step) ^ batch) ^ unit);
    return step % 3 == 0 || (mix64(h ^ rank) & 1); /* each third step on all ranks */
}
