/* Numbers as people write them. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "plan_inner.h"

void plan_line(struct plan_lines *l, const char *fmt, ...) {
    va_list args;
    if (l->count == PLAN_LINES) {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(l->text[l->count++], PLAN_LINE, fmt, args);
    va_end(args);
}

const char *plan_count_text(uint64_t n, char text[static PLAN_NUMBER]) {
    char digits[24];
    const int count = snprintf(digits, sizeof digits, "%" PRIu64, n);
    size_t to = 0;
    for (int i = 0; i < count; i++) {
        if (i && (count - i) % 3 == 0) {
            text[to++] = ',';
        }
        text[to++] = digits[i];
    }
    text[to] = 0;
    return text;
}

const char *plan_size_text(uint64_t bytes, bool gib, char text[static 2 * PLAN_NUMBER]) {
    int n = snprintf(text, 2 * PLAN_NUMBER, "%.3f GB", (double)bytes / 1e9);
    if (gib) {
        (void)snprintf(text + n, 2 * PLAN_NUMBER - (size_t)n, " (%.3f GiB)",
                       (double)bytes / (1024.0 * 1024.0 * 1024.0));
    }
    return text;
}

struct suffix {
    const char *name;
    double factor;
};

/* A decimal number and one of |suffixes| (the last has no name), whole, from 1 to |max|. */
static bool parse(const char *text, const struct suffix *suffixes, double max, uint64_t *n) {
    char *end;
    if (*text < '0' || *text > '9' || text[1] == 'x' || text[1] == 'X') {
        return false; /* strtod would take spaces, signs, hexadecimal, "inf" */
    }
    double x = strtod(text, &end);
    while (suffixes->name && strcmp(end, suffixes->name)) {
        suffixes++;
    }
    x *= suffixes->factor;
    if ((!suffixes->name && *end) || !(x >= 1 && x <= max) || x != floor(x)) {
        return false;
    }
    *n = (uint64_t)x;
    return true;
}

int plan_parse_count(const char *text, uint64_t *count, struct err *e) {
    static const struct suffix suffixes[] = {
        {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}, {NULL, 1}};
    if (parse(text, suffixes, (double)MODEL_MAX_ELEMENTS, count)) {
        return 0;
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "\"%.60s\" is no number of parameters: write 7e9, 7B or 124M, whole and at most "
                   "%" PRIu64,
                   text, MODEL_MAX_ELEMENTS);
}

int plan_parse_bytes(const char *text, uint64_t *bytes, struct err *e) {
    static const struct suffix suffixes[] = {
        {"kB", 1e3},  {"MB", 1e6},           {"GB", 1e9},
        {"TB", 1e12}, {"KiB", 1024},         {"MiB", 1024.0 * 1024},
        {"B", 1},     {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
        {NULL, 1}};
    if (parse(text, suffixes, 9007199254740992.0, bytes)) {
        return 0;
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "\"%.60s\" is no size: write 80GB (1e9 bytes each) or 80GiB (2^30 each)", text);
}
