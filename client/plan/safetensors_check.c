/* What must hold between the tensors of one safetensors file and its data. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "model_file.h"

unsigned safetensors_bits(const char *dtype) {
    static const struct {
        const char *name;
        unsigned bits;
    } known[] = {
        {"F64", 64},    {"F32", 32}, {"F16", 16}, {"BF16", 16}, {"F8_E4M3", 8},
        {"F8_E5M2", 8}, {"I64", 64}, {"I32", 32}, {"I16", 16},  {"I8", 8},
        {"U64", 64},    {"U32", 32}, {"U16", 16}, {"U8", 8},    {"BOOL", 8},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strcmp(dtype, known[i].name)) {
            return known[i].bits;
        }
    }
    return 0;
}

static int check_size(const struct entry *t, struct err *e) {
    uint64_t bytes = safetensors_bits(t->dtype) / 8;
    bool fits = true, empty = false;
    for (uint32_t i = 0; i < t->dims; i++) {
        empty = empty || !t->shape[i];
        fits = fits && !__builtin_mul_overflow(bytes, t->shape[i], &bytes);
    }
    if (!fits && !empty) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor \"%s\": its shape overflows", t->name);
    }
    bytes = empty ? 0 : bytes;
    if (t->end - t->begin != bytes) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%s\" has data_offsets %ju to %ju: its shape needs %ju bytes",
                       t->name, (uintmax_t)t->begin, (uintmax_t)t->end, (uintmax_t)bytes);
    }
    return 0;
}

static int by_place(const void *a, const void *b) {
    const struct entry *x = *(const struct entry *const *)a;
    const struct entry *y = *(const struct entry *const *)b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

/* |sorted| by place: they must cover the data without hole or overlap. */
static int check_cover(const struct entry **sorted, size_t count, uint64_t data, struct err *e) {
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (sorted[i]->begin != end) {
            return err_set(
                e, ST_INVALID_ARGUMENT, "tensor \"%s\" begins at byte %ju of the data, %s byte %ju",
                sorted[i]->name, (uintmax_t)sorted[i]->begin,
                sorted[i]->begin < end ? "inside what ends at" : "with a hole before it from",
                (uintmax_t)end);
        }
        end = sorted[i]->end;
    }
    if (data && end != data) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensors need %ju bytes of data, the file has %ju",
                       (uintmax_t)end, (uintmax_t)data);
    }
    return 0;
}

int safetensors_check(const struct entries *x, size_t from, uint64_t data, struct err *e) {
    const size_t count = x->count - from;
    const struct entry **sorted = mem_zeroed(count, sizeof *sorted);
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++) {
        sorted[i] = &x->list[from + i];
        rc = check_size(sorted[i], e);
    }
    if (!rc) {
        qsort(sorted, count, sizeof *sorted, by_place);
        rc = check_cover(sorted, count, data, e);
    }
    free(sorted);
    return rc;
}
