/* Models from safetensors headers and indexes, and what malformed ones get. */
#include "tests/base/suite.h"
#include "tests/zeroctl/plan_fixture.h"
#include "tests/zeroctl/temporary.h"

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]" \
    "}"

static struct plan_lines notes;

static struct model read_good(const char *path) {
    struct model m = plan_empty(DTYPE_FP32);
    struct err e = {0};
    notes.count = 0;
    ck_assert_msg(!plan_model_read(&m, path, &notes, &e), "%s", e.text);
    ck_assert_msg(!plan_model_finish(&m, &e), "%s", e.text);
    return m;
}

static void refused(const char *path, enum status code, const char *error) {
    struct model m = plan_empty(DTYPE_FP32);
    struct err e = {0};
    ck_assert_int_eq(plan_model_read(&m, path, &notes, &e), -(int)code);
    ck_assert_msg(strlen(e.text) > strlen(path) + 2, "%s", e.text);
    ck_assert_str_eq(e.text + strlen(path) + 2, error);
    model_free(&m);
}

#define META "\"__metadata__\":{\"format\":\"pt\"},"
#define LAYER_10 T("model.layers.10.w", "BF16", "[2,3]", "0", "12") ","
#define LAYER_2 T("model.layers.2.b", "F32", "[]", "12", "16") ","
#define EXPERT T("model.layers.2.moe.3.w", "BF16", "[4]", "16", "24") ","
#define NORM T("model.norm.weight", "BF16", "[0]", "24", "24") ","
#define EMBEDDING T("wte", "F16", "[5]", "24", "34")

static const char good[] = "{" META LAYER_10 LAYER_2 EXPERT NORM EMBEDDING "}";

static void check_good(const char *path) {
    static const char *const units[] = {"model.layers.2", "model.layers.10", "model.norm", "wte"};
    struct model m = read_good(path);
    ck_assert_uint_eq(m.unit_count, 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_str_eq(m.units[i].name, units[i]);
    }
    ck_assert_uint_eq(m.units[0].tensors, 2);
    ck_assert_str_eq(m.tensors[1].name, "model.layers.2.moe.3.w");
    ck_assert_uint_eq(m.tensors[0].elements, 1);
    ck_assert_uint_eq(m.tensors[2].elements, 6);
    ck_assert_uint_eq(notes.count, 0);
    model_free(&m);
}

START_TEST(units_by_names) {
    check_good(temporary_tensors("model.safetensors", good, 0, 34));
    check_good(temporary_tensors("model.safetensors", good, 0, 0)); /* a header alone */
}
END_TEST

#define MASK T("h.0.attn.bias", "F32", "[1,1,2,2]", "0", "16") ","
#define BIAS T("h.0.attn.c_attn.bias", "F32", "[3]", "16", "28") ","
#define PACKED T("h.0.qweight", "I32", "[2]", "28", "36")

/* GPT-2's file has its masks, quantized files have packed integers. */
START_TEST(what_is_not_trained) {
    struct model m =
        read_good(temporary_tensors("model.safetensors", "{" MASK BIAS PACKED "}", 0, 36));
    ck_assert_uint_eq(m.tensor_count, 1);
    ck_assert_str_eq(m.tensors[0].name, "h.0.attn.c_attn.bias");
    ck_assert_uint_eq(notes.count, 2);
    ck_assert_str_eq(notes.text[0], "1 tensor left out that a model computes and does not train, "
                                    "like \"h.0.attn.bias\"");
    ck_assert_ptr_nonnull(strstr(notes.text[1], "like \"h.0.qweight\""));
    model_free(&m);
    refused(temporary_tensors("model.safetensors", "{" T("h.0.qweight", "I32", "[2]", "0", "8") "}",
                              0, 8),
            ST_INVALID_ARGUMENT, "no tensor in it can be trained");
    refused(temporary_tensors("model.safetensors", "{ }", 0, 0), ST_INVALID_ARGUMENT,
            "no tensor in it can be trained");
}
END_TEST

static void bad(const char *header, size_t data, const char *error) {
    refused(temporary_tensors("model.safetensors", header, 0, data), ST_INVALID_ARGUMENT, error);
}

START_TEST(offsets) {
    bad("{" T("a", "F32", "[2]", "0", "12") "}", 12,
        "tensor \"a\" has data_offsets 0 to 12: its shape needs 8 bytes");
    bad("{" T("a", "F32", "[2]", "4", "12") "}", 12,
        "tensor \"a\" begins at byte 4 of the data, with a hole before it from byte 0");
    bad("{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "4", "8") "}", 8,
        "tensor \"b\" begins at byte 4 of the data, inside what ends at byte 8");
    bad("{" T("a", "F32", "[2]", "0", "8") "}", 9, "tensors need 8 bytes of data, the file has 9");
    bad("{" T("a", "F32", "[2]", "8", "0") "}", 8,
        "tensor \"a\": data_offsets must be two whole numbers in order");
    bad("{" T("a", "F32", "[2]", "-8", "0") "}", 8,
        "tensor \"a\": data_offsets must be two whole numbers in order");
    bad("{" T("a", "F32", "[2]", "0", "8,9") "}", 8,
        "tensor \"a\": data_offsets must be two whole numbers in order");
    bad("{" T("a", "F32", "[2]", "0", "1e30") "}", 8,
        "tensor \"a\": data_offsets must be two whole numbers in order");
    bad("{" T("a", "F32", "[1e15,1e15]", "0", "8") "}", 8, "tensor \"a\": its shape overflows");
    bad("{" T("a", "F32", "[-1]", "0", "8") "}", 8,
        "tensor \"a\": its shape has what is no size at 0");
    bad("{" T("a", "F32", "8", "0", "8") "}", 8, "tensor \"a\" has no shape");
    bad("{" T("a", "F4", "[2]", "0", "8") "}", 8, "tensor \"a\": unknown dtype \"F4\"");
    bad("{\"a\":5}", 8, "tensor \"a\" must have dtype, shape and data_offsets only");
    bad("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 8,
        "tensor \"a\" must have dtype, shape and data_offsets only");
    bad("{\"\":{}}", 8, "a tensor's name is empty or over 127 bytes: \"\"");
}
END_TEST

START_TEST(lengths) {
    refused(temporary_tensors("model.safetensors", "{}", 100000001, 0), ST_INVALID_ARGUMENT,
            "a header of 100000001 bytes in a file of 10: the limit is 100000000");
    refused(temporary_tensors("model.safetensors", "{}", 3, 0), ST_INVALID_ARGUMENT,
            "a header of 3 bytes in a file of 10: the limit is 100000000");
    refused(temporary_tensors("model.safetensors", "{", 0, 0), ST_INVALID_ARGUMENT,
            "no safetensors file: 9 bytes long");
    refused(temporary_tensors("model.safetensors", "{\"a\":", 0, 0), ST_INVALID_ARGUMENT,
            "malformed JSON at byte 5");
    refused(temporary_tensors("model.safetensors", "{}", UINT64_MAX, 0), ST_INVALID_ARGUMENT,
            "neither JSON (a config.json or an index) nor a safetensors file");
}
END_TEST

START_TEST(dimensions) {
    bad("{" T("a", "F32", "[1,1,1,1,1,1,1,1]", "0", "4") "}", 5,
        "tensors need 4 bytes of data, the file has 5");
    refused(temporary_tensors("model.safetensors",
                              "{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 0, 4),
            ST_RESOURCE_EXHAUSTED, "tensor \"a\" has more than 8 dimensions");
}
END_TEST

#define FIRST T("x.0.w", "F32", "[1]", "0", "4") ","
#define SECOND T("x.0.w", "F32", "[1]", "4", "8")

/* Twice the same name passes JSON and must not pass us. */
START_TEST(twins) {
    struct model m = plan_empty(DTYPE_FP32);
    struct err e = {0};
    const char *path = temporary_tensors("model.safetensors", "{" FIRST SECOND "}", 0, 8);
    ck_assert_int_eq(plan_model_read(&m, path, &notes, &e), 0);
    ck_assert_int_eq(plan_model_finish(&m, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "unit \"x.0\" has two tensors \"x.0.w\"");
    model_free(&m);
}
END_TEST

/* ---- indexes ---- */

#define INDEX "model.safetensors.index.json"
#define ONE T("x.0.w", "F32", "[3]", "0", "12")
#define TWO T("x.1.w", "F32", "[3]", "0", "12")
#define THREE T("x.0.b", "F32", "[1]", "12", "16")

static const char *index_file(const char *text) {
    return temporary_file(INDEX, text, strlen(text));
}

START_TEST(indexes) {
    (void)temporary_tensors("a-1.safetensors", "{" ONE "}", 0, 0);
    (void)temporary_tensors("a-2.safetensors", "{" TWO "," THREE "}", 0, 16);
    struct model m = read_good(index_file(
        "{\"metadata\":{\"total_size\":28},\"weight_map\":{\"x.0.w\":\"a-1.safetensors\","
        "\"x.0.b\":\"a-2.safetensors\",\"x.1.w\":\"a-2.safetensors\"}}"));
    ck_assert_uint_eq(m.unit_count, 2);
    ck_assert_uint_eq(m.units[0].tensors, 2);
    ck_assert_uint_eq(notes.count, 0);
    model_free(&m);
    m = read_good(index_file(
        "{\"metadata\":{\"total_size\":99},\"weight_map\":{\"x.0.w\":\"a-1.safetensors\"}}"));
    ck_assert_uint_eq(notes.count, 1);
    ck_assert_str_eq(notes.text[0], "the index says 99 bytes in all, its files have 12");
    model_free(&m);
}
END_TEST

START_TEST(wrong_indexes) {
    (void)temporary_tensors("a-1.safetensors", "{" ONE "}", 0, 0);
    refused(index_file("{\"weight_map\":{\"x\":\"a-2.safetensors\"}}"), ST_NOT_FOUND,
            "it names \"a-2.safetensors\", which is not beside it: an index has no shapes, the "
            "headers of its files are needed (or use config.json)");
    refused(index_file("{\"weight_map\":{\"x\":\"a-1.safetensors\"}}"), ST_INVALID_ARGUMENT,
            "the index has tensor \"x\" in \"a-1.safetensors\", which lacks it");
    refused(index_file("{\"weight_map\":{\"x.0.w\":\"a-1.safetensors\","
                       "\"x.0.v\":\"a-1.safetensors\"}}"),
            ST_INVALID_ARGUMENT,
            "the index has tensor \"x.0.v\" in \"a-1.safetensors\", which lacks it");
    refused(index_file("{\"weight_map\":{\"x\":\"../a-1.safetensors\"}}"), ST_INVALID_ARGUMENT,
            "tensor \"x\" is in \"../a-1.safetensors\": that is no name of a .safetensors file in "
            "the same folder");
    refused(index_file("{\"weight_map\":{\"x\":7}}"), ST_INVALID_ARGUMENT,
            "tensor \"x\" is in \"\": that is no name of a .safetensors file in the same folder");
    refused(index_file("{\"weight_map\":{}}"), ST_INVALID_ARGUMENT,
            "\"weight_map\" is no object of tensors");
    (void)temporary_tensors("a-1.safetensors", "{}", 0, 0);
    refused(index_file("{\"weight_map\":{\"x\":\"a-1.safetensors\"}}"), ST_INVALID_ARGUMENT,
            "the index has tensor \"x\" in \"a-1.safetensors\", which lacks it");
}
END_TEST

/* Every prefix of a good file, and every byte of it changed: an answer, never a crash. */
START_TEST(any_bytes) {
    const size_t n = 8 + sizeof good - 1 + 34;
    char *bytes = calloc(n, 1), *changed = malloc(n);
    FILE *f = fopen(temporary_tensors("model.safetensors", good, 0, 34), "r");
    ck_assert_uint_eq(fread(bytes, 1, n, f), n);
    (void)fclose(f);
    for (size_t i = 0; i < n - 34; i++) {
        for (int flip = 0; flip < 2; flip++) {
            struct model m = plan_empty(DTYPE_FP32);
            struct err e;
            memcpy(changed, bytes, n);
            changed[i] = (char)(changed[i] ^ (flip ? 1 << i % 7 : 0));
            const size_t left = flip ? n : i;
            (void)plan_model_read(&m, temporary_file("model.safetensors", changed, left), &notes,
                                  &e);
            notes.count = 0;
            model_free(&m);
        }
    }
    free(bytes);
    free(changed);
}
END_TEST

int main(void) {
    Suite *s = suite_create("zeroctl/plan_safetensors");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, temporary_begin, temporary_end);
    tcase_add_test(t, units_by_names);
    tcase_add_test(t, what_is_not_trained);
    tcase_add_test(t, offsets);
    tcase_add_test(t, lengths);
    tcase_add_test(t, dimensions);
    tcase_add_test(t, twins);
    tcase_add_test(t, indexes);
    tcase_add_test(t, wrong_indexes);
    tcase_add_test(t, any_bytes);
    suite_add_tcase(s, t);
    return run_suite(s);
}
