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

enum dtype { DTYPE_NONE = 0, DTYPE_FP32 = 1, DTYPE_BF16 = 2, DTYPE_FP16 = 3 };

/* Values equal those of the wire (proto/zerod.proto). */
enum strategy {
    STRATEGY_NONE = 0,
    STRATEGY_DDP = 1,
    STRATEGY_ZERO1 = 2,
    STRATEGY_ZERO2 = 3, /* also reshard_after_forward=false: with fixed arenas it is that */
    STRATEGY_ZERO3 = 4,
    STRATEGY_HYBRID_SHARD = 5,
    STRATEGY_HYBRID_ZERO2 = 6,
};

enum plan_kind { PLAN_GATHER = 1, PLAN_REDUCE = 2 };

/* How a tensor gets its first values (kernels/init.h). */
enum init_kind {
    INIT_LOADED = 0, /* by the trainer, with load(unit) */
    INIT_ZEROS = 1,
    INIT_CONSTANT = 2, /* a */
    INIT_NORMAL = 3,   /* mean a, standard deviation b */
    INIT_UNIFORM = 4,  /* [a, b) */
};

struct initializer {
    enum init_kind kind;
    uint64_t seed;
    double a, b;
};

struct tensor {
    char name[MODEL_NAME];
    uint32_t dims;
    uint64_t shape[MODEL_DIMS]; /* row major; dims 0: one element */
    float decay_multiplier;     /* of the optimizer's weight decay */
    float lr_multiplier;        /* of the step's learning rate */
    bool frozen;            /* gathered, but no gradient, no optimizer state, no reduce traffic */
    bool ignored;           /* the trainer's own business: named here, has no place */
    bool absent_ok;         /* a micro-batch may leave its unit's reduce out: it counts as zeros */
    char alias[MODEL_NAME]; /* "": none; else the tensor whose memory this one is (tied weights): it
                               has no place of its own */
    enum dtype dtype; /* when gathered; DTYPE_NONE: the model's (a router bias kept in fp32) */
    struct initializer init;
    uint64_t elements; /* product of shape; set by model_check */
};

/* Does it have memory of its own in zerod? */
static inline bool tensor_has_place(const struct tensor *t) {
    return !t->ignored && !t->alias[0];
}

struct unit {
    char name[MODEL_NAME];
    size_t first, tensors;  /* model->tensors[first .. first + tensors) */
    uint32_t contributions; /* reduces in a micro-batch, from 1; summed in call order (tied: 2) */
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
    uint32_t shard_size;    /* S of the hybrid strategies; 0: all ranks. Others ignore it */
    enum dtype param_dtype; /* of gathered parameters */
    enum dtype wire_dtype;  /* of gradient slots: fp32 or bf16 (summed in fp32, rounded once) */
    enum dtype kept_dtype;  /* of gradients kept and all-reduced between replicas: fp32 or bf16 */
    uint32_t micro_batches; /* from 1 */
    struct optimizer_options optimizer;
    double gradient_divisor; /* 0: the sum of the ranks' weights, so a mean */
    struct loss_scaling scaling;
};

/* Building: all return 0, or -RESOURCE_EXHAUSTED (a limit above), -INVALID_ARGUMENT (an empty or
 * overlong name, too many dimensions). All is copied. model_add_tensor adds to the last unit. */
int model_add_unit(struct model *m, const char *name, uint32_t contributions, struct err *e);
int model_add_tensor(struct model *m, const struct tensor *t, struct err *e);
int model_add_plan(struct model *m, const char *name, struct err *e);
int model_add_op(struct model *m, enum plan_kind kind, uint64_t unit,
                 struct err *e); /* last plan */
void model_free(struct model *m);

/* A trainable tensor of the model's dtype that the trainer loads, both multipliers 1. Names over
 * the limit are cut here and refused by model_add_tensor. */
struct tensor model_tensor(const char *name, size_t dims, const uint64_t *shape);
/* fp32 everywhere, AdamW, one micro-batch, no loss scaling: what fields of 0 mean on the wire.
 * Units, plans and the strategy stay as they are, so |m| must be zeroed before it is first used. */
void model_defaults(struct model *m);

/* Fills in tensors' element counts and checks all: at least one unit; unique unit names; a tensor
 * name in one unit only (INVALID_ARGUMENT naming both units; a declared alias may share it); shapes
 * whose product overflows; an alias of no tensor, of an alias, of an ignored tensor, or of another
 * shape; plans naming units that exist; a plan "train" that reduces each unit with a trainable
 * tensor exactly |contributions| times and no other, and gathers each such unit before; other plans
 * only gather; multipliers finite and >= 0; optimizer constants (optimizer_check) and loss scaling
 * (scaling_check) in range; fp16 gathered parameters or gradients without loss scaling;
 * micro_batches in range; strategy and dtypes known. */
int model_check(struct model *m, struct err *e);

/* True when every trainable tensor of the unit is absent_ok (and there is one). */
bool model_unit_may_be_absent(const struct model *m, size_t unit);
/* Does the trainer load it (one of its tensors with a place is INIT_LOADED)? */
bool model_unit_is_loaded(const struct model *m, size_t unit);

const struct plan *model_plan(const struct model *m, const char *name); /* NULL: none */

/* FAILED_PRECONDITION naming |rank_a|, |rank_b| and the first difference in words (number of units,
 * a unit's name, a tensor's name, both shapes, multipliers, plan position with both operations,
 * flags, aliases, initialisers, optimizer constants with both values, dtypes, strategy, shard size,
 * micro-batches, loss scaling); 0 when equal. */
int model_difference(const struct model *a, unsigned rank_a, const struct model *b, unsigned rank_b,
                     struct err *e);

const char *strategy_name(enum strategy s); /* "zero3" */
enum strategy strategy_parse(
    const char *s); /* PyTorch's words too ("full_shard" is zero3); STRATEGY_NONE: unknown */
/* What reshard_after_forward=false makes of it: parameters that are kept between forward and
 * backward are a replica, since arenas are fixed. */
enum strategy strategy_without_reshard(enum strategy s);
const char *dtype_name(enum dtype d); /* "bf16" */
enum dtype dtype_parse(const char *s);
size_t dtype_bytes(enum dtype d);

#endif
