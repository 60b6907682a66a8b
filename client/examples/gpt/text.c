/* See text.h. */
#include "text.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"

static int load(int fd, uint64_t size, struct text *t, const char *path, size_t least,
                struct err *e) {
    if (size < least) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "data file %s has %ju bytes: one sequence and its target need %zu", path,
                       (uintmax_t)size, least);
    }
    t->count = (size_t)size;
    t->bytes = malloc(t->count);
    if (!t->bytes) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for data file %s: %zu bytes", path,
                       t->count);
    }
    return file_read(fd, path, 0, t->bytes, t->count, e);
}

int text_load(struct text *t, const char *path, size_t least, struct err *e) {
    uint64_t size;
    int fd;
    *t = (struct text){0};
    int rc = file_open(path, &fd, &size, e);
    if (rc < 0) {
        return rc;
    }
    rc = load(fd, size, t, path, least, e);
    close(fd);
    if (rc < 0) {
        text_free(t);
    }
    return rc;
}

void text_free(struct text *t) {
    free(t->bytes);
    *t = (struct text){0};
}

uint64_t text_offset(const struct text_place *p, uint64_t starts) {
    uint64_t h = mix64(p->seed);
    h = mix64(h ^ p->step);
    h = mix64(h ^ p->micro_batch);
    h = mix64(h ^ p->rank);
    h = mix64(h ^ p->sequence);
    return h % starts;
}
