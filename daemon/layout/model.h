/* What a trainer registers: units, their tensors, plans, dtypes, optimizer. Plain data with one
 * owner; no bytes of parameters. The coordinator compares the ranks' models with model_difference.
 */
#ifndef ZD_LAYOUT_MODEL_H
#define ZD_LAYOUT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/scalars.h"

enum {
    MODEL_NAME = 128, /* bytes with NUL, of a unit's, tensor's or plan's name */
    MODEL_DIMS = 8,
    MODEL_MAX_UNITS = 65536,
    MODEL_MAX_TENSORS = 1048576,
    MODEL_MAX_PLANS = 8,
    MODEL_MAX_PLAN_OPS = 1048576,
    MODEL_MAX_MICRO_BATCHES = 4096,
};
#define MODEL_MAX_ELEMENTS (UINT64_C(1) << 44) /* of a whole model, padding included */

enum dtype { DTYPE_NONE = 0, DTYPE_FP32 = 1, DTYPE_BF16 = 2 };

/* Values equal those of the wire (proto/zerod.proto). */
enum strategy {
    STRATEGY_NONE = 0,
    STRATEGY_DDP = 1,
    STRATEGY_ZERO1 = 2,
    STRATEGY_ZERO2 = 3,
    STRATEGY_ZERO3 = 4,
    STRATEGY_HYBRID_SHARD = 5,
    STRATEGY_HYBRID_ZERO2 = 6,
};

enum plan_kind { PLAN_GATHER = 1, PLAN_REDUCE = 2 };

struct tensor {
    char name[MODEL_NAME];
    uint32_t dims;
    uint64_t shape[MODEL_DIMS]; /* row major; dims 0: one element */
    float decay_multiplier;     /* of the optimizer's weight decay */
    uint64_t elements;          /* product of shape; set by model_check */
};

struct unit {
    char name[MODEL_NAME];
    size_t first, tensors; /* model->tensors[first .. first + tensors) */
};

struct plan_op {
    enum plan_kind kind;
    uint32_t unit;
};

/* The order of collectives of one micro-batch. A gather of a unit that is still held is no
 * collective (it counts the lease up) and is not part of the plan. */
struct plan {
    char name[MODEL_NAME];
    size_t count;
    struct plan_op *ops; /* owned */
};

struct model {
    size_t unit_count, tensor_count, plan_count;
    struct unit *units;     /* owned */
    struct tensor *tensors; /* owned; grouped by unit */
    struct plan plans[MODEL_MAX_PLANS];
    enum strategy strategy;
    enum dtype param_dtype; /* of gathered parameters */
    uint32_t micro_batches; /* from 1 */
    struct adamw_options adamw;
};

/* Building: all return 0, or -RESOURCE_EXHAUSTED (a limit above), -INVALID_ARGUMENT (an empty or
 * overlong name). Names and shapes are copied. model_add_tensor adds to the last unit. */
int model_add_unit(struct model *m, const char *name, struct err *e);
int model_add_tensor(struct model *m, const char *name, size_t dims, const uint64_t *shape,
                     float decay_multiplier, struct err *e);
int model_add_plan(struct model *m, const char *name, struct err *e);
int model_add_op(struct model *m, enum plan_kind kind, uint64_t unit,
                 struct err *e); /* last plan */
void model_free(struct model *m);

/* Fills in tensors' element counts and checks all: at least one unit; unique unit names; a tensor
 * name in one unit only (INVALID_ARGUMENT naming both units); shapes whose product overflows; plans
 * naming units that exist; a plan "train" that reduces each unit exactly once and gathers each unit
 * that it reduces at least once, before; other plans only gather; betas in [0, 1), epsilon > 0,
 * weight decay >= 0, all finite; micro_batches in range; strategy and dtype known. UNIMPLEMENTED
 * naming the strategy for those that this version does not build (all but ddp, zero2, zero3). */
int model_check(struct model *m, struct err *e);

const struct plan *model_plan(const struct model *m, const char *name); /* NULL: none */

/* FAILED_PRECONDITION naming |rank_a|, |rank_b| and the first difference in words (number of units,
 * a unit's name, a tensor's name, both shapes, multipliers, plan position with both operations,
 * optimizer constants with both values, dtype, strategy, micro-batches); 0 when equal. */
int model_difference(const struct model *a, unsigned rank_a, const struct model *b, unsigned rank_b,
                     struct err *e);

const char *strategy_name(enum strategy s);  /* "zero3" */
enum strategy strategy_parse(const char *s); /* "full_shard" is zero3; STRATEGY_NONE: unknown */
const char *dtype_name(enum dtype d);        /* "bf16" */
enum dtype dtype_parse(const char *s);
size_t dtype_bytes(enum dtype d);

#endif
