/* Parsing. Help is in opt_help.c. */
#include "base/opt.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/opt_inner.h"

static int malformed(const struct opt *o, const char *value, const char *wanted, struct err *e) {
    return err_set(e, ST_INVALID_ARGUMENT, "--%s \"%.100s\": must be %s", o->name, value, wanted);
}

static int out_of_range(const struct opt *o, const char *value, struct err *e) {
    char limits[OPT_LIMITS];
    return err_set(e, ST_OUT_OF_RANGE, "--%s %.60s: must be %s", o->name, value,
                   opt_limits(o, limits));
}

/* Digits and the end of them. Over 2^64: *n = UINT64_MAX and false. */
static bool read_digits(const char *s, uint64_t *n, const char **end) {
    bool fits = true;
    for (*n = 0; *s >= '0' && *s <= '9'; s++) {
        uint64_t digit = (uint64_t)(*s - '0');
        fits = fits && !__builtin_mul_overflow(*n, 10, n) && !__builtin_add_overflow(*n, digit, n);
    }
    *end = s;
    *n = fits ? *n : UINT64_MAX;
    return fits;
}

/* 0: |s| is no unit. */
static uint64_t unit_bytes(const char *s) {
    static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB"};
    static const char *const decimal[] = {"kB", "MB", "GB", "TB"};
    uint64_t thousands = 1000;
    if (!*s || !strcmp(s, "B")) {
        return 1;
    }
    for (unsigned i = 0; i < 4; i++, thousands *= 1000) {
        if (!strcmp(s, binary[i])) {
            return UINT64_C(1) << (10 * (i + 1));
        }
        if (!strcmp(s, decimal[i])) {
            return thousands;
        }
    }
    return 0;
}

static int take_number(const struct opt *o, const char *value, struct err *e) {
    uint64_t n;
    const char *end;
    bool bytes = o->kind == OPT_KIND_BYTES;
    bool fits = read_digits(value, &n, &end);
    uint64_t unit = bytes ? unit_bytes(end) : !*end;
    if (end == value || !unit) {
        return malformed(o, value, bytes ? "a size like 64KiB, 2GiB or 80GB" : "a whole number", e);
    }
    if (!fits || __builtin_mul_overflow(n, unit, &n) || n < o->min || n > o->max) {
        return out_of_range(o, value, e);
    }
    *o->to.number = n;
    return 0;
}

static int take_real(const struct opt *o, const char *value, struct err *e) {
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || strspn(value, " \t\n") || !isfinite(x)) {
        return malformed(o, value, "a number", e);
    }
    if (x < o->low || x > o->high) {
        return out_of_range(o, value, e);
    }
    *o->to.real = x;
    return 0;
}

static int take_choice(const struct opt *o, const char *value, struct err *e) {
    size_t n = strlen(value);
    for (const char *c = o->choices; *c;) {
        size_t length = strcspn(c, "|");
        if (length == n && !memcmp(c, value, n)) {
            *o->to.text = value;
            return 0;
        }
        c += length + (c[length] == '|');
    }
    return err_set(e, ST_INVALID_ARGUMENT, "--%s \"%.100s\": must be one of %s", o->name, value,
                   o->choices);
}

static int take(const struct opt *o, const char *value, struct err *e) {
    switch (o->kind) {
    case OPT_KIND_UNSIGNED:
    case OPT_KIND_BYTES:
        return take_number(o, value, e);
    case OPT_KIND_REAL:
        return take_real(o, value, e);
    case OPT_KIND_CHOICE:
        return take_choice(o, value, e);
    case OPT_KIND_TEXT:
        *o->to.text = value;
        return 0;
    case OPT_KIND_FLAG:
    case OPT_KIND_END:
        break;
    }
    assert(false && "a flag takes no value");
    return 0;
}

static void take_defaults(struct opt *table) {
    for (struct opt *o = table; o->kind != OPT_KIND_END; o++) {
        assert(strlen(o->name) <= OPT_NAME);
        o->given = false;
        if (o->kind == OPT_KIND_FLAG) {
            *o->to.flag = false;
        } else if (o->standard) {
            int rc = take(o, o->standard, NULL);
            assert(rc == 0 && "a default that its own row refuses");
            (void)rc;
        }
    }
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Letters to insert, remove or replace to make |b| of |a|[0, n); both at most OPT_NAME long. */
static size_t distance(const char *a, size_t n, const char *b) {
    size_t m = strlen(b), row[OPT_NAME + 1];
    for (size_t j = 0; j <= m; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replace, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}

/* The row whose name is closest to |word|, if close enough to be what was meant; or NULL. */
static const struct opt *nearest(const struct opt *table, const char *word, size_t n) {
    const struct opt *best = NULL;
    size_t best_distance = n / 3 + 2;
    for (const struct opt *o = table; o->kind != OPT_KIND_END && n <= OPT_NAME; o++) {
        size_t d = distance(word, n, o->name);
        if (d < best_distance) {
            best = o;
            best_distance = d;
        }
    }
    return best;
}

static int unknown(const struct opt *table, const char *word, struct err *e) {
    size_t n = 0;
    const struct opt *o = NULL;
    if (word[1] == '-') {
        n = strcspn(word + 2, "=");
        o = nearest(table, word + 2, n);
    }
    if (o) {
        return err_set(e, ST_INVALID_ARGUMENT, "unknown option --%.*s: did you mean --%s?", (int)n,
                       word + 2, o->name);
    }
    return err_set(e, ST_INVALID_ARGUMENT, "unknown option %.100s", word);
}

/* The row of "--name", "--name=value", "-n" or "-nvalue"; *value is NULL where the word has none.
 */
static struct opt *find(struct opt *table, char *word, const char **value) {
    *value = NULL;
    for (struct opt *o = table; o->kind != OPT_KIND_END; o++) {
        if (word[1] == '-') {
            size_t n = strcspn(word + 2, "=");
            if (strlen(o->name) == n && !memcmp(o->name, word + 2, n)) {
                *value = word[2 + n] ? word + 2 + n + 1 : NULL;
                return o;
            }
        } else if (o->letter && word[1] == o->letter) {
            *value = word[2] ? word + 2 : NULL;
            return o;
        }
    }
    return NULL;
}

int opt_parse(struct opt *table, int argc, char *const *argv, int *rest, struct err *e) {
    take_defaults(table);
    int i = 1;
    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        const char *value;
        struct opt *o = find(table, argv[i], &value);
        if (!o) {
            return unknown(table, argv[i], e);
        }
        o->given = true;
        if (o->kind == OPT_KIND_FLAG) {
            if (value) {
                return err_set(e, ST_INVALID_ARGUMENT, "--%s takes no value, not \"%.100s\"",
                               o->name, value);
            }
            *o->to.flag = true;
            continue;
        }
        if (!value && ++i == argc) {
            return err_set(e, ST_INVALID_ARGUMENT, "--%s needs a value: %s", o->name, o->argument);
        }
        int rc = take(o, value ? value : argv[i], e);
        if (rc) {
            return rc;
        }
    }
    *rest = i < argc ? i : argc;
    return 0;
}

bool opt_given(const struct opt *table, const char *name) {
    const struct opt *o = table;
    while (o->kind != OPT_KIND_END && strcmp(o->name, name) != 0) {
        o++;
    }
    assert(o->kind != OPT_KIND_END);
    return o->given;
}

int opt_need(const struct opt *table, const char *const *names, int argc, char *const *argv,
             int rest, struct err *e) {
    for (; *names; names++) {
        if (!opt_given(table, *names)) {
            return err_set(e, ST_INVALID_ARGUMENT, "--%s is needed", *names);
        }
    }
    if (rest < argc) {
        return err_set(e, ST_INVALID_ARGUMENT, "'%.100s' is not an option", argv[rest]);
    }
    return 0;
}
