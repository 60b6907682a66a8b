#include "rpc/descriptors.h"

#include <string.h>

extern const unsigned char descriptor_set[];
extern const size_t descriptor_set_size;

struct bytes descriptors_built_in(void) {
    return (struct bytes){descriptor_set, descriptor_set_size};
}

/* ---- the wire format of protobuf ---- */

enum { WIRE_VARINT, WIRE_8_BYTES, WIRE_SIZED, WIRE_4_BYTES = 5 };

static bool read_varint(struct bytes *rest, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64 && rest->len > 0; shift += 7) {
        uint8_t byte = *rest->at++;
        rest->len--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            return true;
        }
    }
    return false;
}

static bool take(struct bytes *rest, uint64_t n, struct bytes *taken) {
    if (n > rest->len) {
        return false;
    }
    *taken = (struct bytes){rest->at, (size_t)n};
    rest->at += n;
    rest->len -= (size_t)n;
    return true;
}

/* The next field; |value| is empty for one that has no size. False: the end, or not protobuf. */
static bool next_field(struct bytes *rest, uint64_t *number, struct bytes *value) {
    uint64_t key, n;
    struct bytes skipped;
    if (!read_varint(rest, &key)) {
        return false;
    }
    *number = key >> 3;
    *value = (struct bytes){0};
    switch (key & 7) {
    case WIRE_VARINT:
        return read_varint(rest, &n);
    case WIRE_8_BYTES:
        return take(rest, 8, &skipped);
    case WIRE_4_BYTES:
        return take(rest, 4, &skipped);
    case WIRE_SIZED:
        return read_varint(rest, &n) && take(rest, n, value);
    default:
        return false;
    }
}

/* The first field with that number; empty when there is none. */
static struct bytes first(struct bytes message, uint64_t number) {
    uint64_t n;
    struct bytes value;
    while (next_field(&message, &n, &value)) {
        if (n == number) {
            return value;
        }
    }
    return (struct bytes){0};
}

static bool equals(struct bytes b, struct bytes other) {
    return b.len == other.len && (b.len == 0 || memcmp(b.at, other.at, b.len) == 0);
}

static struct bytes of_text(const char *text) {
    return (struct bytes){(const uint8_t *)text, strlen(text)};
}

/* ---- descriptors ---- */

enum { SET_FILE = 1, FILE_NAME = 1, FILE_PACKAGE = 2, FILE_IMPORT = 3, OTHER_NAME = 1 };

/* What a descriptor may define within itself: by field number, the kind of what is defined. */
enum kind { NOTHING, LEAF, MESSAGE, SERVICE, OF_FILE };
enum { FIELDS = 9 };
static const enum kind members[][FIELDS] = {
    [LEAF] = {NOTHING},
    [MESSAGE] =
        {[2] = LEAF, [3] = MESSAGE, [4] = LEAF, [8] = LEAF}, /* field, message, enum, oneof */
    [SERVICE] = {[2] = LEAF},                                /* method */
    [OF_FILE] = {[4] = MESSAGE, [5] = LEAF, [6] = SERVICE},  /* enum is the leaf */
};

/* Takes "name", or "name." with more behind it, off the front of |symbol|. */
static bool strip(struct bytes *symbol, struct bytes name) {
    if (name.len == 0 || name.len > symbol->len || memcmp(name.at, symbol->at, name.len) != 0 ||
        name.len + 1 == symbol->len || (name.len < symbol->len && symbol->at[name.len] != '.')) {
        return false;
    }
    size_t n = name.len + (name.len < symbol->len);
    symbol->at += n;
    symbol->len -= n;
    return true;
}

/* Depth is the number of names in |symbol|, and no more than there is nesting in the set. */
static bool defines(struct bytes scope, enum kind kind, struct bytes symbol) {
    uint64_t number;
    struct bytes member;
    while (next_field(&scope, &number, &member)) {
        enum kind of = number < FIELDS ? members[kind][number] : NOTHING;
        struct bytes rest = symbol;
        if (of != NOTHING && strip(&rest, first(member, OTHER_NAME)) &&
            (rest.len == 0 || defines(member, of, rest))) {
            return true;
        }
    }
    return false;
}

static bool file_defines(struct bytes file, struct bytes symbol) {
    struct bytes package = first(file, FILE_PACKAGE);
    return (package.len == 0 || strip(&symbol, package)) && symbol.len > 0 &&
           defines(file, OF_FILE, symbol);
}

static bool file_is_called(struct bytes file, struct bytes name) {
    return equals(first(file, FILE_NAME), name);
}

static bool find(struct bytes set, bool (*is_it)(struct bytes file, struct bytes text),
                 struct bytes text, struct bytes *found) {
    uint64_t number;
    struct bytes file;
    while (next_field(&set, &number, &file)) {
        if (number == SET_FILE && is_it(file, text)) {
            *found = file;
            return true;
        }
    }
    return false;
}

bool descriptors_file(struct bytes set, const char *name, struct bytes *file) {
    return find(set, file_is_called, of_text(name), file);
}

bool descriptors_symbol(struct bytes set, const char *symbol, struct bytes *file) {
    return find(set, file_defines, of_text(symbol), file);
}

static bool has(const struct bytes *files, size_t n, struct bytes file) {
    for (size_t i = 0; i < n; i++) {
        if (files[i].at == file.at) {
            return true;
        }
    }
    return false;
}

size_t descriptors_with_imports(struct bytes set, struct bytes file, size_t cap,
                                struct bytes *files) {
    size_t n = 0;
    if (cap > 0) {
        files[n++] = file;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t number;
        struct bytes rest = files[i], name, import;
        while (next_field(&rest, &number, &name)) {
            if (number == FILE_IMPORT && n < cap && find(set, file_is_called, name, &import) &&
                !has(files, n, import)) {
                files[n++] = import;
            }
        }
    }
    return n;
}
