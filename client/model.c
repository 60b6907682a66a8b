/* The trainer's model, checked as far as pointers and limits go, as a message. What the numbers
 * mean (plans, betas, equal names) is judged by the daemon, in one place for every language. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

/* A name's limits. |what| and |index| say whose. */
static int check_name(const char *name, const char *what, size_t index, const char *of,
                      struct err *e) {
    if (!name || !name[0]) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s %zu%s%s has no name", what, index,
                       of ? " of " : "", of ? of : "");
    }
    size_t length = strnlen(name, MODEL_NAME);
    if (length >= MODEL_NAME) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the name of %s %zu, '%.40s...', is longer than %d "
                       "bytes",
                       what, index, name, MODEL_NAME - 1);
    }
    return 0;
}

static int check_count(uint64_t n, uint64_t least, uint64_t most, const char *what, struct err *e) {
    if (n < least) {
        return err_set(e, ST_INVALID_ARGUMENT, "the model has no %s", what);
    }
    if (n > most) {
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the model has %" PRIu64 " %s, the limit is %" PRIu64, n, what, most);
    }
    return 0;
}

/* 0 is the daemon's own (a tensor's: the model's). */
static int check_dtype(int dtype, int most, const char *of, struct err *e) {
    if (dtype >= 0 && dtype <= most) {
        return 0;
    }
    return err_set(e, ST_INVALID_ARGUMENT, "dtype %d of %s: must be fp32 (%d)%s bf16 (%d)%s", dtype,
                   of, ZEROD_FP32, most == ZEROD_FP16 ? "," : " or", ZEROD_BF16,
                   most == ZEROD_FP16 ? " or fp16 (3)" : "");
}

static int check_tensor(const struct zerod_tensor *t, size_t index, const char *unit,
                        struct err *e) {
    int rc = check_name(t->name, "tensor", index, unit, e);
    if (rc) {
        return rc;
    }
    if (t->dims > MODEL_DIMS) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor '%s' has %" PRIu32 " dimensions, the limit "
                       "is %d",
                       t->name, t->dims, MODEL_DIMS);
    }
    if (t->dims && !t->shape) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor '%s' has no shape", t->name);
    }
    if (tensor_elements(t) > MODEL_MAX_ELEMENTS) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor '%s' has more than %" PRIu64 " elements",
                       t->name, MODEL_MAX_ELEMENTS);
    }
    if (t->alias && strnlen(t->alias, MODEL_NAME) >= MODEL_NAME) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor '%s': the name of its alias is longer than %d bytes", t->name,
                       MODEL_NAME - 1);
    }
    if ((int)t->init.kind < ZEROD_LOADED || (int)t->init.kind > ZEROD_UNIFORM) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor '%s': initialiser %d is unknown", t->name,
                       (int)t->init.kind);
    }
    return check_dtype((int)t->dtype, ZEROD_FP16, t->name, e);
}

uint64_t tensor_elements(const struct zerod_tensor *t) {
    uint64_t n = 1;
    bool large = false;
    for (uint32_t d = 0; d < t->dims; d++) {
        if (t->shape[d] == 0) {
            return 0;
        }
        if (large || t->shape[d] > UINT64_MAX / n) {
            large = true; /* a later 0 still makes it nothing */
            continue;
        }
        n *= t->shape[d];
    }
    return large ? UINT64_MAX : n;
}

static int check_units(const struct zerod_model *m, uint64_t *tensors, struct err *e) {
    int rc = check_count(m->unit_count, 1, MODEL_MAX_UNITS, "units", e);
    if (rc) {
        return rc;
    }
    if (!m->units) {
        return err_set(e, ST_INVALID_ARGUMENT, "the model's units are NULL");
    }
    for (size_t i = 0; i < m->unit_count; i++) {
        const struct zerod_unit *u = &m->units[i];
        rc = check_name(u->name, "unit", i, NULL, e);
        if (rc) {
            return rc;
        }
        if (u->tensor_count && !u->tensors) {
            return err_set(e, ST_INVALID_ARGUMENT, "the tensors of unit '%s' are NULL", u->name);
        }
        *tensors += u->tensor_count;
        rc = check_count(u->tensor_count > MODEL_MAX_TENSORS ? u->tensor_count : *tensors, 0,
                         MODEL_MAX_TENSORS, "tensors", e);
        for (size_t t = 0; !rc && t < u->tensor_count; t++) {
            rc = check_tensor(&u->tensors[t], t, u->name, e);
        }
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static int check_op(const struct zerod_model *m, const struct zerod_plan *p, size_t i,
                    struct err *e) {
    const struct zerod_op *op = &p->ops[i];
    if (op->kind != ZEROD_GATHER && op->kind != ZEROD_REDUCE) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "plan '%s': operation %zu is of kind %d, neither "
                       "gather nor reduce",
                       p->name, i, (int)op->kind);
    }
    if (op->unit >= m->unit_count) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "plan '%s': operation %zu is on unit %" PRIu32 ", the model has %zu",
                       p->name, i, op->unit, m->unit_count);
    }
    return 0;
}

static int check_plans(const struct zerod_model *m, size_t *ops, struct err *e) {
    int rc = check_count(m->plan_count, 1, MODEL_MAX_PLANS, "plans", e);
    if (rc) {
        return rc;
    }
    if (!m->plans) {
        return err_set(e, ST_INVALID_ARGUMENT, "the model's plans are NULL");
    }
    for (size_t i = 0; i < m->plan_count; i++) {
        const struct zerod_plan *p = &m->plans[i];
        rc = check_name(p->name, "plan", i, NULL, e);
        if (!rc) {
            rc = check_count(p->op_count, 0, MODEL_MAX_PLAN_OPS, "operations in a plan", e);
        }
        if (!rc && p->op_count && !p->ops) {
            rc = err_set(e, ST_INVALID_ARGUMENT, "the operations of plan '%s' are NULL", p->name);
        }
        for (size_t o = 0; !rc && o < p->op_count; o++) {
            rc = check_op(m, p, o, e);
        }
        if (rc) {
            return rc;
        }
        *ops += p->op_count;
    }
    return 0;
}

static int parse_strategy(const char *name, Zerod__V1__Strategy *strategy, struct err *e) {
    static const struct {
        const char *name;
        Zerod__V1__Strategy value;
    } known[] = {
        {"ddp", ZEROD__V1__STRATEGY__STRATEGY_DDP},
        {"zero1", ZEROD__V1__STRATEGY__STRATEGY_ZERO1},
        {"zero2", ZEROD__V1__STRATEGY__STRATEGY_ZERO2},
        {"zero3", ZEROD__V1__STRATEGY__STRATEGY_ZERO3},
        {"full_shard", ZEROD__V1__STRATEGY__STRATEGY_ZERO3},
        {"hybrid_shard", ZEROD__V1__STRATEGY__STRATEGY_HYBRID_SHARD},
        {"hybrid_zero2", ZEROD__V1__STRATEGY__STRATEGY_HYBRID_ZERO2},
    };
    *strategy = ZEROD__V1__STRATEGY__STRATEGY_UNSPECIFIED;
    if (!name) {
        return 0;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) == 0) {
            *strategy = known[i].value;
            return 0;
        }
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "unknown strategy '%.40s': ddp, zero1, zero2, zero3 (full_shard), hybrid_shard "
                   "or hybrid_zero2",
                   name);
}

static int check_scalars(const struct zerod_model *m, struct err *e) {
    int rc = check_dtype((int)m->param_dtype, ZEROD_FP16, "param_dtype", e);
    rc = rc ? rc : check_dtype((int)m->wire_dtype, ZEROD_BF16, "wire_dtype", e);
    rc = rc ? rc : check_dtype((int)m->kept_dtype, ZEROD_BF16, "kept_dtype", e);
    if (rc) {
        return rc;
    }
    if ((int)m->optimizer < 0 || m->optimizer > ZEROD_LION) {
        return err_set(e, ST_INVALID_ARGUMENT, "optimizer %d is unknown", (int)m->optimizer);
    }
    if (m->micro_batches > MODEL_MAX_MICRO_BATCHES) {
        return err_set(e, ST_INVALID_ARGUMENT, "%" PRIu32 " micro-batches, the limit is %d",
                       m->micro_batches, MODEL_MAX_MICRO_BATCHES);
    }
    return 0;
}

/* protobuf-c has no const, and only reads */
static char *as_text(const char *s) {
    return (char *)(uintptr_t)s;
}

static void pack_tensor(const struct zerod_tensor *from, Zerod__V1__Tensor *to,
                        Zerod__V1__Initializer *init) {
    zerod__v1__tensor__init(to);
    to->name = as_text(from->name);
    to->n_shape = from->dims;
    to->shape = (uint64_t *)(uintptr_t)from->shape;
    to->weight_decay_multiplier = from->weight_decay_multiplier;
    to->lr_multiplier = from->lr_multiplier;
    to->frozen = from->frozen;
    to->ignored = from->ignored;
    to->absent_ok = from->absent_ok;
    to->dtype = (Zerod__V1__Dtype)from->dtype;
    if (from->alias) {
        to->alias = as_text(from->alias);
    }
    if (from->init.kind != ZEROD_LOADED) {
        zerod__v1__initializer__init(init);
        init->kind = (Zerod__V1__InitKind)from->init.kind;
        init->seed = from->init.seed;
        init->a = from->init.a;
        init->b = from->init.b;
        to->init = init;
    }
}

static void pack_units(const struct zerod_model *m, struct packed_model *p) {
    size_t next = 0;
    for (size_t i = 0; i < m->unit_count; i++) {
        const struct zerod_unit *u = &m->units[i];
        zerod__v1__unit__init(&p->units[i]);
        p->unit_list[i] = &p->units[i];
        p->units[i].name = as_text(u->name);
        p->units[i].contributions = u->contributions;
        p->units[i].n_tensors = u->tensor_count;
        p->units[i].tensors = p->tensor_list + next;
        for (size_t t = 0; t < u->tensor_count; t++, next++) {
            p->tensor_list[next] = &p->tensors[next];
            pack_tensor(&u->tensors[t], &p->tensors[next], &p->inits[next]);
        }
    }
}

static void pack_plans(const struct zerod_model *m, struct packed_model *p) {
    size_t next = 0;
    for (size_t i = 0; i < m->plan_count; i++) {
        const struct zerod_plan *plan = &m->plans[i];
        zerod__v1__plan__init(&p->plans[i]);
        p->plan_list[i] = &p->plans[i];
        p->plans[i].name = as_text(plan->name);
        p->plans[i].n_ops = plan->op_count;
        p->plans[i].ops = p->op_list + next;
        for (size_t o = 0; o < plan->op_count; o++, next++) {
            zerod__v1__plan_op__init(&p->ops[next]);
            p->op_list[next] = &p->ops[next];
            p->ops[next].kind = plan->ops[o].kind == ZEROD_GATHER
                                    ? ZEROD__V1__COLLECTIVE__COLLECTIVE_GATHER
                                    : ZEROD__V1__COLLECTIVE__COLLECTIVE_REDUCE;
            p->ops[next].unit = plan->ops[o].unit;
        }
    }
}

static void pack_scaling(const struct zerod_scaling *from, struct packed_model *p) {
    zerod__v1__loss_scaling__init(&p->scaling);
    p->scaling.dynamic = from->dynamic;
    p->scaling.start = from->start;
    p->scaling.factor = from->factor;
    p->scaling.floor = from->floor;
    p->scaling.window = from->window;
    p->scaling.hysteresis = from->hysteresis;
    p->model.scaling = &p->scaling;
}

static void pack_scalars(const struct zerod_model *m, struct packed_model *p) {
    p->model.shard_size = m->shard_size;
    p->model.param_dtype = (Zerod__V1__Dtype)m->param_dtype;
    p->model.wire_dtype = (Zerod__V1__Dtype)m->wire_dtype;
    p->model.kept_dtype = (Zerod__V1__Dtype)m->kept_dtype;
    p->model.micro_batches = m->micro_batches ? m->micro_batches : MICRO_BATCHES_DEFAULT;
    p->model.optimizer = (Zerod__V1__Optimizer)m->optimizer;
    p->model.beta1 = m->beta1;
    p->model.beta2 = m->beta2;
    p->model.epsilon = m->epsilon;
    p->model.weight_decay = m->weight_decay;
    p->model.momentum = m->momentum;
    p->model.nesterov = m->nesterov;
    p->model.clip_value = m->clip_value;
    p->model.gradient_divisor = m->gradient_divisor;
    pack_scaling(&m->scaling, p);
}

int packed_model_make(const struct zerod_model *m, struct packed_model *p, struct err *e) {
    *p = (struct packed_model){0};
    zerod__v1__model__init(&p->model);
    if (!m) {
        return err_set(e, ST_INVALID_ARGUMENT, "the model is NULL");
    }
    uint64_t tensors = 0;
    size_t ops = 0;
    int rc = check_units(m, &tensors, e);
    rc = rc ? rc : check_plans(m, &ops, e);
    rc = rc ? rc : check_scalars(m, e);
    rc = rc ? rc : parse_strategy(m->strategy, &p->model.strategy, e);
    if (rc) {
        return rc;
    }
    p->units = mem_zeroed(m->unit_count, sizeof *p->units);
    p->unit_list = mem_zeroed(m->unit_count, sizeof *p->unit_list);
    p->tensors = mem_zeroed(tensors, sizeof *p->tensors);
    p->tensor_list = mem_zeroed(tensors, sizeof *p->tensor_list);
    p->inits = mem_zeroed(tensors, sizeof *p->inits);
    p->plans = mem_zeroed(m->plan_count, sizeof *p->plans);
    p->plan_list = mem_zeroed(m->plan_count, sizeof *p->plan_list);
    p->ops = mem_zeroed(ops, sizeof *p->ops);
    p->op_list = mem_zeroed(ops, sizeof *p->op_list);
    pack_units(m, p);
    pack_plans(m, p);
    p->model.n_units = m->unit_count;
    p->model.units = p->unit_list;
    p->model.n_plans = m->plan_count;
    p->model.plans = p->plan_list;
    pack_scalars(m, p);
    return 0;
}

void packed_model_free(struct packed_model *p) {
    free(p->units);
    free(p->unit_list);
    free(p->tensors);
    free(p->tensor_list);
    free(p->inits);
    free(p->plans);
    free(p->plan_list);
    free(p->ops);
    free(p->op_list);
    *p = (struct packed_model){0};
}
