/* How options read: the list of `--help`, and limits in error messages. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/opt_inner.h"

enum { LEFT = 30, WIDTH = 90 }; /* columns of the names, of the whole */

static const char *bytes_text(uint64_t n, char text[static 32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned i = 0;
    for (; n && n % 1024 == 0 && i < 4; i++) {
        n /= 1024;
    }
    (void)snprintf(text, 32, "%" PRIu64 " %s", n, units[i]);
    return text;
}

static const char *number_text(const struct opt *o, uint64_t n, char text[static 32]) {
    if (o->kind == OPT_KIND_BYTES) {
        return bytes_text(n, text);
    }
    (void)snprintf(text, 32, "%" PRIu64, n);
    return text;
}

static const char *real_text(double x, char text[static 32]) {
    (void)snprintf(text, 32, "%g", x);
    return text;
}

const char *opt_limits(const struct opt *o, char text[static OPT_LIMITS]) {
    char a[32], b[32];
    const char *space = o->unit ? " " : "", *unit = o->unit ? o->unit : "";
    const char *low = NULL, *high = NULL;
    if (o->kind == OPT_KIND_UNSIGNED || o->kind == OPT_KIND_BYTES) {
        low = o->min ? number_text(o, o->min, a) : NULL;
        high = o->max < UINT64_MAX ? number_text(o, o->max, b) : NULL;
        low = high && !low ? "0" : low;
    } else if (o->kind == OPT_KIND_REAL) {
        low = isfinite(o->low) ? real_text(o->low, a) : NULL;
        high = isfinite(o->high) ? real_text(o->high, b) : NULL;
    }
    if (low && high) {
        (void)snprintf(text, OPT_LIMITS, "%s to %s%s%.40s", low, high, space, unit);
    } else if (low || high) {
        (void)snprintf(text, OPT_LIMITS, "at %s %s%s%.40s", low ? "least" : "most",
                       low ? low : high, space, unit);
    } else {
        (void)snprintf(text, OPT_LIMITS, "%.40s", unit);
    }
    return text;
}

/* "  -n, --ranks N" */
static int print_names(const struct opt *o, FILE *to) {
    char letter[] = {o->letter ? '-' : ' ', o->letter ? o->letter : ' ', o->letter ? ',' : ' ', 0};
    const char *argument = o->argument ? o->argument : "";
    return fprintf(to, "  %s --%s%s%s", letter, o->name, *argument ? " " : "", argument);
}

/* Words of |text| from column LEFT on, broken before WIDTH. */
static void print_wrapped(const char *text, int column, FILE *to) {
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column > LEFT && column + 1 + n > WIDTH) {
            (void)fprintf(to, "\n%*s", LEFT, "");
            column = LEFT;
        }
        column += fprintf(to, "%s%.*s", column > LEFT ? " " : "", n, text);
        text += n;
        text += strspn(text, " ");
    }
}

/* " (1 to 64 ranks; default 4)", or nothing. */
static void remark(const struct opt *o, char *text, size_t size) {
    char limits[OPT_LIMITS] = "";
    const char *what = o->choices ? o->choices : opt_limits(o, limits);
    const char *standard = o->standard && *o->standard ? o->standard : NULL;
    *text = 0;
    if (*what || standard) {
        (void)snprintf(text, size, " (%s%s%s%s)", what, *what && standard ? "; " : "",
                       standard ? "default " : "", standard ? standard : "");
    }
}

void opt_help(const struct opt *table, FILE *to) {
    for (const struct opt *o = table; o->kind != OPT_KIND_END; o++) {
        char text[512], more[256];
        int column = print_names(o, to);
        if (column + 2 > LEFT) {
            (void)fprintf(to, "\n");
            column = 0;
        }
        (void)fprintf(to, "%*s", LEFT - column, "");
        remark(o, more, sizeof more);
        (void)snprintf(text, sizeof text, "%s%s", o->doc, more);
        print_wrapped(text, LEFT, to);
        (void)fprintf(to, "\n");
    }
}
