/* config.json: which architecture it is. Shapes are those of the published models. */
#include <string.h>

#include "model_file.h"

/* Weights that are stored packed have other shapes than what is trained. */
static void note_quantized(const cJSON *config, struct plan_lines *notes) {
    if (cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(config, "quantization_config"))) {
        plan_line(notes, "the config names a quantization; this is the plan of training every "
                         "parameter, not quantized");
    }
}

static int unknown(const char *type, struct err *e) {
    return err_set(
        e, ST_UNIMPLEMENTED,
        "architecture \"%.40s\" is not known (gpt2, llama, mistral, mixtral, qwen2 are): "
        "give --params and --layers, or its .safetensors file or index as --model",
        type);
}

int config_read(const cJSON *config, struct model *m, struct plan_lines *notes, struct err *e) {
    static const char *const llamas[] = {"llama", "mistral", "mixtral", "qwen2"};
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, "model_type");
    const char *type = cJSON_GetStringValue(item);
    if (!type) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "no \"model_type\", so no model's config.json, and no \"weight_map\", so no "
                       "index");
    }
    note_quantized(config, notes);
    if (!strcmp(type, "gpt2")) {
        return config_gpt2(config, m, e);
    }
    for (size_t i = 0; i < sizeof llamas / sizeof *llamas; i++) {
        if (!strcmp(type, llamas[i])) {
            return config_llama(config, type, m, e);
        }
    }
    return unknown(type, e);
}
