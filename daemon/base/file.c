#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_status(int error) {
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

static int failed(const char *path, const char *what, struct err *e) {
    return err_set(e, file_status(errno), "%s %.200s: %s", what, path, strerror(errno));
}

static int look(int fd, const char *path, uint64_t *size, struct err *e) {
    struct stat s;
    if (fstat(fd, &s) < 0) {
        return failed(path, "opening", e);
    }
    if (!S_ISREG(s.st_mode)) {
        return err_set(e, ST_INVALID_ARGUMENT, "%.200s is no regular file", path);
    }
    *size = (uint64_t)s.st_size;
    return 0;
}

int file_open(const char *path, int *fd, uint64_t *size, struct err *e) {
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (opened < 0) {
        return failed(path, "opening", e);
    }
    int rc = look(opened, path, size, e);
    if (rc) {
        (void)close(opened);
        return rc;
    }
    *fd = opened;
    return 0;
}

int file_read(int fd, const char *path, uint64_t from, void *to, size_t bytes, struct err *e) {
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
            return err_set(e, ST_UNAVAILABLE, "%.200s became shorter while it was read", path);
        }
        at += got;
        from += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}
