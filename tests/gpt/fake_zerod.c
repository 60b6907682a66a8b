/* zerod.h without daemons: one rank on top of the stand-alone store, so that gpt's own use of
 * libzerod (store_zerod.c: the registered model, plans, cursors, errors) is tested before and
 * beside the real thing. It ends the process with a message when the trainer leaves its plan or
 * registers another model than gpt's. GPT_FAKE_VOID=N answers ABORTED to the Nth call after the
 * loading. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/gpt/store.h"
#include "client/zerod.h"

struct zerod {
    struct store *store;
    struct zerod_error last;
    size_t units, op_count[2], position;
    struct zerod_op *ops[2]; /* train, eval */
    float **slots;           /* [units]: the gradient slot that is lent to each */
    bool eval;
    long calls, void_at;
};

#define REQUIRE(condition, ...)                                                                    \
    if (!(condition)) {                                                                            \
        fprintf(stderr, "fake zerod: " __VA_ARGS__);                                               \
        fputc('\n', stderr);                                                                       \
        abort();                                                                                   \
    }

static int keep(struct zerod *z, int rc, const struct err *e) {
    if (rc < 0) {
        z->last.code = e->code;
        snprintf(z->last.text, sizeof z->last.text, "%s", e->text);
    }
    return rc;
}

/* The ABORTED that was asked for, once. */
static int disturb(struct zerod *z) {
    struct err e;
    return z->calls++ == z->void_at ? keep(z, err_set(&e, ST_ABORTED, "fake void"), &e) : 0;
}

static void follow(struct zerod *z, enum zerod_collective kind, uint32_t unit) {
    const struct zerod_op *op = &z->ops[z->eval][z->position++ % z->op_count[z->eval]];
    REQUIRE(op->kind == kind && op->unit == unit, "operation %d on unit %u, the plan has %d on %u",
            (int)kind, unit, (int)op->kind, op->unit);
}

static void check_tensor(const struct zerod_tensor *t, const struct gpt_tensor *w) {
    REQUIRE(strcmp(t->name, w->name) == 0 && t->dims == w->dims &&
                memcmp(t->shape, w->shape, w->dims * sizeof *t->shape) == 0,
            "tensor %s is not %s", t->name, w->name);
    REQUIRE(t->weight_decay_multiplier == (t->dims == 2 ? 1.0f : 0.0f), "decay of %s", t->name);
    REQUIRE(w->tied == (t->alias != NULL) && (!t->alias || strcmp(t->alias, "embed.wte") == 0),
            "alias of %s", t->name);
}

static void check_unit(const struct zerod_unit *have, const struct gpt_unit *want, bool twice) {
    REQUIRE(strcmp(have->name, want->name) == 0 && have->tensor_count == want->count,
            "unit %s is not %s", have->name, want->name);
    REQUIRE(have->contributions == (twice ? 2 : 1), "%u contributions of %s", have->contributions,
            have->name);
    for (size_t i = 0; i < want->count; i++) {
        check_tensor(&have->tensors[i], &want->tensors[i]);
    }
}

static struct store_config config_of(const struct zerod_model *m) {
    const struct zerod_unit *head = &m->units[m->unit_count - 1];
    const uint64_t *wte = m->units[0].tensors[0].shape, *wpe = m->units[0].tensors[1].shape;
    const struct zerod_scaling *s = &m->scaling;
    const struct store_config c = {
        .shape = {.layers = m->unit_count - 2,
                  .heads = 1, /* no tensor's shape depends on it */
                  .channels = wte[1],
                  .seq = wpe[0],
                  .batch = 1,
                  .vocab = wte[0],
                  .tied = head->tensors[HEAD_W].alias != NULL},
        .dtype = (enum dtype)m->param_dtype,
        .micro_batches = m->micro_batches,
        .optimizer = {(enum optimizer)m->optimizer, m->beta1, m->beta2, m->epsilon, m->weight_decay,
                      m->momentum, m->nesterov, m->clip_value},
        .scaling = {s->dynamic, s->start, s->factor, s->floor, s->window, s->hysteresis},
        .initialised = m->units[0].tensors[0].init.kind != ZEROD_LOADED,
        .seed = m->units[0].tensors[0].init.seed,
    };
    for (size_t u = 0; u < m->unit_count; u++) {
        struct gpt_unit want;
        gpt_describe(&c.shape, u, &want);
        check_unit(&m->units[u], &want, c.shape.tied && u == 0);
    }
    return c;
}

int zerod_attach(const char *address, const struct zerod_model *model, struct zerod **z,
                 struct zerod_error *e) {
    REQUIRE(!address && model->plan_count == 2 && strcmp(model->plans[0].name, "train") == 0 &&
                strcmp(model->plans[1].name, "eval") == 0,
            "the plans are not train and eval");
    struct zerod *n = calloc(1, sizeof *n);
    struct err error;
    REQUIRE(n, "no memory");
    const struct store_config c = config_of(model);
    const int rc = store_standalone_open(&c, &n->store, &error);
    REQUIRE(rc == 0, "%s", error.text);
    for (size_t i = 0; i < 2; i++) {
        const struct zerod_plan *p = &model->plans[i];
        n->op_count[i] = p->op_count;
        n->ops[i] = calloc(p->op_count, sizeof *p->ops);
        REQUIRE(n->ops[i], "no memory");
        memcpy(n->ops[i], p->ops, p->op_count * sizeof *p->ops);
    }
    n->units = model->unit_count;
    n->slots = calloc(n->units, sizeof *n->slots);
    REQUIRE(n->slots, "no memory");
    const char *void_at = getenv("GPT_FAKE_VOID");
    n->void_at = void_at ? strtol(void_at, NULL, 10) : -1;
    *z = n;
    *e = (struct zerod_error){0};
    return 0;
}

void zerod_detach(struct zerod *z, bool finished) {
    if (!z) {
        return;
    }
    z->store->ops->close(z->store, finished);
    free(z->ops[0]);
    free(z->ops[1]);
    free(z->slots);
    free(z);
}

unsigned zerod_rank(const struct zerod *z) {
    return z->store->rank;
}

unsigned zerod_world_size(const struct zerod *z) {
    return z->store->world;
}

enum zerod_dtype zerod_param_dtype(const struct zerod *z) {
    return (enum zerod_dtype)z->store->dtype;
}

/* GPT_FAKE_WIRE=bf16: gradients come rounded, as a daemon with that wire would take them. */
static bool is_narrow(void) {
    const char *wire = getenv("GPT_FAKE_WIRE");
    return wire && strcmp(wire, "bf16") == 0;
}

enum zerod_dtype zerod_wire_dtype(const struct zerod *z) {
    (void)z;
    return is_narrow() ? ZEROD_BF16 : ZEROD_FP32;
}

static uint64_t element_of(const struct zerod *z, enum store_part part) {
    return part == STORE_PARAMS                    ? dtype_bytes(z->store->dtype)
           : part == STORE_GRADIENT && is_narrow() ? sizeof(uint16_t)
                                                   : sizeof(float);
}

static uint64_t bytes_of(const struct zerod *z, enum store_part part, uint32_t unit) {
    return z->store->ops->elements(z->store, part, unit) * element_of(z, part);
}

static uint64_t offset_of(const struct zerod *z, enum store_part part, uint32_t unit,
                          uint32_t tensor) {
    return z->store->ops->offset(z->store, part, unit, tensor) * element_of(z, part);
}

uint64_t zerod_param_bytes(const struct zerod *z, uint32_t unit) {
    return bytes_of(z, STORE_PARAMS, unit);
}

uint64_t zerod_grad_bytes(const struct zerod *z, uint32_t unit) {
    return bytes_of(z, STORE_GRADIENT, unit);
}

uint64_t zerod_initial_bytes(const struct zerod *z, uint32_t unit) {
    return bytes_of(z, STORE_INITIAL, unit);
}

uint64_t zerod_param_offset(const struct zerod *z, uint32_t unit, uint32_t tensor) {
    return offset_of(z, STORE_PARAMS, unit, tensor);
}

uint64_t zerod_grad_offset(const struct zerod *z, uint32_t unit, uint32_t tensor) {
    return offset_of(z, STORE_GRADIENT, unit, tensor);
}

uint64_t zerod_initial_offset(const struct zerod *z, uint32_t unit, uint32_t tensor) {
    return offset_of(z, STORE_INITIAL, unit, tensor);
}

const struct zerod_error *zerod_last_error(const struct zerod *z) {
    return &z->last;
}

int zerod_begin(struct zerod *z, struct zerod_try *t) {
    struct store_try s;
    struct err e;
    const int rc = keep(z, z->store->ops->begin(z->store, &s, &e), &e);
    *t = (struct zerod_try){.step = s.step,
                            .attempt = s.attempt,
                            .loading = s.loading,
                            .rank_cursor = s.cursor,
                            .rank_cursor_bytes = s.cursor_bytes,
                            .loss_scale = s.loss_scale,
                            .void_reason = z->last.text};
    z->position = 0;
    z->eval = false;
    z->calls = s.loading ? 0 : z->calls;
    return rc;
}

int zerod_gather(struct zerod *z, uint32_t unit, const void **params) {
    struct err e;
    const int rc = disturb(z);
    if (rc < 0) {
        return rc;
    }
    follow(z, ZEROD_GATHER, unit);
    return keep(z, z->store->ops->gather(z->store, unit, params, &e), &e);
}

int zerod_release(struct zerod *z, uint32_t unit) {
    struct err e;
    return keep(z, z->store->ops->release(z->store, unit, &e), &e);
}

/* The trainer must write every element: what is lent is full of NaN. */
static void poison(float *values, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        values[i] = 0.0f / 0.0f;
    }
}

int zerod_grad(struct zerod *z, uint32_t unit, bool zeroed, void **grad) {
    struct err e;
    REQUIRE(!zeroed, "a zeroed slot costs a pass over memory");
    float *slot = NULL;
    const int rc = keep(z, z->store->ops->grad(z->store, unit, &slot, &e), &e);
    if (rc < 0) {
        return rc;
    }
    poison(slot, z->store->ops->elements(z->store, STORE_GRADIENT, unit));
    z->slots[unit] = slot;
    *grad = slot;
    return 0;
}

/* In place from the back: what was written in 2 bytes an element is read before it is overwritten.
 */
static void widen(float *slot, uint64_t n) {
    for (uint64_t i = n; i-- > 0;) {
        uint16_t narrow;
        memcpy(&narrow, (const char *)slot + i * sizeof narrow, sizeof narrow);
        const uint32_t bits = (uint32_t)narrow << 16;
        memcpy(&slot[i], &bits, sizeof bits);
    }
}

int zerod_reduce(struct zerod *z, uint32_t unit) {
    struct err e;
    follow(z, ZEROD_REDUCE, unit);
    if (is_narrow()) {
        widen(z->slots[unit], z->store->ops->elements(z->store, STORE_GRADIENT, unit));
    }
    return keep(z, z->store->ops->reduce(z->store, unit, &e), &e);
}

int zerod_initial(struct zerod *z, uint32_t unit, float **values) {
    struct err e;
    const int rc = keep(z, z->store->ops->initial(z->store, unit, values, &e), &e);
    if (rc == 0) {
        poison(*values, z->store->ops->elements(z->store, STORE_INITIAL, unit));
    }
    return rc;
}

int zerod_load(struct zerod *z, uint32_t unit) {
    struct err e;
    return keep(z, z->store->ops->load(z->store, unit, &e), &e);
}

int zerod_step(struct zerod *z, const struct zerod_step *step, struct zerod_outcome *out) {
    struct err e;
    struct store_step s = {0};
    struct store_outcome o;
    int rc = step ? disturb(z) : 0;
    if (rc < 0) {
        return rc;
    }
    if (step) {
        REQUIRE(step->user_count == 1 && step->weight == 0, "one user number, the loss");
        s = (struct store_step){step->learning_rate, step->clip, step->user[0], step->rank_cursor,
                                step->rank_cursor_bytes};
    }
    rc = keep(z, z->store->ops->step(z->store, step ? &s : NULL, &o, &e), &e);
    if (rc == 0) {
        *out = (struct zerod_outcome){.kind = o.skipped ? ZEROD_SKIPPED : ZEROD_COMMITTED,
                                      .grad_norm = o.grad_norm,
                                      .loss_scale = 1, /* gpt takes it from zerod_begin */
                                      .user = {o.loss}};
    }
    return rc;
}

int zerod_begin_eval(struct zerod *z) {
    REQUIRE(z->position == 0 && !z->eval, "an eval pass after a train collective");
    z->eval = true;
    return 0;
}

int zerod_end_eval(struct zerod *z) {
    REQUIRE(z->eval && z->position == z->op_count[1], "an eval pass that is not its plan");
    z->eval = false;
    z->position = 0;
    return 0;
}
