/* The header of a safetensors file: a strict reader of the little JSON that it may be. */
#include "safetensors.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *text;
    size_t at, bytes;
    struct safetensors_entry *entries; /* owned */
    size_t count, cap;
    struct err *e;
};

static int fail(const struct parser *p, const char *what) {
    return err_set(p->e, ST_INVALID_ARGUMENT, "safetensors header, byte %zu: %s", p->at, what);
}

static void skip_space(struct parser *p) {
    while (p->at < p->bytes && strchr(" \t\r\n", p->text[p->at]) && p->text[p->at] != '\0') {
        p->at++;
    }
}

static bool accept(struct parser *p, char c) {
    skip_space(p);
    if (p->at < p->bytes && p->text[p->at] == c) {
        p->at++;
        return true;
    }
    return false;
}

static int expect(struct parser *p, char c) {
    char what[32];
    if (accept(p, c)) {
        return 0;
    }
    snprintf(what, sizeof what, "'%c' is missing", c);
    return fail(p, what);
}

/* After "\u": four hex digits as UTF-8 in |out|; returns its length, 0 when malformed. Surrogates
 * and NUL are refused: names that need them are none that we could have. */
static size_t parse_unicode(struct parser *p, char out[3]) {
    unsigned code = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        const char *digits = "0123456789abcdef";
        if (p->at >= p->bytes || p->text[p->at] == '\0') {
            return 0;
        }
        const char lower =
            (char)(p->text[p->at] | ('A' <= p->text[p->at] && p->text[p->at] <= 'F' ? 0x20 : 0));
        const char *digit = strchr(digits, lower);
        if (!digit) {
            return 0;
        }
        code = code * 16 + (unsigned)(digit - digits);
    }
    if (code == 0 || (code >= 0xD800 && code < 0xE000)) {
        return 0;
    }
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    out[0] = (char)(0xE0 | code >> 12);
    out[1] = (char)(0x80 | (code >> 6 & 0x3F));
    out[2] = (char)(0x80 | (code & 0x3F));
    return 3;
}

/* One character of a string, perhaps escaped; returns its bytes in |out|, 0 when malformed. */
static size_t parse_character(struct parser *p, char out[3]) {
    const char c = p->text[p->at++];
    if ((unsigned char)c < 0x20) {
        return 0;
    }
    out[0] = c;
    if (c != '\\') {
        return 1;
    }
    if (p->at >= p->bytes) {
        return 0;
    }
    const char kind = p->text[p->at++];
    if (kind == 'u') {
        return parse_unicode(p, out);
    }
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = kind ? strchr(from, kind) : NULL;
    if (!found) {
        return 0;
    }
    out[0] = to[found - from];
    return 1;
}

/* |to| has room for SAFETENSORS_NAME bytes; NULL: the string is skipped, of any length. */
static int parse_string(struct parser *p, char *to) {
    size_t n = 0;
    if (!accept(p, '"')) {
        return fail(p, "a string is missing");
    }
    while (p->at < p->bytes && p->text[p->at] != '"') {
        char out[3];
        const size_t length = parse_character(p, out);
        if (length == 0) {
            return fail(p, "malformed string");
        }
        if (to && n + length >= SAFETENSORS_NAME) {
            return fail(p, "a name of more than 127 bytes");
        }
        if (to) {
            memcpy(to + n, out, length);
            n += length;
        }
    }
    if (to) {
        to[n] = '\0';
    }
    return expect(p, '"');
}

static int parse_number(struct parser *p, uint64_t *n) {
    skip_space(p);
    const size_t start = p->at;
    *n = 0;
    while (p->at < p->bytes && p->text[p->at] >= '0' && p->text[p->at] <= '9') {
        if (__builtin_mul_overflow(*n, UINT64_C(10), n) ||
            __builtin_add_overflow(*n, (uint64_t)(p->text[p->at] - '0'), n)) {
            return fail(p, "a number over 64 bits");
        }
        p->at++;
    }
    if (p->at == start) {
        return fail(p, "a whole number is missing");
    }
    return p->text[start] == '0' && p->at > start + 1 ? fail(p, "a number with leading 0") : 0;
}

static int parse_numbers(struct parser *p, size_t cap, uint64_t *list, size_t *count) {
    int rc = expect(p, '[');
    *count = 0;
    if (rc < 0 || accept(p, ']')) {
        return rc;
    }
    do {
        if (*count == cap) {
            return fail(p, "a list that is too long");
        }
        rc = parse_number(p, &list[(*count)++]);
    } while (rc == 0 && accept(p, ','));
    return rc < 0 ? rc : expect(p, ']');
}

static int parse_field(struct parser *p, struct safetensors_entry *t, unsigned *seen) {
    char text[SAFETENSORS_NAME];
    uint64_t offsets[2];
    size_t count = 0;
    int rc = parse_string(p, text);
    rc = rc == 0 ? expect(p, ':') : rc;
    if (rc < 0) {
        return rc;
    }
    unsigned bit = 0;
    if (strcmp(text, "dtype") == 0) {
        bit = 1;
        rc = parse_string(p, text);
        if (rc == 0 && strcmp(text, "F32") != 0) {
            return err_set(p->e, ST_INVALID_ARGUMENT, "tensor %.100s has dtype %.40s: only F32",
                           t->name, text);
        }
    } else if (strcmp(text, "shape") == 0) {
        bit = 2;
        rc = parse_numbers(p, SAFETENSORS_DIMS, t->shape, &t->dims);
    } else if (strcmp(text, "data_offsets") == 0) {
        bit = 4;
        rc = parse_numbers(p, 2, offsets, &count);
        if (rc == 0 && count != 2) {
            return fail(p, "data_offsets are two numbers");
        }
        t->begin = offsets[0];
        t->end = offsets[1];
    } else {
        return fail(p, "a tensor has only dtype, shape and data_offsets");
    }
    if (rc == 0 && (*seen & bit)) {
        return fail(p, "a key that was given before");
    }
    *seen |= bit;
    return rc;
}

static int check_size(const struct parser *p, const struct safetensors_entry *t,
                      uint64_t data_bytes) {
    uint64_t bytes = sizeof(float);
    for (size_t i = 0; i < t->dims; i++) {
        if (__builtin_mul_overflow(bytes, t->shape[i], &bytes)) {
            return err_set(p->e, ST_INVALID_ARGUMENT, "tensor %s: its shape overflows", t->name);
        }
    }
    if (t->begin > t->end || t->end > data_bytes || t->end - t->begin != bytes) {
        return err_set(p->e, ST_INVALID_ARGUMENT,
                       "tensor %s: data_offsets %ju to %ju, its shape needs %ju bytes and the "
                       "file has %ju",
                       t->name, (uintmax_t)t->begin, (uintmax_t)t->end, (uintmax_t)bytes,
                       (uintmax_t)data_bytes);
    }
    return 0;
}

static int parse_tensor(struct parser *p, const char *name, uint64_t data_bytes) {
    if (p->count == SAFETENSORS_MAX_TENSORS) {
        return fail(p, "more than 100000 tensors");
    }
    if (p->count == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 64;
        void *more = realloc(p->entries, cap * sizeof *p->entries);
        if (!more) {
            return err_set(p->e, ST_RESOURCE_EXHAUSTED, "no memory for %zu tensor names", cap);
        }
        p->entries = more;
        p->cap = cap;
    }
    struct safetensors_entry *t = &p->entries[p->count++];
    unsigned seen = 0;
    *t = (struct safetensors_entry){.dims = 0};
    memcpy(t->name, name, sizeof t->name);
    int rc = expect(p, '{');
    do {
        rc = rc == 0 ? parse_field(p, t, &seen) : rc;
    } while (rc == 0 && accept(p, ','));
    rc = rc == 0 ? expect(p, '}') : rc;
    if (rc == 0 && seen != 7) {
        return fail(p, "a tensor without dtype, shape or data_offsets");
    }
    return rc < 0 ? rc : check_size(p, t, data_bytes);
}

static int parse_metadata(struct parser *p) {
    int rc = expect(p, '{');
    if (rc < 0 || accept(p, '}')) {
        return rc;
    }
    do {
        rc = parse_string(p, NULL);
        rc = rc == 0 ? expect(p, ':') : rc;
        rc = rc == 0 ? parse_string(p, NULL) : rc;
    } while (rc == 0 && accept(p, ','));
    return rc < 0 ? rc : expect(p, '}');
}

static int parse_header(struct parser *p, uint64_t data_bytes) {
    char name[SAFETENSORS_NAME] = "";
    int rc = p->bytes > 0 && p->text[0] == '{' ? expect(p, '{') : fail(p, "'{' is missing");
    if (rc == 0 && !accept(p, '}')) {
        do {
            rc = parse_string(p, name);
            rc = rc == 0 ? expect(p, ':') : rc;
            if (rc == 0) {
                rc = strcmp(name, "__metadata__") == 0 ? parse_metadata(p)
                                                       : parse_tensor(p, name, data_bytes);
            }
        } while (rc == 0 && accept(p, ','));
        rc = rc == 0 ? expect(p, '}') : rc;
    }
    skip_space(p);
    return rc == 0 && p->at < p->bytes ? fail(p, "text after the end") : rc;
}

static int by_place(const void *a, const void *b) {
    const struct safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct safetensors_entry *)a)->name,
                  ((const struct safetensors_entry *)b)->name);
}

static int check_together(struct parser *p, uint64_t data_bytes) {
    uint64_t end = 0;
    if (p->count > 0) {
        qsort(p->entries, p->count, sizeof *p->entries, by_place);
    }
    for (size_t i = 0; i < p->count; i++) {
        const struct safetensors_entry *t = &p->entries[i];
        if (t->begin != end) {
            return err_set(p->e, ST_INVALID_ARGUMENT,
                           "tensor %s begins at byte %ju of the data: %s byte %ju", t->name,
                           (uintmax_t)t->begin,
                           t->begin < end ? "it overlaps what ends at" : "there is a hole from",
                           (uintmax_t)end);
        }
        end = t->end;
    }
    if (end != data_bytes) {
        return err_set(p->e, ST_INVALID_ARGUMENT, "tensors end at byte %ju of %ju of the data",
                       (uintmax_t)end, (uintmax_t)data_bytes);
    }
    if (p->count > 0) {
        qsort(p->entries, p->count, sizeof *p->entries, by_name);
    }
    for (size_t i = 1; i < p->count; i++) {
        if (by_name(&p->entries[i - 1], &p->entries[i]) == 0) {
            return err_set(p->e, ST_INVALID_ARGUMENT, "tensor %s is there twice",
                           p->entries[i].name);
        }
    }
    return 0;
}

int safetensors_parse(const char *text, size_t bytes, uint64_t data_bytes,
                      struct safetensors_entry **entries, size_t *count, struct err *e) {
    struct parser p = {.text = text, .bytes = bytes, .e = e};
    int rc = parse_header(&p, data_bytes);
    rc = rc == 0 ? check_together(&p, data_bytes) : rc;
    if (rc < 0) {
        free(p.entries);
        return rc;
    }
    *entries = p.entries;
    *count = p.count;
    return 0;
}
