#include "proto/take_descriptors.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/unix_address.h"

/* More descriptors than one answer may carry, so that a wrong number is seen and not cut. */
enum { ROOM = 2 * HANDOVER_DESCRIPTORS };

int take_descriptors_start(const char *path, const uint8_t token[HANDOVER_TOKEN], int *socket_fd,
                           struct err *e) {
    struct sockaddr_un a;
    int rv = unix_address(path, &a, e);
    if (rv) {
        return rv;
    }
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "socket for %s: %s", path, strerror(errno));
    }
    if (connect(s, (struct sockaddr *)&a, sizeof a) ||
        send(s, token, HANDOVER_TOKEN, MSG_NOSIGNAL) != HANDOVER_TOKEN) {
        int code = errno == EACCES ? ST_PERMISSION_DENIED : ST_UNAVAILABLE;
        rv = err_set(e, (enum status)code, "descriptor socket %s: %s", path, strerror(errno));
        close(s);
        return rv;
    }
    *socket_fd = s;
    return 0;
}

/* Moves the descriptors of |m| to |fds| (room for ROOM); returns how many. */
static size_t collect(struct msghdr *m, int *fds) {
    size_t n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (n < ROOM) {
                fds[n++] = fd;
            } else {
                close(fd);
            }
        }
    }
    return n;
}

static int judge(const struct msghdr *m, const uint8_t *answer, size_t len, size_t got, size_t n,
                 struct err *e) {
    if (len == 0) {
        return err_set(e, ST_UNAVAILABLE, "the descriptor socket hung up without an answer");
    }
    if (m->msg_flags & (MSG_CTRUNC | MSG_TRUNC)) {
        return err_set(e, ST_DATA_LOSS, "the answer of the descriptor socket was cut");
    }
    if (answer[0] > ST_UNAUTHENTICATED) {
        return err_set(e, ST_DATA_LOSS, "the descriptor socket answered with status %u, no status",
                       answer[0]);
    }
    if (answer[0] != ST_OK) {
        return err_set(e, (enum status)answer[0], "%.*s", (int)(len - 1), (const char *)answer + 1);
    }
    if (got != n) {
        return err_set(e, ST_DATA_LOSS, "the ticket gave %zu descriptors, %zu were expected", got,
                       n);
    }
    return 0;
}

int take_descriptors_finish(int socket_fd, size_t n, int *fds, struct err *e) {
    union {
        char bytes[CMSG_SPACE(ROOM * sizeof(int))];
        struct cmsghdr align;
    } control;
    uint8_t answer[HANDOVER_ANSWER];
    int got[ROOM];
    struct iovec iov = {.iov_base = answer, .iov_len = sizeof answer};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t len = recvmsg(socket_fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (len < 0) {
        if (errno == EAGAIN || errno == EINTR) {
            return 1;
        }
        return err_set(e, ST_UNAVAILABLE, "descriptor socket: %s", strerror(errno));
    }
    size_t count = collect(&m, got);
    int rv = judge(&m, answer, (size_t)len, count, n, e);
    for (size_t i = 0; i < count && rv; i++) {
        close(got[i]);
    }
    if (rv == 0) {
        memcpy(fds, got, n * sizeof *fds);
    }
    return rv;
}

int take_descriptors(const char *path, const uint8_t token[HANDOVER_TOKEN], int64_t timeout_ns,
                     size_t n, int *fds, struct err *e) {
    int64_t until = clock_ns() + timeout_ns;
    int s;
    int rv = take_descriptors_start(path, token, &s, e);
    if (rv) {
        return rv;
    }
    while ((rv = take_descriptors_finish(s, n, fds, e)) == 1) {
        int64_t left_ms = (until - clock_ns() + 999999) / 1000000;
        if (left_ms <= 0) {
            rv = err_set(e, ST_DEADLINE_EXCEEDED, "no answer from %s in %lld ms", path,
                         (long long)(timeout_ns / 1000000));
            break;
        }
        struct pollfd p = {.fd = s, .events = POLLIN};
        (void)poll(&p, 1, left_ms > 60000 ? 60000 : (int)left_ms);
    }
    close(s);
    return rv;
}
