/* GPT-2: layer norms and all linear layers have biases, positions are learned. */
#include "model_file.h"

struct gpt2 {
    uint64_t vocabulary, positions, width, layers, inner; /* V, P, E, L, I */
    bool tied;
};

static int read_sizes(const cJSON *c, struct gpt2 *g, struct err *e) {
    const uint64_t most = UINT64_C(1) << 32, needed = UINT64_MAX;
    uint64_t heads;
    int rc = json_count(c, "vocab_size", needed, 1, most, &g->vocabulary, e);
    if (!rc) {
        rc = json_count(c, "n_positions", needed, 1, most, &g->positions, e);
    }
    if (!rc) {
        rc = json_count(c, "n_embd", needed, 1, most, &g->width, e);
    }
    if (!rc) {
        rc = json_count(c, "n_layer", needed, 1, CONFIG_LAYERS_MAX, &g->layers, e);
    }
    if (!rc) {
        rc = json_count(c, "n_head", needed, 1, most, &heads, e);
    }
    if (!rc) {
        rc = json_count(c, "n_inner", 4 * g->width, 1, most, &g->inner, e);
    }
    if (!rc && g->width % heads) {
        rc = err_set(e, ST_INVALID_ARGUMENT, "\"n_head\" must divide \"n_embd\"");
    }
    return rc ? rc : json_flag(c, "tie_word_embeddings", true, &g->tied, e);
}

/* A weight [from, to] and a bias [to], or with |from| 0 a norm's weight and bias [to]. */
static int add_linear(struct model *m, const char *prefix, const char *name, uint64_t from,
                      uint64_t to, struct err *e) {
    const uint64_t shape[] = {from, to};
    char whole[MODEL_NAME];
    (void)snprintf(whole, sizeof whole, "%s%s", prefix, name);
    int rc = config_tensor(m, whole, ".weight", from ? 2 : 1, from ? shape : &to, e);
    return rc ? rc : config_tensor(m, whole, ".bias", 1, &to, e);
}

static int add_layer(struct model *m, const struct gpt2 *g, uint64_t layer, struct err *e) {
    const struct {
        const char *name;
        uint64_t from, to;
    } parts[] = {
        {"ln_1", 0, g->width},
        {"attn.c_attn", g->width, 3 * g->width},
        {"attn.c_proj", g->width, g->width},
        {"ln_2", 0, g->width},
        {"mlp.c_fc", g->width, g->inner},
        {"mlp.c_proj", g->inner, g->width},
    };
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "transformer.h.%ju", (uintmax_t)layer);
    int rc = model_add_unit(m, prefix, 1, e);
    (void)snprintf(prefix, sizeof prefix, "transformer.h.%ju.", (uintmax_t)layer);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !rc; i++) {
        rc = add_linear(m, prefix, parts[i].name, parts[i].from, parts[i].to, e);
    }
    return rc;
}

static int add_embeddings(struct model *m, const struct gpt2 *g, struct err *e) {
    int rc = model_add_unit(m, "transformer.wte", 1, e);
    if (!rc) {
        rc = config_tensor(m, "transformer.wte", ".weight", 2,
                           (const uint64_t[]){g->vocabulary, g->width}, e);
    }
    if (!rc) {
        rc = model_add_unit(m, "transformer.wpe", 1, e);
    }
    return rc ? rc
              : config_tensor(m, "transformer.wpe", ".weight", 2,
                              (const uint64_t[]){g->positions, g->width}, e);
}

int config_gpt2(const cJSON *config, struct model *m, struct err *e) {
    struct gpt2 g;
    int rc = read_sizes(config, &g, e);
    if (!rc) {
        rc = add_embeddings(m, &g, e);
    }
    for (uint64_t i = 0; i < g.layers && !rc; i++) {
        rc = add_layer(m, &g, i, e);
    }
    if (!rc) {
        rc = model_add_unit(m, "transformer.ln_f", 1, e);
    }
    if (!rc) {
        rc = add_linear(m, "transformer.", "ln_f", 0, g.width, e);
    }
    return rc ? rc
              : config_head(m, "transformer.wte.weight", g.tied,
                            (const uint64_t[]){g.vocabulary, g.width}, e);
}
