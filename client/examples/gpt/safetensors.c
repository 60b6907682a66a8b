/* See safetensors.h. */
#include "safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are stored as they lie here");

static int failed(const char *path, const char *what, struct err *e) {
    return err_set(e, errno == ENOENT ? ST_NOT_FOUND : ST_UNAVAILABLE, "%s %s: %s", what, path,
                   strerror(errno));
}

static int read_at(int fd, void *to, size_t bytes, uint64_t from, const char *path, struct err *e) {
    char *at = to;
    while (bytes > 0) {
        const ssize_t got = pread(fd, at, bytes, (off_t)from);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return failed(path, "reading", e);
        }
        if (got == 0) {
            return err_set(e, ST_UNAVAILABLE, "%s ends in the middle", path);
        }
        at += got;
        from += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}

static int read_header(struct safetensors *f, struct err *e) {
    struct stat s;
    unsigned char length[8];
    if (fstat(f->fd, &s) < 0) {
        return failed(f->path, "opening", e);
    }
    if (!S_ISREG(s.st_mode) || s.st_size < 8) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s is no safetensors file: %s", f->path,
                       S_ISREG(s.st_mode) ? "shorter than 8 bytes" : "no regular file");
    }
    const uint64_t size = (uint64_t)s.st_size;
    int rc = read_at(f->fd, length, sizeof length, 0, f->path, e);
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
    rc = read_at(f->fd, text, bytes, 8, f->path, e);
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
    *f = (struct safetensors){.path = path};
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0) {
        return failed(path, "opening", e);
    }
    const int rc = read_header(f, e);
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
    return read_at(f->fd, to, entry->end - entry->begin, f->data_start + entry->begin, f->path, e);
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

int safetensors_write(const char *path, size_t count, const struct safetensors_tensor *tensors,
                      struct err *e) {
    char temporary[4096];
    const int n = snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (n < 0 || (size_t)n >= sizeof temporary) {
        return err_set(e, ST_INVALID_ARGUMENT, "the path of a dump has more than 4091 bytes");
    }
    FILE *out = fopen(temporary, "we");
    if (!out) {
        return failed(temporary, "writing", e);
    }
    int rc = write_file(out, count, tensors);
    rc = fclose(out) != 0 || rc < 0 ? -1 : 0;
    if (rc < 0 || rename(temporary, path) < 0) {
        rc = failed(path, "writing", e);
        unlink(temporary);
        return rc;
    }
    return 0;
}
