#include "device/arena.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/saturate.h"
#include "device/map.h"

/* Newer than the C library's headers on the oldest system that we build on. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static uint64_t round_up(uint64_t n, uint64_t to) {
    return n > UINT64_MAX - to ? UINT64_MAX : (n + to - 1) / to * to;
}

void arena_init(struct arena *a) {
    *a = (struct arena){.fd = -1};
}

uint64_t arena_carve(struct arena *a, uint64_t real, uint64_t padding, uint64_t *line) {
    assert(!a->base);
    uint64_t offset = round_up(a->used, ARENA_ALIGN);
    a->lines.rounding = plus(a->lines.rounding, offset - a->used);
    a->used = plus(plus(offset, real), padding);
    *line = plus(*line, real);
    a->lines.padding = plus(a->lines.padding, padding);
    return offset;
}

uint64_t arena_size(const struct arena *a) {
    return round_up(a->used, a->used < ARENA_HUGE ? ARENA_PAGE : ARENA_HUGE);
}

/* Bytes of the mapping at |base| that are mapped by huge pages. */
static uint64_t huge_bytes(const uint8_t *base) {
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512], start[32];
    uint64_t kib = 0;
    bool here = false, done = false;
    (void)snprintf(start, sizeof start, "%" PRIxPTR "-", (uintptr_t)base);
    while (f && !done && fgets(line, sizeof line, f)) {
        if (!here) {
            here = !strncmp(line, start, strlen(start));
        } else if (sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1) {
            done = true;
        }
    }
    if (f) {
        fclose(f);
    }
    return done ? kib * 1024 : 0;
}

/* Makes every page exist, without the SIGBUS that a plain touch of missing memory would bring. */
static int touch(uint8_t *base, uint64_t bytes) {
    if (!madvise(base, bytes, MADV_POPULATE_WRITE)) {
        return 0;
    }
    if (errno != EINVAL) {
        return errno;
    }
    for (uint64_t at = 0; at < bytes; at += ARENA_PAGE) { /* before Linux 5.14 */
        ((volatile uint8_t *)base)[at] = 0;
    }
    return 0;
}

/* Some kernels give a memfd huge pages by advice, others only by collapsing touched pages. */
static int populate(struct arena *a) {
    if (a->bytes < ARENA_HUGE) {
        return touch(a->base, a->bytes);
    }
    (void)madvise(a->base, a->bytes, MADV_HUGEPAGE); /* advice: what came of it is in |huge| */
    int error = touch(a->base, a->bytes);
    if (error) {
        return error;
    }
    a->huge = huge_bytes(a->base);
    if (a->huge < a->bytes && !madvise(a->base, a->bytes, MADV_COLLAPSE)) {
        a->huge = huge_bytes(a->base);
    }
    return 0;
}

static int seal(int fd, enum arena_use use) {
    int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    if (use == ARENA_PUBLISHED) { /* our own mapping exists and stays writable */
        if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE)) {
            return errno;
        }
    }
    return fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) ? errno : 0;
}

static int make(struct arena *a, const char *name, enum arena_use use) {
    a->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (a->fd < 0 || ftruncate(a->fd, (off_t)a->bytes)) {
        return errno;
    }
    a->base = map_shared(a->fd, a->bytes, PROT_READ | PROT_WRITE);
    if (!a->base) {
        return errno;
    }
    int error = populate(a);
    return error ? error : seal(a->fd, use);
}

int arena_alloc(struct arena *a, const char *name, enum arena_use use, struct err *e) {
    assert(!a->base && a->used);
    uint64_t size = arena_size(a);
    if (size > INT64_MAX) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%s: more bytes than a file can have", name);
    }
    a->bytes = size;
    int error = make(a, name, use);
    if (error) {
        arena_free(a);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%s: %" PRIu64 " bytes of shared memory: %s", name,
                       size, strerror(error));
    }
    a->lines.rounding += a->bytes - a->used;
    return 0;
}

void arena_free(struct arena *a) {
    if (a->base) {
        munmap(a->base, a->bytes);
        a->lines.rounding -= a->bytes - a->used;
    }
    if (a->fd >= 0) {
        close(a->fd);
    }
    a->fd = -1;
    a->base = NULL;
    a->bytes = 0;
    a->huge = 0;
}

int arena_readonly(const struct arena *a, int *fd, struct err *e) {
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", a->fd);
    int copy = open(path, O_RDONLY | O_CLOEXEC);
    if (copy < 0) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "cannot open shared memory read-only: %s",
                       strerror(errno));
    }
    *fd = copy;
    return 0;
}
