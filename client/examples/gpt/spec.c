/* See spec.h. */
#include "spec.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

static const float init_deviation = 0.02f;

/* The next tensor, called as the unit and then |name|. */
static struct gpt_tensor *append(struct gpt_unit *u, const char *name) {
    char full[2 * GPT_NAME];
    struct gpt_tensor *t = &u->tensors[u->count++];
    const int n = snprintf(full, sizeof full, "%s%s", u->name, name);
    assert(n > 0 && n < GPT_NAME && u->count <= GPT_UNIT_TENSORS);
    *t = (struct gpt_tensor){.dims = 0};
    memcpy(t->name, full, (size_t)n + 1);
    return t;
}

static void add(struct gpt_unit *u, const char *name, uint64_t rows, uint64_t columns,
                float deviation) {
    struct gpt_tensor *t = append(u, name);
    t->dims = 2;
    t->shape[0] = rows;
    t->shape[1] = columns;
    t->elements = rows * columns;
    t->decay = 1;
    t->deviation = deviation;
}

static void add_vector(struct gpt_unit *u, const char *name, uint64_t length, float constant) {
    struct gpt_tensor *t = append(u, name);
    t->dims = 1;
    t->shape[0] = length;
    t->elements = length;
    t->constant = constant;
}

static void describe_block(const struct gpt_shape *s, struct gpt_unit *u) {
    const uint64_t c = s->channels;
    /* Two layers a block add to the residual stream; its variance at the start stays that of one.
     */
    const float residual = init_deviation / sqrtf(2.0f * (float)s->layers);
    add_vector(u, ".ln1.weight", c, 1);
    add_vector(u, ".ln1.bias", c, 0);
    add(u, ".qkv.weight", 3 * c, c, init_deviation);
    add_vector(u, ".qkv.bias", 3 * c, 0);
    add(u, ".proj.weight", c, c, residual);
    add_vector(u, ".proj.bias", c, 0);
    add_vector(u, ".ln2.weight", c, 1);
    add_vector(u, ".ln2.bias", c, 0);
    add(u, ".up.weight", 4 * c, c, init_deviation);
    add_vector(u, ".up.bias", 4 * c, 0);
    add(u, ".down.weight", c, 4 * c, residual);
    add_vector(u, ".down.bias", c, 0);
}

void gpt_describe(const struct gpt_shape *s, size_t unit, struct gpt_unit *u) {
    *u = (struct gpt_unit){.count = 0};
    if (unit == 0) {
        snprintf(u->name, sizeof u->name, "embed");
        add(u, ".wte", s->vocab, s->channels, init_deviation);
        add(u, ".wpe", s->seq, s->channels, init_deviation);
    } else if (unit <= s->layers) {
        snprintf(u->name, sizeof u->name, "block%zu", unit - 1);
        describe_block(s, u);
    } else {
        snprintf(u->name, sizeof u->name, "head");
        add_vector(u, ".ln_f.weight", s->channels, 1);
        add_vector(u, ".ln_f.bias", s->channels, 0);
        add(u, ".weight", s->vocab, s->channels, init_deviation);
        u->tensors[HEAD_W].tied = s->tied;
    }
}

static float noise(uint64_t bits) {
    int32_t sum = 0;
    for (int part = 0; part < 4; part++) {
        sum += (int32_t)(bits >> (16 * part) & 0xFFFF) - 32768;
    }
    /* Each part is uniform on 65536 values: variance 65536^2 / 12, four of them 65536^2 / 3. */
    return ((float)sum + 2.0f) * (1.7320508f / 65536.0f);
}

void gpt_initial(const struct gpt_tensor *t, uint64_t seed, uint64_t first, float *to) {
    const uint64_t key = mix64(seed ^ UINT64_C(0x696E697469616C)); /* "initial" */
    for (uint64_t i = 0; i < t->elements; i++) {
        to[i] = t->constant;
        if (t->deviation > 0) {
            to[i] += t->deviation * noise(mix64(key ^ mix64(first + i)));
        }
    }
}
