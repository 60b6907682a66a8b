/* Attach, load, steps. See synth.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "synth.h"

static struct options o;
static struct shape shape;
static struct zerod *z;
static unsigned rank;
static double seen; /* digest of all parameters that this try has gathered */

/* ---- numbers ---- */

/* Uniform on [-1, 1), multiples of 2^-23. */
static float noise(uint64_t key, uint64_t i) {
    return (float)((int32_t)(mix64(key ^ mix64(i)) >> 40) - (1 << 23)) * 0x1p-23f;
}

static uint64_t key_of(uint64_t what, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return mix64(mix64(mix64(mix64(mix64(o.seed ^ what << 56) ^ a) ^ b) ^ c) ^ d);
}

static float wide(const void *params, uint64_t i, enum zerod_dtype dtype) {
    uint32_t bits;
    float x;
    if (dtype == ZEROD_FP32) {
        memcpy(&x, (const char *)params + i * sizeof x, sizeof x);
        return x;
    }
    uint16_t half;
    memcpy(&half, (const char *)params + i * sizeof half, sizeof half);
    if (dtype == ZEROD_BF16) {
        bits = (uint32_t)half << 16;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    x = exponent == 0    ? (float)fraction * 0x1p-24f
        : exponent == 31 ? (fraction ? NAN : INFINITY)
                         : ldexpf((float)(fraction | 1024), exponent - 25);
    return half >> 15 ? -x : x;
}

/* bf16, nearest even. */
static uint16_t narrow(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return (uint16_t)(bits >> 16 | 64);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- parts of a unit ---- */

static enum zerod_dtype dtype_of(const struct zerod_tensor *t) {
    return t->dtype ? t->dtype : zerod_param_dtype(z);
}

/* Adds the unit's gathered values to |seen|; the same for every order of units. */
static void look(uint32_t unit, const void *params) {
    uint64_t sum = 0;
    for (uint32_t t = 0; t < shape.units[unit].tensor_count; t++) {
        const struct zerod_tensor *tensor = &shape.tensors[unit][t];
        if (tensor->ignored || tensor->alias) {
            continue;
        }
        const char *at = (const char *)params + zerod_param_offset(z, unit, t);
        for (uint64_t i = 0; i < shape.elements[unit][t]; i++) {
            const float x = wide(at, i, dtype_of(tensor));
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            sum += mix64(mix64((uint64_t)unit << 32 ^ t) ^ i ^ (uint64_t)bits << 24);
        }
    }
    seen += (double)(sum >> 40) * 0x1p-24;
}

/* A gradient: of the seed and its place, and an eighth of the parameter if |params| are there. */
static void write_tensor(uint32_t unit, uint32_t t, uint64_t key, const void *params, float scale,
                         char *slot) {
    const struct zerod_tensor *tensor = &shape.tensors[unit][t];
    const bool bf16 = zerod_wire_dtype(z) == ZEROD_BF16;
    const uint64_t offset = zerod_grad_offset(z, unit, t);
    for (uint64_t i = 0; i < shape.elements[unit][t]; i++) {
        float g = noise(key ^ mix64(t), i);
        if (params) {
            const char *at = (const char *)params + zerod_param_offset(z, unit, t);
            g = g + 0.125f * wide(at, i, dtype_of(tensor));
        }
        g *= scale;
        if (bf16) {
            const uint16_t half = narrow(g);
            memcpy(slot + offset + i * sizeof half, &half, sizeof half);
        } else {
            memcpy(slot + offset + i * sizeof g, &g, sizeof g);
        }
    }
}

static int reduce_own(const struct zerod_try *t, uint64_t key, uint32_t unit, const void *params) {
    void *slot;
    float scale = (float)(t->loss_scale / (double)o.micro_batches);
    int rc = zerod_grad(z, unit, false, &slot);
    if (rc) {
        return rc;
    }
    if (o.overflow == t->step && rank + 1 == zerod_world_size(z)) {
        scale = INFINITY;
    }
    for (uint32_t i = 0; i < shape.units[unit].tensor_count; i++) {
        const struct zerod_tensor *tensor = &shape.tensors[unit][i];
        if (!tensor->alias && zerod_grad_offset(z, unit, i) != ZEROD_NOWHERE) {
            write_tensor(unit, i, key, params, scale, slot);
        }
    }
    return zerod_reduce(z, unit);
}

/* The last layer's part of the tied tensor's gradient; the rest of that unit gets zeros. */
static int reduce_tied(const struct zerod_try *t, uint64_t key) {
    void *slot;
    const uint32_t unit = (uint32_t)shape.tied_to;
    int rc = zerod_grad(z, unit, true, &slot);
    if (rc) {
        return rc;
    }
    if (zerod_grad_offset(z, (uint32_t)shape.last, (uint32_t)shape.alias) !=
        zerod_grad_offset(z, unit, (uint32_t)shape.tied_tensor)) {
        (void)fprintf(stderr, "synth: the alias is not where its tensor is\n");
        exit(1);
    }
    write_tensor(unit, (uint32_t)shape.tied_tensor, key, NULL,
                 (float)(t->loss_scale / (double)o.micro_batches), slot);
    return zerod_reduce(z, unit);
}

/* ---- a step ---- */

static int forward(bool absent) {
    for (uint32_t u = 0; u < shape.count; u++) {
        const void *params;
        if (absent && (int)u == shape.expert) {
            continue;
        }
        int rc = zerod_gather(z, u, &params);
        if (!rc) {
            look(u, params);
            rc = zerod_release(z, u);
        }
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static int backward(const struct zerod_try *t, uint64_t micro_batch, bool absent) {
    int rc = 0;
    for (uint32_t u = (uint32_t)shape.count; u-- > 0 && !rc;) {
        const void *params;
        const uint64_t key = key_of(1, t->step, micro_batch, rank, u);
        if (absent && (int)u == shape.expert) {
            continue;
        }
        rc = zerod_gather(z, u, &params);
        if (!rc && shape_is_trained(&shape, u)) {
            rc = reduce_own(t, key, u, params);
        }
        rc = rc ? rc : zerod_release(z, u);
        if (!rc && shape.tied_to >= 0 && (int)u == shape.last) {
            rc = reduce_tied(t, key ^ 1);
        }
    }
    return rc;
}

static int train(const struct zerod_try *t) {
    seen = 0;
    for (uint64_t k = 0; k < o.micro_batches; k++) {
        const bool absent = shape.expert >= 0 && shape_is_absent(&o, rank, t->step, k);
        int rc = forward(absent);
        rc = rc ? rc : backward(t, k, absent);
        if (rc) {
            return rc;
        }
    }
    struct zerod_outcome out;
    const double digest = seen * 0x1p-8; /* exact, and so are sums over ranks in any order */
    const struct zerod_step step = {.learning_rate = o.lr / (double)t->step,
                                    .clip = o.clip,
                                    .weight = o.weights ? 1 + rank % 3 : 0,
                                    .user_count = 1,
                                    .user = &digest,
                                    .rank_cursor = &t->step,
                                    .rank_cursor_bytes = sizeof t->step};
    return zerod_step(z, &step, &out);
}

static int load(void) {
    int rc = 0;
    for (uint32_t u = 0; u < shape.count && !rc; u++) {
        float *values;
        if (!zerod_initial_bytes(z, u)) {
            continue;
        }
        rc = zerod_initial(z, u, &values);
        for (uint32_t t = 0; t < shape.units[u].tensor_count && !rc; t++) {
            const uint64_t offset = zerod_initial_offset(z, u, t);
            if (offset == ZEROD_NOWHERE || shape.tensors[u][t].alias) {
                continue;
            }
            for (uint64_t i = 0; i < shape.elements[u][t]; i++) {
                values[offset / sizeof *values + i] = 0.25f * noise(key_of(2, u, t, 0, 0), i);
            }
        }
        rc = rc ? rc : zerod_load(z, u);
    }
    struct zerod_outcome out;
    return rc ? rc : zerod_step(z, NULL, &out);
}

/* ---- the whole ---- */

static int run(void) {
    for (;;) {
        struct zerod_try t;
        int rc = zerod_begin(z, &t);
        if (!rc && t.step > o.steps) {
            return 0;
        }
        rc = rc ? rc : t.loading ? load() : train(&t);
        if (rc && rc != -ZEROD_ABORTED) {
            (void)fprintf(stderr, "synth[%u]: %s: %s\n", rank, zerod_status_name(rc),
                          zerod_last_error(z)->text);
            return 1;
        }
    }
}

int main(int argc, char **argv) {
    struct err e = {0};
    struct zerod_error error;
    if (options_parse(&o, argc, argv, &e)) {
        (void)fprintf(stderr, "synth: %s\n", e.text);
        return 2;
    }
    if (o.help) {
        options_help(stdout);
        return 0;
    }
    shape_init(&shape, &o);
    if (zerod_attach(NULL, &shape.model, &z, &error)) {
        (void)fprintf(stderr, "synth: %s: %s\n", zerod_status_name(error.code), error.text);
        return 1;
    }
    rank = zerod_rank(z);
    const int status = run();
    zerod_detach(z, status == 0);
    return status;
}
