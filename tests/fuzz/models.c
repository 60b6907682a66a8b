#include "models.h"

#include <stdbool.h>

enum { UNITS = MODELS_UNITS, OPS = 2 * UNITS };

static Zerod__V1__Model model;
static Zerod__V1__Unit units[UNITS], *unit_list[UNITS];
static Zerod__V1__Tensor tensors[UNITS][2], *tensor_list[UNITS][2];
static Zerod__V1__Plan plans[2], *plan_list[2];
static Zerod__V1__PlanOp ops[OPS], *op_list[OPS], eval_ops[2], *eval_list[2];

static void make_unit(int u, char *name, char *first, char *second) {
    static uint64_t shape[] = {5, 3};
    char *names[] = {first, second};
    zerod__v1__unit__init(&units[u]);
    for (int t = 0; t < 2; t++) {
        zerod__v1__tensor__init(&tensors[u][t]);
        tensors[u][t].name = names[t];
        tensors[u][t].n_shape = 2 - (size_t)t;
        tensors[u][t].shape = shape;
        tensors[u][t].weight_decay_multiplier = 1;
        tensors[u][t].absent_ok = u == 1;
        tensor_list[u][t] = &tensors[u][t];
    }
    units[u].name = name;
    units[u].n_tensors = 2;
    units[u].tensors = tensor_list[u];
    unit_list[u] = &units[u];
}

static void make_op(Zerod__V1__PlanOp *op, Zerod__V1__PlanOp **list, bool reduce, unsigned unit) {
    zerod__v1__plan_op__init(op);
    op->kind = reduce ? ZEROD__V1__COLLECTIVE__COLLECTIVE_REDUCE
                      : ZEROD__V1__COLLECTIVE__COLLECTIVE_GATHER;
    op->unit = unit;
    *list = op;
}

static void make_plan(int p, char *name, size_t n, Zerod__V1__PlanOp **list) {
    zerod__v1__plan__init(&plans[p]);
    plans[p].name = name;
    plans[p].n_ops = n;
    plans[p].ops = list;
    plan_list[p] = &plans[p];
}

Zerod__V1__Model *models_small(unsigned shape) {
    zerod__v1__model__init(&model);
    make_unit(0, "embed", "embed.w", "embed.b");
    make_unit(1, "body", "body.w", "body.b");
    make_unit(2, "head", "head.w", "head.b");
    for (unsigned u = 0; u < UNITS; u++) {
        make_op(&ops[u], &op_list[u], false, u);
        make_op(&ops[UNITS + u], &op_list[UNITS + u], true, UNITS - 1 - u);
    }
    make_op(&eval_ops[0], &eval_list[0], false, 0);
    make_op(&eval_ops[1], &eval_list[1], false, 2);
    make_plan(0, "train", OPS, op_list);
    make_plan(1, "eval", 2, eval_list);
    model.n_units = UNITS;
    model.units = unit_list;
    model.n_plans = 2;
    model.plans = plan_list;
    model.micro_batches = 1 + (shape >> 3) % 2;
    model.beta1 = 0.9;
    model.beta2 = 0.95;
    model.epsilon = 1e-8;
    return &model;
}
