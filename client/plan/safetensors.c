/* The header of a safetensors file: 8 bytes little-endian length, then JSON of that many bytes:
 * name
 * -> dtype, shape, data_offsets, and perhaps "__metadata__". Tensors' bytes follow; they are not
 * read and may even be missing altogether (a header fetched alone). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "model_file.h"

void entries_free(struct entries *x) {
    free(x->list);
    *x = (struct entries){0};
}

static int add_entry(struct entries *x, struct entry **added, struct err *e) {
    if (x->count == MODEL_MAX_TENSORS) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "more than %d tensors", MODEL_MAX_TENSORS);
    }
    if (x->count == x->cap) {
        const size_t cap = x->cap ? 2 * x->cap : 64;
        struct entry *list = realloc(x->list, cap * sizeof *list);
        if (!list) {
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu tensors", cap);
        }
        x->list = list;
        x->cap = cap;
    }
    *added = &x->list[x->count++];
    **added = (struct entry){.dims = 0};
    return 0;
}

static int take_shape(const cJSON *shape, struct entry *t, struct err *e) {
    const cJSON *item;
    if (!cJSON_IsArray(shape)) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor \"%s\" has no shape", t->name);
    }
    cJSON_ArrayForEach(item, shape) {
        if (t->dims == MODEL_DIMS) {
            return err_set(e, ST_RESOURCE_EXHAUSTED, "tensor \"%s\" has more than %d dimensions",
                           t->name, MODEL_DIMS);
        }
        if (!json_whole(item, &t->shape[t->dims++])) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "tensor \"%s\": its shape has what is no size at %u", t->name,
                           t->dims - 1);
        }
    }
    return 0;
}

static int take_offsets(const cJSON *offsets, struct entry *t, struct err *e) {
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !json_whole(offsets->child, &t->begin) || !json_whole(offsets->child->next, &t->end) ||
        t->begin > t->end) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%s\": data_offsets must be two whole numbers in order", t->name);
    }
    return 0;
}

static int take_entry(const cJSON *item, unsigned file, struct entries *x, struct err *e) {
    const char *name = item->string;
    struct entry *t = NULL;
    if (!name || !*name || strlen(name) >= sizeof t->name) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "a tensor's name is empty or over %d bytes: \"%.40s\"", MODEL_NAME - 1,
                       name ? name : "");
    }
    if (!cJSON_IsObject(item) || cJSON_GetArraySize(item) != 3) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "tensor \"%s\" must have dtype, shape and data_offsets only", name);
    }
    int rc = add_entry(x, &t, e);
    if (rc) {
        return rc;
    }
    t->file = file;
    memcpy(t->name, name, strlen(name) + 1);
    const char *dtype = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "dtype"));
    if (!dtype || strlen(dtype) >= sizeof t->dtype || !safetensors_bits(dtype)) {
        return err_set(e, ST_INVALID_ARGUMENT, "tensor \"%s\": unknown dtype \"%.20s\"", name,
                       dtype ? dtype : "");
    }
    memcpy(t->dtype, dtype, strlen(dtype) + 1);
    rc = take_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), t, e);
    return rc ? rc : take_offsets(cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), t, e);
}

static int take_header(const cJSON *header, unsigned file, struct entries *x, struct err *e) {
    const cJSON *item;
    cJSON_ArrayForEach(item, header) {
        if (item->string && !strcmp(item->string, "__metadata__")) {
            continue;
        }
        int rc = take_entry(item, file, x, e);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* The header's length, from the file's first 8 bytes. */
static int read_length(int fd, const char *path, uint64_t size, uint64_t *bytes, struct err *e) {
    unsigned char length[8];
    if (size < 10) {
        return err_set(e, ST_INVALID_ARGUMENT, "no safetensors file: %ju bytes long",
                       (uintmax_t)size);
    }
    int rc = file_read(fd, path, 0, length, sizeof length, e);
    *bytes = 0;
    for (size_t i = sizeof length; i-- > 0;) {
        *bytes = *bytes << 8 | length[i];
    }
    if (!rc && (*bytes < 2 || *bytes > JSON_HEADER_MAX || *bytes > size - 8)) {
        rc = err_set(e, ST_INVALID_ARGUMENT,
                     "a header of %ju bytes in a file of %ju: the limit is %d", (uintmax_t)*bytes,
                     (uintmax_t)size, JSON_HEADER_MAX);
    }
    return rc;
}

static int read_header(int fd, const char *path, uint64_t size, unsigned file, struct entries *x,
                       struct err *e) {
    const size_t first = x->count;
    cJSON *header = NULL;
    uint64_t bytes = 0;
    int rc = read_length(fd, path, size, &bytes, e);
    if (rc) {
        return rc;
    }
    char *text = mem_zeroed(bytes + 1, 1);
    rc = file_read(fd, path, 8, text, bytes, e);
    if (!rc) {
        rc = json_parse(text, bytes, &header, e);
    }
    free(text);
    if (!rc) {
        rc = take_header(header, file, x, e);
        cJSON_Delete(header);
    }
    return rc ? rc : safetensors_check(x, first, size - 8 - bytes, e);
}

int safetensors_entries(const char *path, unsigned file, struct entries *x, struct err *e) {
    uint64_t size;
    int fd;
    int rc = file_open(path, &fd, &size, e);
    if (!rc) {
        rc = read_header(fd, path, size, file, x, e);
        (void)close(fd);
    }
    return rc;
}
