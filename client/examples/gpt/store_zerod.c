/* A store that borrows from a zerod daemon: store.h's calls are libzerod's, texts and statuses are
 * passed on as they come. This is the whole of what a trainer needs to use zerod.
 */
#include <stdlib.h>
#include <string.h>

#include "client/zerod.h"
#include "store.h"

struct borrowed {
    struct store store;
    struct zerod *z;
};

static struct borrowed *self(struct store *s) {
    return (struct borrowed *)s;
}

/* zerod's codes are base/err.h's. */
static int pass(const struct borrowed *b, int rc, struct err *e) {
    if (rc == 0) {
        return 0;
    }
    const struct zerod_error *last = zerod_last_error(b->z);
    return err_set(e, (enum status) - rc, "%s", last->text);
}

static int borrowed_begin(struct store *s, struct store_try *t, struct err *e) {
    struct zerod_try z;
    const int rc = pass(self(s), zerod_begin(self(s)->z, &z), e);
    if (rc == 0) {
        *t = (struct store_try){.step = z.step,
                                .attempt = z.attempt,
                                .loading = z.loading,
                                .cursor = z.rank_cursor,
                                .cursor_bytes = z.rank_cursor_bytes,
                                .void_reason = z.void_reason};
    }
    return rc;
}

static int borrowed_gather(struct store *s, size_t unit, const void **params, struct err *e) {
    return pass(self(s), zerod_gather(self(s)->z, (uint32_t)unit, params), e);
}

static int borrowed_release(struct store *s, size_t unit, struct err *e) {
    return pass(self(s), zerod_release(self(s)->z, (uint32_t)unit), e);
}

/* Not zeroed: the backward pass writes every element of every tensor. */
static int borrowed_grad(struct store *s, size_t unit, float **grad, struct err *e) {
    return pass(self(s), zerod_grad(self(s)->z, (uint32_t)unit, false, grad), e);
}

static int borrowed_reduce(struct store *s, size_t unit, struct err *e) {
    return pass(self(s), zerod_reduce(self(s)->z, (uint32_t)unit), e);
}

static int borrowed_load(struct store *s, size_t unit, struct err *e) {
    return pass(self(s), zerod_load(self(s)->z, (uint32_t)unit), e);
}

static int borrowed_step(struct store *s, const struct store_step *step, struct store_outcome *o,
                         struct err *e) {
    struct zerod_step z;
    struct zerod_outcome outcome = {.kind = ZEROD_COMMITTED};
    if (step) {
        z = (struct zerod_step){.learning_rate = step->lr,
                                .clip = step->clip,
                                .user_count = 1,
                                .user = &step->loss,
                                .rank_cursor = step->cursor,
                                .rank_cursor_bytes = step->cursor_bytes};
    }
    const int rc = pass(self(s), zerod_step(self(s)->z, step ? &z : NULL, &outcome), e);
    if (rc == 0) {
        o->skipped = outcome.kind == ZEROD_SKIPPED;
        o->grad_norm = outcome.grad_norm;
        o->loss = outcome.user[0] / s->world;
    }
    return rc;
}

static int borrowed_begin_eval(struct store *s, struct err *e) {
    return pass(self(s), zerod_begin_eval(self(s)->z), e);
}

static int borrowed_end_eval(struct store *s, struct err *e) {
    return pass(self(s), zerod_end_eval(self(s)->z), e);
}

static uint64_t borrowed_elements(const struct store *s, size_t unit) {
    return zerod_unit_elements(((const struct borrowed *)s)->z, (uint32_t)unit);
}

static uint64_t borrowed_offset(const struct store *s, size_t unit, size_t tensor) {
    return zerod_tensor_offset(((const struct borrowed *)s)->z, (uint32_t)unit, (uint32_t)tensor);
}

/* The masters are the daemons': `zeroctl status` and zerorun's JSON have the hash. */
static bool borrowed_hash(const struct store *s, uint64_t *hash) {
    (void)s;
    (void)hash;
    return false;
}

static void borrowed_close(struct store *s, bool finished) {
    zerod_detach(self(s)->z, finished);
    free(s);
}

static const struct store_ops borrowed_ops = {
    .begin = borrowed_begin,
    .gather = borrowed_gather,
    .release = borrowed_release,
    .grad = borrowed_grad,
    .reduce = borrowed_reduce,
    .load = borrowed_load,
    .step = borrowed_step,
    .begin_eval = borrowed_begin_eval,
    .end_eval = borrowed_end_eval,
    .elements = borrowed_elements,
    .offset = borrowed_offset,
    .hash = borrowed_hash,
    .close = borrowed_close,
};

/* The model in zerod's words; lives until attach has copied it. */
struct description {
    size_t units;
    struct gpt_unit *unit;        /* [units] */
    struct zerod_unit *zunit;     /* [units] */
    struct zerod_tensor *ztensor; /* [units * GPT_UNIT_TENSORS] */
    struct zerod_op *train;       /* [3 * units] */
    struct zerod_op *eval;        /* [units] */
};

static void describe_units(struct description *d, const struct gpt_shape *shape) {
    for (size_t u = 0; u < d->units; u++) {
        struct zerod_tensor *list = d->ztensor + u * GPT_UNIT_TENSORS;
        gpt_describe(shape, u, &d->unit[u]);
        for (size_t i = 0; i < d->unit[u].count; i++) {
            const struct gpt_tensor *t = &d->unit[u].tensors[i];
            list[i] = (struct zerod_tensor){.name = t->name,
                                            .dims = t->dims,
                                            .shape = t->shape,
                                            .weight_decay_multiplier = t->decay};
        }
        d->zunit[u] = (struct zerod_unit){
            .name = d->unit[u].name, .tensor_count = d->unit[u].count, .tensors = list};
    }
}

/* Forward in order; backward in reverse order, each unit gathered again and reduced. */
static void describe_plans(struct description *d) {
    const uint32_t units = (uint32_t)d->units;
    for (uint32_t u = 0; u < units; u++) {
        const uint32_t last = units - 1 - u;
        d->train[u] = d->eval[u] = (struct zerod_op){ZEROD_GATHER, u};
        d->train[units + 2 * u] = (struct zerod_op){ZEROD_GATHER, last};
        d->train[units + 2 * u + 1] = (struct zerod_op){ZEROD_REDUCE, last};
    }
}

static int description_init(struct description *d, const struct gpt_shape *shape, struct err *e) {
    d->units = gpt_units(shape);
    d->unit = calloc(d->units, sizeof *d->unit);
    d->zunit = calloc(d->units, sizeof *d->zunit);
    d->ztensor = calloc(d->units * GPT_UNIT_TENSORS, sizeof *d->ztensor);
    d->train = calloc(3 * d->units, sizeof *d->train);
    d->eval = calloc(d->units, sizeof *d->eval);
    if (!d->unit || !d->zunit || !d->ztensor || !d->train || !d->eval) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to describe the model");
    }
    describe_units(d, shape);
    describe_plans(d);
    return 0;
}

static void description_free(struct description *d) {
    free(d->unit);
    free(d->zunit);
    free(d->ztensor);
    free(d->train);
    free(d->eval);
}

static int attach(struct borrowed *b, const struct store_config *c, const struct description *d,
                  struct err *e) {
    const struct zerod_plan plans[] = {{"train", 3 * d->units, d->train},
                                       {"eval", d->units, d->eval}};
    const struct zerod_model model = {
        .unit_count = d->units,
        .units = d->zunit,
        .plan_count = 2,
        .plans = plans,
        .param_dtype = c->dtype == DTYPE_NONE   ? 0
                       : c->dtype == DTYPE_BF16 ? ZEROD_BF16
                                                : ZEROD_FP32,
        .micro_batches = c->micro_batches,
        .beta1 = c->adamw.beta1,
        .beta2 = c->adamw.beta2,
        .epsilon = c->adamw.epsilon,
        .weight_decay = c->adamw.weight_decay,
    };
    struct zerod_error error;
    const int rc = zerod_attach(NULL, &model, &b->z, &error);
    if (rc < 0) {
        return err_set(e, (enum status) - rc, "%s", error.text);
    }
    b->store = (struct store){
        .ops = &borrowed_ops,
        .rank = zerod_rank(b->z),
        .world = zerod_world_size(b->z),
        .dtype = zerod_param_dtype(b->z) == ZEROD_BF16 ? DTYPE_BF16 : DTYPE_FP32,
    };
    return 0;
}

int store_zerod_open(const struct store_config *c, struct store **s, struct err *e) {
    struct description d = {0};
    struct borrowed *b = calloc(1, sizeof *b);
    int rc = b ? description_init(&d, &c->shape, e)
               : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the store");
    rc = rc == 0 ? attach(b, c, &d, e) : rc;
    description_free(&d);
    if (rc < 0) {
        free(b);
        return rc;
    }
    *s = &b->store;
    return 0;
}
