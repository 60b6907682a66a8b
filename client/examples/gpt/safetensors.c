/* See safetensors.h. */
#include "safetensors.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are stored as they lie here");

static int read_header(struct safetensors *f, uint64_t size, struct err *e) {
    unsigned char length[8];
    if (size < sizeof length) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s is no safetensors file: shorter than 8 bytes",
                       f->path);
    }
    int rc = file_read(f->fd, f->path, 0, length, sizeof length, e);
    if (rc < 0) {
        return rc;
    }
    uint64_t bytes = 0;
    for (size_t i = sizeof length; i-- > 0;) {
        bytes = bytes << 8 | length[i];
    }
    if (bytes > SAFETENSORS_MAX_HEADER || bytes > size - 8) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "%s: a header of %ju bytes; the file has %ju and the limit is %d", f->path,
                       (uintmax_t)bytes, (uintmax_t)size, SAFETENSORS_MAX_HEADER);
    }
    char *text = mem_zeroed(bytes + 1, 1);
    rc = file_read(f->fd, f->path, 8, text, bytes, e);
    f->data_start = 8 + bytes;
    if (rc == 0) {
        struct err inner;
        rc = safetensors_parse(text, bytes, size - f->data_start, &f->entries, &f->count, &inner);
        if (rc < 0) {
            (void)err_set(e, (enum status)inner.code, "%s: %s", f->path, inner.text);
        }
    }
    free(text);
    return rc;
}

int safetensors_open(struct safetensors *f, const char *path, struct err *e) {
    uint64_t size;
    *f = (struct safetensors){.path = path, .fd = -1};
    int rc = file_open(path, &f->fd, &size, e);
    if (rc < 0) {
        return rc;
    }
    rc = read_header(f, size, e);
    if (rc < 0) {
        safetensors_close(f);
    }
    return rc;
}

void safetensors_close(struct safetensors *f) {
    if (f->path && f->fd >= 0) {
        close(f->fd);
    }
    free(f->entries);
    *f = (struct safetensors){.fd = -1};
}

static const char *shape_text(size_t dims, const uint64_t *shape, char text[static 192]) {
    size_t n = (size_t)snprintf(text, 192, "[");
    for (size_t i = 0; i < dims; i++) {
        n += (size_t)snprintf(text + n, 192 - n, "%s%" PRIu64, i ? ", " : "", shape[i]);
    }
    snprintf(text + n, 192 - n, "]");
    return text;
}

static int compare_name(const void *name, const void *entry) {
    return strcmp(name, ((const struct safetensors_entry *)entry)->name);
}

int safetensors_find(const struct safetensors *f, const char *name, size_t dims,
                     const uint64_t *shape, const struct safetensors_entry **entry, struct err *e) {
    char have[192], want[192];
    const struct safetensors_entry *found =
        f->count ? bsearch(name, f->entries, f->count, sizeof *f->entries, compare_name) : NULL;
    if (!found) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s has no tensor %s", f->path, name);
    }
    if (found->dims != dims || memcmp(found->shape, shape, dims * sizeof *shape) != 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s: tensor %s is %s, the model's is %s", f->path,
                       name, shape_text(found->dims, found->shape, have),
                       shape_text(dims, shape, want));
    }
    *entry = found;
    return 0;
}

int safetensors_read(const struct safetensors *f, const struct safetensors_entry *entry, float *to,
                     struct err *e) {
    return file_read(f->fd, f->path, f->data_start + entry->begin, to, entry->end - entry->begin,
                     e);
}

static uint64_t tensor_bytes(const struct safetensors_tensor *t) {
    uint64_t n = sizeof(float);
    for (size_t i = 0; i < t->dims; i++) {
        n *= t->shape[i];
    }
    return n;
}

/* The header with the 8 bytes of its length before it, padded so that the data is aligned to 8. */
static void build_header(struct buf *b, size_t count, const struct safetensors_tensor *tensors) {
    char text[SAFETENSORS_NAME + 320], shape[192];
    uint64_t at = 0;
    buf_append(b, "\0\0\0\0\0\0\0\0{", 9);
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_tensor *t = &tensors[i];
        assert(strlen(t->name) < SAFETENSORS_NAME && t->dims <= SAFETENSORS_DIMS);
        const uint64_t end = at + tensor_bytes(t);
        const int n = snprintf(
            text, sizeof text,
            "%s\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
            i ? "," : "", t->name, shape_text(t->dims, t->shape, shape), at, end);
        buf_append(b, text, (size_t)n);
        at = end;
    }
    buf_append(b, "}", 1);
    while (buf_unread(b) % 8 != 0) {
        buf_append(b, " ", 1);
    }
    const uint64_t length = buf_unread(b) - 8;
    for (size_t i = 0; i < 8; i++) {
        b->data[b->off + i] = (uint8_t)(length >> (8 * i));
    }
}

static int write_file(FILE *out, size_t count, const struct safetensors_tensor *tensors) {
    struct buf header = {0};
    build_header(&header, count, tensors);
    size_t bad = fwrite(buf_bytes(&header), buf_unread(&header), 1, out) != 1;
    buf_free(&header);
    for (size_t i = 0; i < count; i++) {
        const uint64_t bytes = tensor_bytes(&tensors[i]);
        bad += bytes > 0 && fwrite(tensors[i].data, bytes, 1, out) != 1;
    }
    bad += fflush(out) != 0 || fsync(fileno(out)) != 0;
    return bad ? -1 : 0;
}

static int failed(const char *path, struct err *e) {
    return err_set(e, file_status(errno), "writing %s: %s", path, strerror(errno));
}

int safetensors_write(const char *path, size_t count, const struct safetensors_tensor *tensors,
                      struct err *e) {
    char temporary[4096];
    const int n = snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (n < 0 || (size_t)n >= sizeof temporary) {
        return err_set(e, ST_INVALID_ARGUMENT, "the path of a dump has more than 4091 bytes");
    }
    FILE *out = fopen(temporary, "we");
    if (!out) {
        return failed(temporary, e);
    }
    int rc = write_file(out, count, tensors);
    rc = fclose(out) != 0 || rc < 0 ? -1 : 0;
    if (rc < 0 || rename(temporary, path) < 0) {
        rc = failed(path, e);
        unlink(temporary);
        return rc;
    }
    return 0;
}
