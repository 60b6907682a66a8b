/* libFuzzer: a safetensors header as the example trainer reads it. The first two bytes: how much
 * data follows the header. What passes must cover that data, in order of its names. */
#include <stdlib.h>
#include <string.h>

#include "client/examples/gpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok) {
    if (!ok) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct safetensors_entry *entries = NULL;
    struct err e = {0};
    size_t count = 0;
    if (size < 2) {
        return 0;
    }
    uint64_t data_bytes = (uint64_t)data[0] | (uint64_t)data[1] << 8, covered = 0;
    char *text = malloc(size); /* of exactly that size, without a NUL: the sanitizer sees the end */
    memcpy(text, data + 2, size - 2);
    text = realloc(text, size - 2 ? size - 2 : 1);
    int rv = safetensors_parse(text, size - 2, data_bytes, &entries, &count, &e);
    must((rv == 0) == (e.code == 0));
    for (size_t i = 0; i < count && rv == 0; i++) {
        must(entries[i].begin <= entries[i].end && entries[i].end <= data_bytes);
        must(i == 0 || strcmp(entries[i - 1].name, entries[i].name) < 0);
        covered += entries[i].end - entries[i].begin;
    }
    must(rv != 0 || covered == data_bytes);
    free(rv == 0 ? entries : NULL);
    free(text);
    return 0;
}
