/* config.json of published models: parameters as published; and what an unknown or wrong one gets.
 */
#include "tests/base/suite.h"
#include "tests/zeroctl/plan_fixture.h"
#include "tests/zeroctl/temporary.h"

static uint64_t elements(const struct model *m) {
    uint64_t n = 0;
    for (size_t i = 0; i < m->tensor_count; i++) {
        n += tensor_has_place(&m->tensors[i]) ? m->tensors[i].elements : 0;
    }
    return n;
}

static struct model published(const char *file) {
    struct model m = plan_empty(DTYPE_FP32);
    struct plan_lines notes = {0};
    struct err e = {0};
    char path[512];
    (void)snprintf(path, sizeof path, "%s%s", MODELS, file);
    ck_assert_msg(!plan_model_read(&m, path, &notes, &e), "%s", e.text);
    ck_assert_msg(!plan_model_finish(&m, &e), "%s", e.text);
    ck_assert_uint_eq(notes.count, 0);
    return m;
}

START_TEST(published_counts) {
    static const struct {
        const char *file;
        uint64_t parameters, units;
    } models[] = {
        {"gpt2.json", UINT64_C(124439808), 12 + 4},
        {"llama-2-7b.json", UINT64_C(6738415616), 32 + 3},
        {"llama-3-8b.json", UINT64_C(8030261248), 32 + 3},
        {"llama-3.2-1b.json", UINT64_C(1235814400), 16 + 3},
        {"mistral-7b.json", UINT64_C(7241732096), 32 + 3},
        {"mixtral-8x7b.json", UINT64_C(46702792704), 32 + 3},
        {"qwen2-7b.json", UINT64_C(7615616512), 28 + 3},
        {"qwen2-0.5b.json", UINT64_C(494032768), 24 + 3},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct model m = published(models[i].file);
        ck_assert_msg(elements(&m) == models[i].parameters, "%s: %llu", models[i].file,
                      (unsigned long long)elements(&m));
        ck_assert_uint_eq(m.unit_count, models[i].units);
        model_free(&m);
    }
}
END_TEST

/* The output layer has no memory of its own; the embedding's unit is used at both places. */
START_TEST(tied_embeddings) {
    struct model m = published("gpt2.json");
    const struct tensor *head = &m.tensors[m.tensor_count - 1];
    const struct plan *train = model_plan(&m, "train");
    unsigned gathers = 0, reduces = 0;
    ck_assert_str_eq(head->name, "lm_head.weight");
    ck_assert_str_eq(head->alias, "transformer.wte.weight");
    ck_assert_uint_eq(m.units[0].contributions, 2);
    for (size_t i = 0; i < train->count; i++) {
        gathers += train->ops[i].unit == 0 && train->ops[i].kind == PLAN_GATHER;
        reduces += train->ops[i].unit == 0 && train->ops[i].kind == PLAN_REDUCE;
    }
    ck_assert_uint_eq(gathers, 4);
    ck_assert_uint_eq(reduces, 2);
    model_free(&m);
    m = published("llama-2-7b.json");
    ck_assert_str_eq(m.tensors[m.tensor_count - 1].alias, "");
    model_free(&m);
}
END_TEST

/* |error| follows the file's name. */
static void refused(const char *text, enum status code, const char *error) {
    struct model m = plan_empty(DTYPE_FP32);
    struct plan_lines notes = {0};
    struct err e = {0};
    const char *path = temporary_file("config.json", text, strlen(text));
    ck_assert_int_eq(plan_model_read(&m, path, &notes, &e), -(int)code);
    ck_assert_msg(strlen(e.text) > strlen(path) + 2 && !strncmp(e.text, path, strlen(path)), "%s",
                  e.text);
    ck_assert_str_eq(e.text + strlen(path) + 2, error);
    model_free(&m);
}

START_TEST(unknown_architecture) {
    refused("{\"model_type\": \"mamba\"}", ST_UNIMPLEMENTED,
            "architecture \"mamba\" is not known (gpt2, llama, mistral, mixtral, qwen2 are): give "
            "--params and --layers, or its .safetensors file or index as --model");
    refused("{\"vocab_size\": 5}", ST_INVALID_ARGUMENT,
            "no \"model_type\", so no model's config.json, and no \"weight_map\", so no index");
    refused("{\"model_type\": 5}", ST_INVALID_ARGUMENT,
            "no \"model_type\", so no model's config.json, and no \"weight_map\", so no index");
}
END_TEST

#define GPT2(more) "{\"model_type\": \"gpt2\", \"vocab_size\": 10, \"n_positions\": 4, " more "}"
#define LLAMA(more)                                                                                \
    "{\"model_type\": \"llama\", \"vocab_size\": 10, \"num_hidden_layers\": 2, " more "}"

START_TEST(wrong_configs) {
    refused(GPT2("\"n_embd\": 8, \"n_layer\": 2"), ST_INVALID_ARGUMENT, "\"n_head\" is missing");
    refused(GPT2("\"n_embd\": 8, \"n_layer\": 2, \"n_head\": 3"), ST_INVALID_ARGUMENT,
            "\"n_head\" must divide \"n_embd\"");
    refused(GPT2("\"n_embd\": 8, \"n_layer\": 0, \"n_head\": 2"), ST_INVALID_ARGUMENT,
            "\"n_layer\" must be a whole number from 1 to 10000");
    refused(GPT2("\"n_embd\": 8.5"), ST_INVALID_ARGUMENT,
            "\"n_embd\" must be a whole number from 1 to 4294967296");
    refused(GPT2("\"n_embd\": -8"), ST_INVALID_ARGUMENT,
            "\"n_embd\" must be a whole number from 1 to 4294967296");
    refused(GPT2("\"n_embd\": 1e300"), ST_INVALID_ARGUMENT,
            "\"n_embd\" must be a whole number from 1 to 4294967296");
    refused(GPT2("\"n_embd\": \"8\""), ST_INVALID_ARGUMENT,
            "\"n_embd\" must be a whole number from 1 to 4294967296");
    refused(LLAMA("\"hidden_size\": 8, \"intermediate_size\": 8, \"num_attention_heads\": 3"),
            ST_INVALID_ARGUMENT,
            "\"num_attention_heads\" must divide \"hidden_size\" where there is no \"head_dim\"");
    refused(LLAMA("\"hidden_size\": 8, \"intermediate_size\": 8, \"num_attention_heads\": 4, "
                  "\"num_key_value_heads\": 3"),
            ST_INVALID_ARGUMENT, "\"num_key_value_heads\" must divide \"num_attention_heads\"");
    refused(LLAMA("\"hidden_size\": 8, \"intermediate_size\": 8, \"num_attention_heads\": 4, "
                  "\"tie_word_embeddings\": 1"),
            ST_INVALID_ARGUMENT, "\"tie_word_embeddings\" must be true or false");
}
END_TEST

START_TEST(malformed_json) {
    char deep[200];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    deep[sizeof deep - 1] = 0;
    refused(deep, ST_INVALID_ARGUMENT, "JSON is nested over 32 deep at byte 36");
    refused("{\"model_type\": }", ST_INVALID_ARGUMENT, "malformed JSON at byte 15");
    refused("{\"model_type\": \"gpt2\"} x", ST_INVALID_ARGUMENT, "malformed JSON at byte 23");
    refused("{", ST_INVALID_ARGUMENT, "malformed JSON at byte 1");
    refused("{}", ST_INVALID_ARGUMENT,
            "no \"model_type\", so no model's config.json, and no \"weight_map\", so no index");
    refused("[1]", ST_INVALID_ARGUMENT,
            "neither JSON (a config.json or an index) nor a safetensors file");
    refused("", ST_INVALID_ARGUMENT,
            "neither JSON (a config.json or an index) nor a safetensors file");
}
END_TEST

START_TEST(no_file) {
    struct model m = plan_empty(DTYPE_FP32);
    struct plan_lines notes = {0};
    struct err e = {0};
    ck_assert_int_eq(plan_model_read(&m, "/nowhere/config.json", &notes, &e), -ST_NOT_FOUND);
    ck_assert_str_eq(e.text, "opening /nowhere/config.json: No such file or directory");
    ck_assert_int_eq(plan_model_read(&m, temporary.folder, &notes, &e), -ST_INVALID_ARGUMENT);
    model_free(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("zeroctl/plan_models");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, temporary_begin, temporary_end);
    tcase_add_test(t, published_counts);
    tcase_add_test(t, tied_embeddings);
    tcase_add_test(t, unknown_architecture);
    tcase_add_test(t, wrong_configs);
    tcase_add_test(t, malformed_json);
    tcase_add_test(t, no_file);
    suite_add_tcase(s, t);
    return run_suite(s);
}
