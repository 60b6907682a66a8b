/* The model that synth registers: units, kinds of tensors, the plan. formulas.py has the same
 * again. */
#include <string.h>

#include "base/hash.h"
#include "synth.h"

static enum zerod_dtype dtype_of(const char *name) {
    return !name                       ? 0
           : strcmp(name, "fp32") == 0 ? ZEROD_FP32
           : strcmp(name, "bf16") == 0 ? ZEROD_BF16
                                       : ZEROD_FP16;
}

static enum zerod_optimizer optimizer_of(const char *name) {
    return strcmp(name, "adamw") == 0  ? ZEROD_ADAMW
           : strcmp(name, "adam") == 0 ? ZEROD_ADAM
           : strcmp(name, "sgd") == 0  ? ZEROD_SGD
                                       : ZEROD_LION;
}

static struct zerod_init init_of(const struct options *o, size_t index) {
    const struct zerod_init kinds[] = {
        {ZEROD_LOADED, 0, 0, 0},
        {ZEROD_NORMAL, o->seed, 0, 0.05},
        {ZEROD_UNIFORM, o->seed, -0.1, 0.1},
        {ZEROD_CONSTANT, 0, 0.5, 0},
        {ZEROD_ZEROS, 0, 0, 0},
    };
    return kinds[o->init ? index % 5 : 0];
}

/* A tensor like its neighbours. */
static struct zerod_tensor *add(struct shape *s, size_t unit, uint64_t elements) {
    struct zerod_unit *u = &s->units[unit];
    const size_t i = u->tensor_count++;
    struct zerod_tensor *t = &s->tensors[unit][i];
    (void)snprintf(s->names[unit][i], sizeof s->names[unit][i], "%.20s.t%zu", u->name, i);
    s->elements[unit][i] = elements;
    *t = (struct zerod_tensor){.name = s->names[unit][i],
                               .dims = 1,
                               .shape = &s->elements[unit][i],
                               .weight_decay_multiplier = 1};
    return t;
}

static size_t add_unit(struct shape *s, const char *name, size_t number) {
    struct zerod_unit *u = &s->units[s->count];
    (void)snprintf(s->unit_names[s->count], sizeof s->unit_names[0], "%s%zu", name, number);
    *u = (struct zerod_unit){.name = s->unit_names[s->count], .tensors = s->tensors[s->count]};
    return s->count++;
}

static void add_layer(struct shape *s, const struct options *o, size_t number) {
    const size_t unit = add_unit(s, "layer", number);
    for (size_t i = 0; i < o->size_count; i++) {
        struct zerod_tensor *t = add(s, unit, o->sizes[i]);
        t->frozen = o->frozen && i % 3 == 1;
        t->dtype = o->mixed && i % 4 == 2 ? ZEROD_FP32 : 0;
        t->init = init_of(o, i + number);
        if (o->multipliers) {
            t->lr_multiplier = 0.5f + (float)(i % 3);
            t->weight_decay_multiplier = (float)(i % 2);
        }
    }
    if (o->ignored) {
        add(s, unit, 1000)->ignored = true;
    }
}

static void tie(struct shape *s, const struct options *o, size_t first) {
    s->tied_to = (int)first;
    for (size_t i = 0; i < o->size_count; i++) {
        const struct zerod_tensor *t = &s->tensors[first][i];
        if (!t->frozen && o->sizes[i] > s->elements[first][s->tied_tensor]) {
            s->tied_tensor = i;
        }
    }
    s->alias = s->units[s->last].tensor_count;
    struct zerod_tensor *t = add(s, (size_t)s->last, s->elements[first][s->tied_tensor]);
    t->alias = s->names[first][s->tied_tensor];
    s->units[first].contributions = 2;
}

static void add_expert(struct shape *s, const struct options *o) {
    s->expert = (int)add_unit(s, "expert", 0);
    for (size_t i = 0; i < o->size_count; i++) {
        struct zerod_tensor *t = add(s, (size_t)s->expert, o->sizes[i] / 2 + 1);
        t->absent_ok = true;
    }
}

bool shape_is_trained(const struct shape *s, size_t unit) {
    for (size_t i = 0; i < s->units[unit].tensor_count; i++) {
        const struct zerod_tensor *t = &s->tensors[unit][i];
        if (!t->frozen && !t->ignored && !t->alias) {
            return true;
        }
    }
    return false;
}

bool shape_is_absent(const struct options *o, unsigned rank, uint64_t step, uint64_t micro_batch) {
    return mix64(mix64(o->seed ^ rank) ^ mix64(step << 20 ^ micro_batch)) % 3 == 0;
}

static void plan(struct shape *s, enum zerod_collective kind, size_t unit) {
    s->ops[s->plan.op_count++] = (struct zerod_op){kind, (uint32_t)unit};
}

/* Gather all; then backwards gather and reduce; the tied tensor's first part with the last layer.
 */
static void make_plan(struct shape *s) {
    s->plan = (struct zerod_plan){.name = "train", .ops = s->ops};
    for (size_t u = 0; u < s->count; u++) {
        plan(s, ZEROD_GATHER, u);
    }
    for (size_t u = s->count; u-- > 0;) {
        plan(s, ZEROD_GATHER, u);
        if (shape_is_trained(s, u)) {
            plan(s, ZEROD_REDUCE, u);
        }
        if (s->tied_to >= 0 && (int)u == s->last) {
            plan(s, ZEROD_REDUCE, (size_t)s->tied_to);
        }
    }
}

void shape_init(struct shape *s, const struct options *o) {
    *s = (struct shape){.backbone = -1, .expert = -1, .tied_to = -1};
    if (o->frozen) {
        s->backbone = (int)add_unit(s, "backbone", 0);
        for (size_t i = 0; i < o->size_count; i++) {
            add(s, (size_t)s->backbone, o->sizes[i] + 3)->frozen = true;
        }
    }
    const size_t first = s->count;
    for (size_t l = 0; l < o->layers; l++) {
        add_layer(s, o, l);
    }
    s->last = (int)s->count - 1;
    if (o->tied && s->last > (int)first) {
        tie(s, o, first);
    }
    if (o->absent) {
        add_expert(s, o);
    }
    make_plan(s);
    s->model = (struct zerod_model){
        .unit_count = s->count,
        .units = s->units,
        .plan_count = 1,
        .plans = &s->plan,
        .param_dtype = dtype_of(o->dtype_text),
        .micro_batches = (uint32_t)o->micro_batches,
        .optimizer = optimizer_of(o->optimizer_text),
        .beta1 = 0.9,
        .beta2 = 0.95,
        .epsilon = 1e-8,
        .weight_decay = o->weight_decay,
        .momentum = o->momentum,
        .nesterov = o->nesterov,
        .clip_value = o->clip_value,
        .gradient_divisor = o->divisor,
    };
    if (s->model.param_dtype == ZEROD_FP16) {
        s->model.scaling = (struct zerod_scaling){
            .dynamic = true, .start = 1024, .window = 2}; /* moves within a test's few steps */
    }
}
