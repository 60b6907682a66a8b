/* safetensors files with fp32 tensors: 8 bytes little-endian length of the header, the header
 * (JSON: name -> dtype, shape, data_offsets, and perhaps "__metadata__"), then the tensors' bytes,
 * little endian, row major. A small reader that trusts nothing and a writer; F32 only.
 */
#ifndef GPT_SAFETENSORS_H
#define GPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    SAFETENSORS_NAME = 128, /* bytes with NUL */
    SAFETENSORS_DIMS = 8,
    SAFETENSORS_MAX_TENSORS = 100000,
    SAFETENSORS_MAX_HEADER = 16 << 20, /* bytes */
};

struct safetensors_entry {
    char name[SAFETENSORS_NAME];
    size_t dims;
    uint64_t shape[SAFETENSORS_DIMS];
    uint64_t begin, end; /* bytes from the start of the data */
};

/* Parses a header's text and checks it against the |data_bytes| that follow it: dtype F32, end -
 * begin the shape's bytes, names unique, tensors covering the data without hole or overlap. On
 * success *entries (sorted by name, free() it) and *count. INVALID_ARGUMENT with the byte or the
 * tensor; RESOURCE_EXHAUSTED. */
int safetensors_parse(const char *text, size_t bytes, uint64_t data_bytes,
                      struct safetensors_entry **entries, size_t *count, struct err *e);

struct safetensors {
    const char *path; /* borrowed */
    int fd;
    size_t count;
    struct safetensors_entry *entries; /* owned, sorted by name */
    uint64_t data_start;
};

/* Opens and checks. file_open's errors, file_read's and safetensors_parse's. */
int safetensors_open(struct safetensors *f, const char *path, struct err *e);
void safetensors_close(struct safetensors *f); /* zeroed is allowed */

/* INVALID_ARGUMENT: the file has no such tensor, or of another shape (both are named). */
int safetensors_find(const struct safetensors *f, const char *name, size_t dims,
                     const uint64_t *shape, const struct safetensors_entry **entry, struct err *e);

/* Reads the whole tensor; |to| has room for its elements. UNAVAILABLE. */
int safetensors_read(const struct safetensors *f, const struct safetensors_entry *entry, float *to,
                     struct err *e);

struct safetensors_tensor {
    const char *name; /* printable ASCII without quote and backslash */
    size_t dims;
    const uint64_t *shape;
    const float *data;
};

/* Writes path.tmp and renames it, so that |path| is never half written. file_status's. */
int safetensors_write(const char *path, size_t count, const struct safetensors_tensor *tensors,
                      struct err *e);

#endif
