/* Finds out what kind of model file it is, by its content. */
#include "model_file.h"

#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

static int read_json(const cJSON *o, const char *path, struct model *m, struct plan_lines *notes,
                     struct err *e) {
    if (!cJSON_GetObjectItemCaseSensitive(o, "weight_map")) {
        return config_read(o, m, notes, e);
    }
    struct entries x = {0};
    int rc = index_entries(o, path, &x, notes, e);
    if (!rc) {
        rc = entries_units(&x, m, notes, e);
    }
    entries_free(&x);
    return rc;
}

static int read_text(int fd, const char *path, uint64_t size, struct model *m,
                     struct plan_lines *notes, struct err *e) {
    if (size > JSON_HEADER_MAX) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "JSON of %ju bytes: the limit is %d",
                       (uintmax_t)size, JSON_HEADER_MAX);
    }
    char *text = mem_zeroed(size + 1, 1);
    cJSON *object = NULL;
    int rc = file_read(fd, path, 0, text, size, e);
    if (!rc) {
        rc = json_parse(text, size, &object, e);
    }
    free(text);
    if (!rc) {
        rc = read_json(object, path, m, notes, e);
        cJSON_Delete(object);
    }
    return rc;
}

static int read_safetensors(const char *path, struct model *m, struct plan_lines *notes,
                            struct err *e) {
    struct entries x = {0};
    int rc = safetensors_entries(path, 0, &x, e);
    if (!rc) {
        rc = entries_units(&x, m, notes, e);
    }
    entries_free(&x);
    return rc;
}

static int read_any(int fd, const char *path, uint64_t size, struct model *m,
                    struct plan_lines *notes, struct err *e) {
    char start[9] = {0};
    const size_t n = size < sizeof start ? size : sizeof start;
    int rc = file_read(fd, path, 0, start, n, e);
    if (rc) {
        return rc;
    }
    if (n == sizeof start && start[8] == '{' && start[6] == 0 && start[7] == 0) {
        return read_safetensors(path, m, notes, e);
    }
    for (size_t i = 0; i < n; i++) {
        if (start[i] == '{') {
            return read_text(fd, path, size, m, notes, e);
        }
        if (!isspace((unsigned char)start[i])) {
            break;
        }
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "neither JSON (a config.json or an index) nor a safetensors file");
}

int plan_model_read(struct model *m, const char *path, struct plan_lines *notes, struct err *e) {
    struct err inner = {0};
    uint64_t size;
    int fd;
    int rc = file_open(path, &fd, &size, e);
    if (rc) {
        return rc;
    }
    rc = read_any(fd, path, size, m, notes, &inner);
    (void)close(fd);
    return rc ? err_set(e, (enum status)inner.code, "%.120s: %.190s", path, inner.text) : 0;
}
