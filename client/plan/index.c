/* model.safetensors.index.json: {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}.
 * It has no shapes, so the headers of its files are read too; they lie beside it. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "model_file.h"

enum { FILES_MAX = 10000, PATH_BYTES = 4096, FILE_NAME = 256 };

/* A tensor and its file, as the index says; pointers into the JSON. */
struct mapped {
    const char *tensor, *file;
};

struct map {
    size_t count;
    struct mapped *list; /* owned; sorted by file, then tensor */
};

/* A plain name: the index must not lead elsewhere. */
static bool is_plain(const char *file) {
    const char *suffix = ".safetensors";
    const size_t n = strlen(file), end = strlen(suffix);
    return n > end && n < FILE_NAME && *file != '.' && !strchr(file, '/') &&
           !strcmp(file + n - end, suffix);
}

static int by_file_and_tensor(const void *a, const void *b) {
    const struct mapped *x = a, *y = b;
    const int order = strcmp(x->file, y->file);
    return order ? order : strcmp(x->tensor, y->tensor);
}

static int take_map(const cJSON *weights, struct map *map, struct err *e) {
    const cJSON *item;
    if (!cJSON_IsObject(weights) || !weights->child) {
        return err_set(e, ST_INVALID_ARGUMENT, "\"weight_map\" is no object of tensors");
    }
    const size_t count = (size_t)cJSON_GetArraySize(weights);
    if (count > MODEL_MAX_TENSORS) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%zu tensors: the limit is %d", count,
                       MODEL_MAX_TENSORS);
    }
    map->list = mem_zeroed(count, sizeof *map->list);
    cJSON_ArrayForEach(item, weights) {
        const char *file = cJSON_GetStringValue(item);
        if (!file || !is_plain(file)) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "tensor \"%.100s\" is in \"%.60s\": that is no name of a .safetensors "
                           "file in the same folder",
                           item->string, file ? file : "");
        }
        map->list[map->count++] = (struct mapped){item->string, file};
    }
    qsort(map->list, map->count, sizeof *map->list, by_file_and_tensor);
    return 0;
}

/* "<folder of index>/<file>" */
static int beside(const char *index, const char *file, char path[static PATH_BYTES],
                  struct err *e) {
    const char *slash = strrchr(index, '/');
    const int folder = slash ? (int)(slash - index + 1) : 0;
    const int n = snprintf(path, PATH_BYTES, "%.*s%s", folder, index, file);
    return n < PATH_BYTES ? 0 : err_set(e, ST_INVALID_ARGUMENT, "the path is too long");
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* The file's tensors are those that the index says: |map| from |first| on, |count| of them. */
static int compare(struct entry *list, size_t found, const struct mapped *map, size_t count,
                   struct err *e) {
    if (found) {
        qsort(list, found, sizeof *list, by_name);
    }
    for (size_t i = 0; i < found || i < count; i++) {
        const int order = i == found ? 1 : i == count ? -1 : strcmp(list[i].name, map[i].tensor);
        if (order < 0) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "\"%.60s\" has tensor \"%.90s\", which the index does not have there",
                           map[0].file, list[i].name);
        }
        if (order > 0) {
            return err_set(e, ST_INVALID_ARGUMENT,
                           "the index has tensor \"%.90s\" in \"%.60s\", which lacks it",
                           map[i].tensor, map[0].file);
        }
    }
    return 0;
}

static int read_file(const struct mapped *map, size_t count, const char *index, unsigned file,
                     struct entries *x, struct err *e) {
    const size_t first = x->count;
    char path[PATH_BYTES];
    struct err inner = {0};
    int rc = beside(index, map->file, path, e);
    if (rc) {
        return rc;
    }
    rc = safetensors_entries(path, file, x, &inner);
    if (rc == -ST_NOT_FOUND) {
        return err_set(e, ST_NOT_FOUND,
                       "it names \"%.80s\", which is not beside it: an index has no shapes, the "
                       "headers of its files are needed (or use config.json)",
                       map->file);
    }
    if (rc) {
        return err_set(e, (enum status)inner.code, "%.60s: %.200s", map->file, inner.text);
    }
    return compare(x->list + first, x->count - first, map, count, e);
}

static int read_files(const struct map *map, const char *path, struct entries *x, struct err *e) {
    unsigned files = 0;
    int rc = 0;
    for (size_t i = 0, end; i < map->count && !rc; i = end) {
        for (end = i + 1; end < map->count && !strcmp(map->list[i].file, map->list[end].file);) {
            end++;
        }
        if (files == FILES_MAX) {
            return err_set(e, ST_RESOURCE_EXHAUSTED, "more than %d files", FILES_MAX);
        }
        rc = read_file(&map->list[i], end - i, path, files++, x, e);
    }
    return rc;
}

static void note_total(const cJSON *index, const struct entries *x, struct plan_lines *notes) {
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(index, "metadata");
    uint64_t said, bytes = 0;
    for (size_t i = 0; i < x->count; i++) {
        bytes += x->list[i].end - x->list[i].begin;
    }
    if (json_whole(cJSON_GetObjectItemCaseSensitive(metadata, "total_size"), &said) &&
        said != bytes) {
        plan_line(notes, "the index says %ju bytes in all, its files have %ju", (uintmax_t)said,
                  (uintmax_t)bytes);
    }
}

int index_entries(const cJSON *index, const char *path, struct entries *x, struct plan_lines *notes,
                  struct err *e) {
    struct map map = {0};
    int rc = take_map(cJSON_GetObjectItemCaseSensitive(index, "weight_map"), &map, e);
    if (!rc) {
        rc = read_files(&map, path, x, e);
    }
    if (!rc) {
        note_total(index, x, notes);
    }
    free(map.list);
    return rc;
}
