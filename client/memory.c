/* The memory that the daemon lends: two memfds, fetched by ticket, checked before they are mapped.
 * What is mapped cannot shrink under us (sealed), so a daemon that dies leaves no SIGBUS. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/client.h"
#include "proto/take_descriptors.h"

enum { PARAMS, GRADS, DESCRIPTORS };

static int check_descriptor(int fd, uint64_t bytes, const char *what, struct err *e) {
    struct stat st;
    if (fstat(fd, &st)) {
        return err_set(e, ST_INTERNAL, "the descriptor of the %s: %s", what, strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size < bytes) {
        return err_set(e, ST_INTERNAL, "the daemon gave %jd bytes for the %s, it promised %" PRIu64,
                       (intmax_t)st.st_size, what, bytes);
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
        return err_set(e, ST_INTERNAL, "the memory of the %s is not sealed against shrinking",
                       what);
    }
    return 0;
}

static int map(int fd, uint64_t bytes, int protection, const char *what, struct mapping *m,
               struct err *e) {
    if (bytes == 0) {
        return 0;
    }
    void *address = mmap(NULL, (size_t)bytes, protection, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "cannot map %" PRIu64 " bytes of the %s: %s",
                       bytes, what, strerror(errno));
    }
    *m = (struct mapping){address, (size_t)bytes};
    if (madvise(address, (size_t)bytes, MADV_DONTFORK)) {
        int rc = err_set(e, ST_INTERNAL, "cannot keep the %s out of forked children: %s", what,
                         strerror(errno));
        memory_unmap(m);
        return rc;
    }
    return 0;
}

static int map_both(const Zerod__V1__Registered *r, const int fds[DESCRIPTORS],
                    struct mapping *params, struct mapping *grads, struct err *e) {
    int rc = check_descriptor(fds[PARAMS], r->param_bytes, "parameters", e);
    rc = rc ? rc : check_descriptor(fds[GRADS], r->grad_bytes, "gradient slots", e);
    rc = rc ? rc : map(fds[PARAMS], r->param_bytes, PROT_READ, "parameters", params, e);
    if (rc) {
        return rc;
    }
    rc = map(fds[GRADS], r->grad_bytes, PROT_READ | PROT_WRITE, "gradient slots", grads, e);
    if (rc) {
        memory_unmap(params);
    }
    return rc;
}

int memory_map(const Zerod__V1__Registered *r, int64_t timeout_ns, struct mapping *params,
               struct mapping *grads, struct err *e) {
    if (!r->ticket || r->ticket->token.len != HANDOVER_TOKEN || !r->ticket->socket_path) {
        return err_set(e, ST_INTERNAL, "the daemon gave no ticket of %d bytes for its memory",
                       HANDOVER_TOKEN);
    }
    if (r->param_bytes > SIZE_MAX / 2 || r->grad_bytes > SIZE_MAX / 2) {
        return err_set(e, ST_INTERNAL, "the daemon promised %" PRIu64 " and %" PRIu64 " bytes",
                       r->param_bytes, r->grad_bytes);
    }
    int fds[DESCRIPTORS];
    int rc = take_descriptors(r->ticket->socket_path, r->ticket->token.data, timeout_ns,
                              DESCRIPTORS, fds, e);
    if (rc) {
        return rc;
    }
    rc = map_both(r, fds, params, grads, e);
    close(fds[PARAMS]);
    close(fds[GRADS]);
    return rc;
}

void memory_unmap(struct mapping *m) {
    if (m->address) {
        munmap(m->address, m->bytes);
    }
    *m = (struct mapping){0};
}
