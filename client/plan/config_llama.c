/* Llama and its kin: RMS norms, grouped heads, gated inner layers. Mistral is Llama in shape; Qwen2
 * has biases in query, key and value; Mixtral has several inner layers, the experts, and a router.
 */
#include <string.h>

#include "model_file.h"

struct llama {
    uint64_t vocabulary, width, layers, inner; /* V, H, L, I */
    uint64_t heads, key_heads, head_width;
    uint64_t experts; /* 0: an ordinary inner layer */
    bool attention_bias, output_bias, inner_bias, tied;
};

static int read_heads(const cJSON *c, struct llama *l, struct err *e) {
    const uint64_t most = UINT64_C(1) << 24;
    int rc = json_count(c, "num_attention_heads", UINT64_MAX, 1, most, &l->heads, e);
    if (!rc) {
        rc = json_count(c, "num_key_value_heads", l->heads, 1, most, &l->key_heads, e);
    }
    if (!rc && l->heads % l->key_heads) {
        rc = err_set(e, ST_INVALID_ARGUMENT,
                     "\"num_key_value_heads\" must divide \"num_attention_heads\"");
    }
    if (!rc) {
        rc = json_count(c, "head_dim", 0, 1, most, &l->head_width, e);
    }
    if (!rc && !l->head_width && l->width % l->heads) {
        rc = err_set(e, ST_INVALID_ARGUMENT,
                     "\"num_attention_heads\" must divide \"hidden_size\" where there is no "
                     "\"head_dim\"");
    }
    if (!rc && !l->head_width) {
        l->head_width = l->width / l->heads;
    }
    return rc;
}

static int read_flags(const cJSON *c, const char *type, struct llama *l, struct err *e) {
    int rc = json_flag(c, "tie_word_embeddings", false, &l->tied, e);
    if (!strcmp(type, "qwen2")) {
        l->attention_bias = true; /* of query, key, value; the output has none */
    } else if (!strcmp(type, "llama") && !rc) {
        rc = json_flag(c, "attention_bias", false, &l->attention_bias, e);
        l->output_bias = l->attention_bias;
        rc = rc ? rc : json_flag(c, "mlp_bias", false, &l->inner_bias, e);
    }
    if (!strcmp(type, "mixtral") && !rc) {
        rc = json_count(c, "num_local_experts", UINT64_MAX, 1, CONFIG_EXPERTS_MAX, &l->experts, e);
    }
    if (!rc && l->layers * l->experts > CONFIG_LAYERS_MAX) {
        rc = err_set(e, ST_RESOURCE_EXHAUSTED,
                     "\"num_hidden_layers\" times \"num_local_experts\" is over %d",
                     CONFIG_LAYERS_MAX);
    }
    return rc;
}

static int read_sizes(const cJSON *c, const char *type, struct llama *l, struct err *e) {
    const uint64_t most = UINT64_C(1) << 32, needed = UINT64_MAX;
    *l = (struct llama){0};
    int rc = json_count(c, "vocab_size", needed, 1, most, &l->vocabulary, e);
    if (!rc) {
        rc = json_count(c, "hidden_size", needed, 1, most, &l->width, e);
    }
    if (!rc) {
        rc = json_count(c, "num_hidden_layers", needed, 1, CONFIG_LAYERS_MAX, &l->layers, e);
    }
    if (!rc) {
        rc = json_count(c, "intermediate_size", needed, 1, most, &l->inner, e);
    }
    if (!rc) {
        rc = read_heads(c, l, e);
    }
    return rc ? rc : read_flags(c, type, l, e);
}

/* A weight [to, from] and perhaps a bias [to]; |prefix| and |name| as "model.layers.0." "mlp". */
static int add_linear(struct model *m, const char *prefix, const char *name, uint64_t to,
                      uint64_t from, bool bias, struct err *e) {
    char whole[MODEL_NAME];
    (void)snprintf(whole, sizeof whole, "%s%s", prefix, name);
    int rc = config_tensor(m, whole, ".weight", 2, (const uint64_t[]){to, from}, e);
    return rc || !bias ? rc : config_tensor(m, whole, ".bias", 1, &to, e);
}

static int add_attention(struct model *m, const char *prefix, const struct llama *l,
                         struct err *e) {
    const uint64_t query = l->heads * l->head_width, key = l->key_heads * l->head_width;
    int rc = add_linear(m, prefix, "self_attn.q_proj", query, l->width, l->attention_bias, e);
    if (!rc) {
        rc = add_linear(m, prefix, "self_attn.k_proj", key, l->width, l->attention_bias, e);
    }
    if (!rc) {
        rc = add_linear(m, prefix, "self_attn.v_proj", key, l->width, l->attention_bias, e);
    }
    return rc ? rc : add_linear(m, prefix, "self_attn.o_proj", l->width, query, l->output_bias, e);
}

static int add_inner(struct model *m, const char *prefix, const struct llama *l,
                     const char *const names[3], struct err *e) {
    int rc = add_linear(m, prefix, names[0], l->inner, l->width, l->inner_bias, e);
    if (!rc) {
        rc = add_linear(m, prefix, names[1], l->inner, l->width, l->inner_bias, e);
    }
    return rc ? rc : add_linear(m, prefix, names[2], l->width, l->inner, l->inner_bias, e);
}

static int add_experts(struct model *m, const char *prefix, const struct llama *l, struct err *e) {
    static const char *const names[] = {"w1", "w3", "w2"};
    char expert[96];
    int rc = add_linear(m, prefix, "block_sparse_moe.gate", l->experts, l->width, false, e);
    for (uint64_t i = 0; i < l->experts && !rc; i++) {
        (void)snprintf(expert, sizeof expert, "%.48sblock_sparse_moe.experts.%u.", prefix,
                       (unsigned)i);
        rc = add_inner(m, expert, l, names, e);
    }
    return rc;
}

static int add_layer(struct model *m, const struct llama *l, uint64_t layer, struct err *e) {
    static const char *const names[] = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"};
    char prefix[48];
    (void)snprintf(prefix, sizeof prefix, "model.layers.%u", (unsigned)layer);
    int rc = model_add_unit(m, prefix, 1, e);
    (void)snprintf(prefix, sizeof prefix, "model.layers.%u.", (unsigned)layer);
    if (!rc) {
        rc = config_tensor(m, prefix, "input_layernorm.weight", 1, &l->width, e);
    }
    if (!rc) {
        rc = add_attention(m, prefix, l, e);
    }
    if (!rc) {
        rc = config_tensor(m, prefix, "post_attention_layernorm.weight", 1, &l->width, e);
    }
    if (rc) {
        return rc;
    }
    return l->experts ? add_experts(m, prefix, l, e) : add_inner(m, prefix, l, names, e);
}

int config_llama(const cJSON *config, const char *type, struct model *m, struct err *e) {
    struct llama l;
    int rc = read_sizes(config, type, &l, e);
    const uint64_t shape[] = {l.vocabulary, l.width};
    if (!rc) {
        rc = model_add_unit(m, "model.embed_tokens", 1, e);
    }
    if (!rc) {
        rc = config_tensor(m, "model.embed_tokens", ".weight", 2, shape, e);
    }
    for (uint64_t i = 0; i < l.layers && !rc; i++) {
        rc = add_layer(m, &l, i, e);
    }
    if (!rc) {
        rc = model_add_unit(m, "model.norm", 1, e);
    }
    if (!rc) {
        rc = config_tensor(m, "model.norm", ".weight", 1, &l.width, e);
    }
    return rc ? rc : config_head(m, "model.embed_tokens.weight", l.tied, shape, e);
}
