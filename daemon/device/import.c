/* Mapping what another process handed over. It is checked before it is mapped: a file that could
 * shrink would kill us with SIGBUS, one that is too small would be read past its end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/arena.h"
#include "device/map.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static int check(int fd, uint64_t least, const char *what, uint64_t *bytes, struct err *e) {
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &st)) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s: the descriptor is no memfd: %s", what,
                       strerror(errno));
    }
    if (!(seals & F_SEAL_SHRINK)) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s: the memfd is not sealed against shrinking",
                       what);
    }
    if (st.st_size <= 0 || (uint64_t)st.st_size < least) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %" PRId64 " bytes, must be at least %" PRIu64,
                       what, (int64_t)st.st_size, least);
    }
    *bytes = (uint64_t)st.st_size;
    return 0;
}

int mapping_import(int fd, uint64_t least, const char *what, struct mapping *m, struct err *e) {
    uint64_t bytes = 0;
    int rc = check(fd, least, what, &bytes, e);
    if (!rc) {
        void *base = map_shared(fd, bytes, PROT_READ);
        if (!base) {
            rc = err_set(e, ST_RESOURCE_EXHAUSTED, "%s: cannot map %" PRIu64 " bytes: %s", what,
                         bytes, strerror(errno));
        } else {
            if (bytes >= ARENA_HUGE) {
                (void)madvise(base, bytes, MADV_HUGEPAGE);
            }
            (void)madvise(base, bytes, MADV_POPULATE_READ); /* else the first reads fault it in */
            *m = (struct mapping){base, bytes};
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

void mapping_drop(struct mapping *m) {
    if (m->base) {
        munmap((void *)(uintptr_t)m->base, m->bytes);
    }
    *m = (struct mapping){0};
}
