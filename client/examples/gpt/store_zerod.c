/* A store that borrows from a zerod daemon: store.h's calls are libzerod's, texts and statuses are
 * passed on as they come. This is the whole of what a trainer needs to use zerod.
 */
#include <stdlib.h>
#include <string.h>

#include "client/zerod.h"
#include "kernels/kernels.h"
#include "store.h"

enum { OPEN_GRADIENTS = 2 };

/* A gradient that is computed in fp32 here and rounded into its slot at the end. */
struct wide_gradient {
    size_t unit;
    void *slot; /* NULL: free */
    float *values;
};

struct borrowed {
    struct store store;
    struct zerod *z;
    const struct kernels *k;
    bool narrow; /* the wire's gradients are bf16 */
    struct wide_gradient wide[OPEN_GRADIENTS];
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
    for (int i = 0; i < OPEN_GRADIENTS; i++) {
        self(s)->wide[i].slot = NULL; /* the try that they were of is over */
    }
    const int rc = pass(self(s), zerod_begin(self(s)->z, &z), e);
    if (rc == 0) {
        *t = (struct store_try){.step = z.step,
                                .attempt = z.attempt,
                                .loading = z.loading,
                                .cursor = z.rank_cursor,
                                .cursor_bytes = z.rank_cursor_bytes,
                                .loss_scale = z.loss_scale,
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

static uint64_t borrowed_elements(const struct store *s, enum store_part part, size_t unit) {
    const struct borrowed *b = (const struct borrowed *)s;
    const uint32_t u = (uint32_t)unit;
    switch (part) {
    case STORE_PARAMS:
        return zerod_param_bytes(b->z, u) / dtype_bytes(s->dtype);
    case STORE_GRADIENT:
        return zerod_grad_bytes(b->z, u) / (b->narrow ? sizeof(uint16_t) : sizeof(float));
    default:
        return zerod_initial_bytes(b->z, u) / sizeof(float);
    }
}

/* Not zeroed: the backward pass writes every element of every tensor. */
static int borrowed_grad(struct store *s, size_t unit, float **grad, struct err *e) {
    struct borrowed *b = self(s);
    void *slot = NULL;
    int rc = pass(b, zerod_grad(b->z, (uint32_t)unit, false, &slot), e);
    if (rc < 0 || !b->narrow) {
        *grad = slot;
        return rc;
    }
    struct wide_gradient *w = b->wide[0].slot ? &b->wide[1] : &b->wide[0];
    w->unit = unit;
    w->slot = slot;
    *grad = w->values;
    return 0;
}

static int borrowed_reduce(struct store *s, size_t unit, struct err *e) {
    struct borrowed *b = self(s);
    for (int i = 0; b->narrow && i < OPEN_GRADIENTS; i++) {
        struct wide_gradient *w = &b->wide[i];
        if (w->slot && w->unit == unit) {
            b->k->to_bf16(borrowed_elements(s, STORE_GRADIENT, unit), w->values, w->slot);
            w->slot = NULL;
            break;
        }
    }
    return pass(b, zerod_reduce(b->z, (uint32_t)unit), e);
}

static int borrowed_initial(struct store *s, size_t unit, float **values, struct err *e) {
    return pass(self(s), zerod_initial(self(s)->z, (uint32_t)unit, values), e);
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

/* A tensor's places are bytes on the wire. */
static uint64_t borrowed_offset(const struct store *s, enum store_part part, size_t unit,
                                size_t tensor) {
    const struct borrowed *b = (const struct borrowed *)s;
    const uint32_t u = (uint32_t)unit, t = (uint32_t)tensor;
    const uint64_t at = part == STORE_PARAMS     ? zerod_param_offset(b->z, u, t)
                        : part == STORE_GRADIENT ? zerod_grad_offset(b->z, u, t)
                                                 : zerod_initial_offset(b->z, u, t);
    const uint64_t element = part == STORE_PARAMS                  ? dtype_bytes(s->dtype)
                             : part == STORE_GRADIENT && b->narrow ? sizeof(uint16_t)
                                                                   : sizeof(float);
    return at == ZEROD_NOWHERE ? STORE_NOWHERE : at / element;
}

/* The masters are the daemons': `zeroctl status` and zerorun's JSON have the hash. */
static bool borrowed_hash(const struct store *s, uint64_t *hash) {
    (void)s;
    (void)hash;
    return false;
}

static void borrowed_close(struct store *s, bool finished) {
    zerod_detach(self(s)->z, finished);
    for (int i = 0; i < OPEN_GRADIENTS; i++) {
        free(self(s)->wide[i].values);
    }
    free(s);
}

static const struct store_ops borrowed_ops = {
    .begin = borrowed_begin,
    .gather = borrowed_gather,
    .release = borrowed_release,
    .grad = borrowed_grad,
    .reduce = borrowed_reduce,
    .initial = borrowed_initial,
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
    size_t train_ops;
    struct zerod_op *train; /* [3 * units + 3] */
    struct zerod_op *eval;  /* [units] */
};

static struct zerod_tensor describe_tensor(const struct gpt_tensor *t, const char *embedding,
                                           const struct store_config *c) {
    struct zerod_tensor to = {
        .name = t->name, .dims = t->dims, .shape = t->shape, .weight_decay_multiplier = t->decay};
    if (t->tied) {
        to.alias = embedding;
    } else if (c->initialised) {
        to.init = t->deviation > 0 ? (struct zerod_init){ZEROD_NORMAL, c->seed, (double)t->constant,
                                                         (double)t->deviation}
                                   : (struct zerod_init){ZEROD_CONSTANT, 0, (double)t->constant, 0};
    }
    return to;
}

/* A tied model reduces embed twice: the head's part, then its own. */
static void describe_units(struct description *d, const struct store_config *c) {
    for (size_t u = 0; u < d->units; u++) {
        struct zerod_tensor *list = d->ztensor + u * GPT_UNIT_TENSORS;
        gpt_describe(&c->shape, u, &d->unit[u]);
        for (size_t i = 0; i < d->unit[u].count; i++) {
            list[i] =
                describe_tensor(&d->unit[u].tensors[i], d->unit[0].tensors[EMBED_WTE].name, c);
        }
        d->zunit[u] = (struct zerod_unit){.name = d->unit[u].name,
                                          .tensor_count = d->unit[u].count,
                                          .tensors = list,
                                          .contributions = c->shape.tied && u == 0 ? 2 : 1};
    }
}

static void plan(struct description *d, enum zerod_collective kind, uint32_t unit) {
    d->train[d->train_ops++] = (struct zerod_op){kind, unit};
}

/* Forward in order; backward in reverse order, each unit gathered again and reduced. A tied head is
 * computed with embed beside it. Recomputation changes nothing here: a block's forward runs again
 * under the gather of its backward. */
static void describe_plans(struct description *d, bool tied) {
    const uint32_t units = (uint32_t)d->units, head = units - 1;
    for (uint32_t u = 0; u < units; u++) {
        if (tied && u == head) {
            plan(d, ZEROD_GATHER, 0);
        }
        plan(d, ZEROD_GATHER, u);
        d->eval[u] = (struct zerod_op){ZEROD_GATHER, u};
    }
    for (uint32_t u = units; u-- > 0;) {
        const bool both = tied && u == head;
        if (both) {
            plan(d, ZEROD_GATHER, 0);
        }
        plan(d, ZEROD_GATHER, u);
        plan(d, ZEROD_REDUCE, u);
        if (both) {
            plan(d, ZEROD_REDUCE, 0);
        }
    }
}

static int description_init(struct description *d, const struct store_config *c, struct err *e) {
    d->units = gpt_units(&c->shape);
    d->unit = calloc(d->units, sizeof *d->unit);
    d->zunit = calloc(d->units, sizeof *d->zunit);
    d->ztensor = calloc(d->units * GPT_UNIT_TENSORS, sizeof *d->ztensor);
    d->train = calloc(3 * d->units + 3, sizeof *d->train);
    d->eval = calloc(d->units, sizeof *d->eval);
    if (!d->unit || !d->zunit || !d->ztensor || !d->train || !d->eval) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to describe the model");
    }
    describe_units(d, c);
    describe_plans(d, c->shape.tied);
    return 0;
}

static void description_free(struct description *d) {
    free(d->unit);
    free(d->zunit);
    free(d->ztensor);
    free(d->train);
    free(d->eval);
}

/* Values are those of zerod.h on both sides. */
static enum zerod_optimizer optimizer_of(const struct optimizer_options *o) {
    return (enum zerod_optimizer)o->kind;
}

static struct zerod_model model_of(const struct store_config *c, const struct description *d,
                                   const struct zerod_plan plans[2]) {
    const struct optimizer_options *o = &c->optimizer;
    return (struct zerod_model){
        .unit_count = d->units,
        .units = d->zunit,
        .plan_count = 2,
        .plans = plans,
        .param_dtype = (enum zerod_dtype)c->dtype,
        .micro_batches = c->micro_batches,
        .optimizer = optimizer_of(o),
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .epsilon = o->epsilon,
        .weight_decay = o->weight_decay,
        .momentum = o->momentum,
        .nesterov = o->nesterov,
        .clip_value = o->clip_value,
        .scaling = {c->scaling.dynamic, c->scaling.start, c->scaling.factor, c->scaling.floor,
                    c->scaling.window, c->scaling.hysteresis},
    };
}

static int take_wide(struct borrowed *b, size_t units, struct err *e) {
    uint64_t largest = 0;
    for (size_t u = 0; u < units; u++) {
        const uint64_t n = borrowed_elements(&b->store, STORE_GRADIENT, u);
        largest = n > largest ? n : largest;
    }
    for (int i = 0; i < OPEN_GRADIENTS; i++) {
        b->wide[i].values = calloc(largest + 1, sizeof(float));
        if (!b->wide[i].values) {
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a gradient of %ju elements",
                           (uintmax_t)largest);
        }
    }
    return kernels_select(NULL, &b->k, e);
}

static int attach(struct borrowed *b, const struct store_config *c, const struct description *d,
                  struct err *e) {
    const struct zerod_plan plans[] = {{"train", d->train_ops, d->train},
                                       {"eval", d->units, d->eval}};
    const struct zerod_model model = model_of(c, d, plans);
    struct zerod_error error;
    const int rc = zerod_attach(NULL, &model, &b->z, &error);
    if (rc < 0) {
        return err_set(e, (enum status) - rc, "%s", error.text);
    }
    b->store = (struct store){
        .ops = &borrowed_ops,
        .rank = zerod_rank(b->z),
        .world = zerod_world_size(b->z),
        .dtype = (enum dtype)zerod_param_dtype(b->z),
    };
    b->narrow = zerod_wire_dtype(b->z) == ZEROD_BF16;
    return b->narrow ? take_wide(b, d->units, e) : 0;
}

int store_zerod_open(const struct store_config *c, struct store **s, struct err *e) {
    struct description d = {0};
    struct borrowed *b = calloc(1, sizeof *b);
    int rc = b ? description_init(&d, c, e)
               : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the store");
    rc = rc == 0 ? attach(b, c, &d, e) : rc;
    description_free(&d);
    if (rc < 0) {
        if (b) {
            borrowed_close(&b->store, false);
        }
        return rc;
    }
    *s = &b->store;
    return 0;
}
