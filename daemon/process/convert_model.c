/* A registered model, from the wire's message to layout/'s struct. What 0 means in a field is
 * filled in here; what the numbers mean is judged by model_check. */
#include "process/convert.h"

#include <stdio.h>
#include <string.h>

static int take_alias(struct tensor *to, const char *alias, struct err *e) {
    if (strlen(alias) >= sizeof to->alias) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor %.64s: the name of its alias has %zu bytes, the limit is %zu",
                       to->name, strlen(alias), sizeof to->alias - 1);
    }
    (void)snprintf(to->alias, sizeof to->alias, "%s", alias);
    return 0;
}

static int add_tensor(struct model *m, const Zerod__V1__Tensor *t, struct err *e) {
    if (t->n_shape > MODEL_DIMS) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor %.64s has %zu dimensions, the limit is %d",
                       t->name, t->n_shape, MODEL_DIMS);
    }
    struct tensor to = model_tensor(t->name, t->n_shape, t->shape);
    to.decay_multiplier = t->weight_decay_multiplier;
    to.lr_multiplier = t->lr_multiplier == 0 ? 1 : t->lr_multiplier;
    to.frozen = t->frozen;
    to.ignored = t->ignored;
    to.absent_ok = t->absent_ok;
    to.dtype = (enum dtype)t->dtype;
    if (t->init) {
        to.init = (struct initializer){(enum init_kind)t->init->kind, t->init->seed, t->init->a,
                                       t->init->b};
    }
    int code = take_alias(&to, t->alias, e);
    return code ? code : model_add_tensor(m, &to, e);
}

static int add_unit(struct model *m, const Zerod__V1__Unit *u, struct err *e) {
    int code = model_add_unit(m, u->name, u->contributions ? u->contributions : 1, e);
    for (size_t i = 0; code == 0 && i < u->n_tensors; i++) {
        code = add_tensor(m, u->tensors[i], e);
    }
    return code;
}

static int add_plan(struct model *m, const Zerod__V1__Plan *p, struct err *e) {
    int code = model_add_plan(m, p->name, e);
    for (size_t i = 0; code == 0 && i < p->n_ops; i++) {
        if (p->ops[i]->kind != ZEROD__V1__COLLECTIVE__COLLECTIVE_GATHER &&
            p->ops[i]->kind != ZEROD__V1__COLLECTIVE__COLLECTIVE_REDUCE) {
            return err_set(e, ST_INVALID_ARGUMENT, "plan %.64s, position %zu: kind %d is unknown",
                           p->name, i, (int)p->ops[i]->kind);
        }
        code = model_add_op(m, (enum plan_kind)p->ops[i]->kind, p->ops[i]->unit, e);
    }
    return code;
}

/* ---- what a daemon was started with ---- */

static int take_strategy(struct model *m, const struct model_defaults *d, struct err *e) {
    if (m->strategy == STRATEGY_NONE) {
        m->strategy = d->strategy;
    }
    if (m->strategy != d->strategy) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the trainer asks for strategy %s, the daemon was started with %s",
                       strategy_name(m->strategy), strategy_name(d->strategy));
    }
    if (m->shard_size == 0) {
        m->shard_size = d->shard_size;
    }
    if (d->shard_size && m->shard_size != d->shard_size) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the trainer asks for shard size %u, the daemon was started with %u",
                       m->shard_size, d->shard_size);
    }
    return 0;
}

/* The trainer's own word where the daemon was started with none; fp32 when there is no word. */
static int take_dtype(enum dtype *asked, enum dtype own, const char *of, struct err *e) {
    if (*asked == DTYPE_NONE) {
        *asked = own == DTYPE_NONE ? DTYPE_FP32 : own;
    }
    if (own != DTYPE_NONE && *asked != own) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the trainer asks for %s %s, the daemon was started with %s",
                       dtype_name(*asked), of, dtype_name(own));
    }
    return 0;
}

static int take_defaults(struct model *m, const struct model_defaults *d, struct err *e) {
    int code = take_strategy(m, d, e);
    code = code ? code : take_dtype(&m->param_dtype, d->param_dtype, "parameters", e);
    code = code ? code : take_dtype(&m->wire_dtype, d->wire_dtype, "gradients on the wire", e);
    return code ? code : take_dtype(&m->kept_dtype, d->kept_dtype, "kept gradients", e);
}

/* ---- the whole ---- */

static struct loss_scaling scaling_from_message(const Zerod__V1__LossScaling *s) {
    if (!s) {
        return (struct loss_scaling){0};
    }
    return (struct loss_scaling){.dynamic = s->dynamic,
                                 .start = s->start,
                                 .factor = s->factor,
                                 .floor = s->floor,
                                 .window = s->window,
                                 .hysteresis = s->hysteresis};
}

/* A dtype number beyond those known would index tables: refused before it is kept. */
static int check_dtypes(const Zerod__V1__Model *m, struct err *e) {
    const Zerod__V1__Dtype all[] = {m->param_dtype, m->wire_dtype, m->kept_dtype};
    static const char *const names[] = {"param_dtype", "wire_dtype", "kept_dtype"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if ((int)all[i] < DTYPE_NONE || (int)all[i] > DTYPE_FP16) {
            return err_set(e, ST_INVALID_ARGUMENT, "%s %d is unknown: 1 fp32, 2 bf16, 3 fp16",
                           names[i], (int)all[i]);
        }
    }
    return 0;
}

int model_from_message(const Zerod__V1__Model *from, const struct model_defaults *d,
                       struct model *m, struct err *e) {
    *m = (struct model){0};
    int code = check_dtypes(from, e);
    if (code) {
        return code;
    }
    *m = (struct model){
        .strategy = (enum strategy)from->strategy,
        .shard_size = from->shard_size,
        .param_dtype = (enum dtype)from->param_dtype,
        .wire_dtype = (enum dtype)from->wire_dtype,
        .kept_dtype = (enum dtype)from->kept_dtype,
        .micro_batches = from->micro_batches ? from->micro_batches : 1,
        .optimizer = {.kind = from->optimizer ? (enum optimizer)from->optimizer : OPTIMIZER_ADAMW,
                      .beta1 = from->beta1,
                      .beta2 = from->beta2,
                      .epsilon = from->epsilon,
                      .weight_decay = from->weight_decay,
                      .momentum = from->momentum,
                      .nesterov = from->nesterov,
                      .clip_value = from->clip_value},
        .gradient_divisor = from->gradient_divisor,
        .scaling = scaling_from_message(from->scaling),
    };
    for (size_t i = 0; code == 0 && i < from->n_units; i++) {
        code = add_unit(m, from->units[i], e);
    }
    for (size_t i = 0; code == 0 && i < from->n_plans; i++) {
        code = add_plan(m, from->plans[i], e);
    }
    if (code == 0 && d) {
        code = take_defaults(m, d, e);
    }
    return code ? code : model_check(m, e);
}

void model_fill_message(const struct model *m, Zerod__V1__Model *to) {
    to->strategy = (Zerod__V1__Strategy)m->strategy;
    to->shard_size = m->shard_size;
    to->param_dtype = (Zerod__V1__Dtype)m->param_dtype;
    to->wire_dtype = (Zerod__V1__Dtype)m->wire_dtype;
    to->kept_dtype = (Zerod__V1__Dtype)m->kept_dtype;
    to->micro_batches = m->micro_batches;
}
