#include "json.h"

#include <inttypes.h>
#include <math.h>

/* cJSON recurses, so depth is bounded before it starts. */
static int check_depth(const char *text, size_t bytes, struct err *e) {
    unsigned depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (c == '\\' && quoted) {
            i++;
        } else if (c == '"') {
            quoted = !quoted;
        } else if (!quoted && (c == '{' || c == '[') && ++depth > JSON_DEPTH) {
            return err_set(e, ST_INVALID_ARGUMENT, "JSON is nested over %d deep at byte %zu",
                           JSON_DEPTH, i);
        } else if (!quoted && (c == '}' || c == ']') && depth) {
            depth--;
        } else if (c == 0) {
            return err_set(e, ST_INVALID_ARGUMENT, "JSON has a NUL at byte %zu", i);
        }
    }
    return 0;
}

int json_parse(const char *text, size_t bytes, cJSON **object, struct err *e) {
    const char *end = NULL;
    int rc = check_depth(text, bytes, e);
    if (rc) {
        return rc;
    }
    cJSON *parsed = cJSON_ParseWithOpts(text, &end, 1);
    if (!parsed) {
        return err_set(e, ST_INVALID_ARGUMENT, "malformed JSON at byte %zu",
                       end ? (size_t)(end - text) : 0);
    }
    if (!cJSON_IsObject(parsed)) {
        cJSON_Delete(parsed);
        return err_set(e, ST_INVALID_ARGUMENT, "JSON is no object");
    }
    *object = parsed;
    return 0;
}

bool json_whole(const cJSON *item, uint64_t *n) {
    const double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(x >= 0 && x <= 9007199254740992.0) || x != floor(x)) {
        return false;
    }
    *n = (uint64_t)x;
    return true;
}

int json_count(const cJSON *object, const char *key, uint64_t standard, uint64_t min, uint64_t max,
               uint64_t *n, struct err *e) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!item || cJSON_IsNull(item)) {
        *n = standard;
        return standard == UINT64_MAX ? err_set(e, ST_INVALID_ARGUMENT, "\"%s\" is missing", key)
                                      : 0;
    }
    if (!json_whole(item, n) || *n < min || *n > max) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "\"%s\" must be a whole number from %" PRIu64 " to %" PRIu64, key, min, max);
    }
    return 0;
}

int json_flag(const cJSON *object, const char *key, bool standard, bool *flag, struct err *e) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item && !cJSON_IsNull(item) && !cJSON_IsBool(item)) {
        return err_set(e, ST_INVALID_ARGUMENT, "\"%s\" must be true or false", key);
    }
    *flag = cJSON_IsBool(item) ? cJSON_IsTrue(item) : standard;
    return 0;
}
