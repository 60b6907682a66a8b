/* See text.h. */
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

static enum status status_of(int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return ST_NOT_FOUND;
    case EACCES:
    case EPERM:
        return ST_PERMISSION_DENIED;
    default:
        return ST_UNAVAILABLE;
    }
}

static int read_all(int fd, struct text *t, const char *path, struct err *e) {
    size_t done = 0;
    while (done < t->count) {
        const ssize_t got = read(fd, t->bytes + done, t->count - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return err_set(e, status_of(errno), "data file %s: %s", path, strerror(errno));
        }
        if (got == 0) {
            return err_set(e, ST_UNAVAILABLE, "data file %s became shorter while it was read",
                           path);
        }
        done += (size_t)got;
    }
    return 0;
}

static int load(int fd, struct text *t, const char *path, size_t least, struct err *e) {
    struct stat s;
    if (fstat(fd, &s) < 0) {
        return err_set(e, status_of(errno), "data file %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(s.st_mode)) {
        return err_set(e, ST_INVALID_ARGUMENT, "data file %s is no regular file", path);
    }
    if ((uint64_t)s.st_size < least) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "data file %s has %jd bytes: one sequence and its target need %zu", path,
                       (intmax_t)s.st_size, least);
    }
    t->count = (size_t)s.st_size;
    t->bytes = malloc(t->count);
    if (!t->bytes) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for data file %s: %zu bytes", path,
                       t->count);
    }
    return read_all(fd, t, path, e);
}

int text_load(struct text *t, const char *path, size_t least, struct err *e) {
    *t = (struct text){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return err_set(e, status_of(errno), "data file %s: %s", path, strerror(errno));
    }
    const int rc = load(fd, t, path, least, e);
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
