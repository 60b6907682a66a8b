/* libFuzzer: the descriptor socket, both ends. Byte 0: even, the daemon's end gets guests; odd, the
 * taking end gets an answer. Guests are made of the rest, four bytes each: what to do, then a
 * length and a value for raw packets. No ticket may give twice and no descriptor may stay open. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/unix_address.h"
#include "rpc/handover.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok) {
    if (!ok) {
        abort();
    }
}

/* The lowest free number: as long as nothing leaks it is the same before and after. */
static int lowest_free(void) {
    int fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
    must(fd >= 0);
    close(fd);
    return fd;
}

static int guest(const char *path) {
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(fd >= 0 && unix_address(path, &a, NULL) == 0);
    must(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

enum { TOKENS = 4, GUESTS = 24, PER_GUEST = 4, PACKET = 512 };
enum { DO_RAW, DO_TAKE, DO_TICKET, DO_HANG_UP, DO_KINDS };

/* One guest is let in a turn, so this many let all in and have them answered. */
static void turn(uv_loop_t *loop) {
    for (int i = 0; i < GUESTS + 3; i++) {
        uv_run(loop, UV_RUN_NOWAIT);
    }
}

struct scene {
    uv_loop_t loop;
    struct handover *h;
    uint8_t tokens[TOKENS][HANDOVER_TOKEN];
    size_t given[TOKENS]; /* descriptors that the token is good for; 0: none */
};

static void give_ticket(struct scene *s, uint8_t which) {
    const int fds[] = {0, 1, 2, 0, 1};
    struct err e;
    size_t n = which % 7, at = which % TOKENS;
    uint8_t token[HANDOVER_TOKEN];
    int rv = handover_ticket(s->h, fds, n < 5 ? n : 5, token, &e);
    must((rv == 0) == (n >= 1 && n <= HANDOVER_DESCRIPTORS));
    if (rv == 0) {
        memcpy(s->tokens[at], token, sizeof token);
        s->given[at] = n;
    }
}

static void take_ticket(struct scene *s, int fd, uint8_t which) {
    struct err e;
    size_t at = which % TOKENS, n = s->given[at];
    int fds[HANDOVER_DESCRIPTORS];
    must(send(fd, s->tokens[at], HANDOVER_TOKEN, MSG_NOSIGNAL) == HANDOVER_TOKEN);
    turn(&s->loop);
    int rv = take_descriptors_finish(fd, n ? n : 1, fds, &e);
    must(n ? rv == 0 : rv == -ST_NOT_FOUND);
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
    s->given[at] = 0;
    memset(s->tokens[at], 0, HANDOVER_TOKEN - 1); /* a used one is shown with a byte of it left */
}

static void one_guest(struct scene *s, const uint8_t *what) {
    uint8_t packet[PACKET];
    if (what[0] % DO_KINDS == DO_TICKET) {
        give_ticket(s, what[1]);
        return;
    }
    int fd = guest(handover_path(s->h));
    if (what[0] % DO_KINDS == DO_TAKE) {
        turn(&s->loop);
        take_ticket(s, fd, what[1]);
    } else if (what[0] % DO_KINDS == DO_RAW) {
        memset(packet, what[3], sizeof packet);
        (void)send(fd, packet, (size_t)(what[1] | (what[2] & 1) << 8), MSG_NOSIGNAL);
    }
    if (what[2] & 2) {
        turn(&s->loop);
    }
    close(fd);
}

static void feed_daemon(const uint8_t *data, size_t size) {
    static char folder[80], path[96];
    struct scene s = {0};
    struct err e;
    if (!folder[0]) {
        const char *where = getenv("TMPDIR"); /* what a crash leaves is its owner's to remove */
        (void)snprintf(folder, sizeof folder, "%.60s/zd-fuzz-XXXXXX", where ? where : "/tmp");
        must(mkdtemp(folder) != NULL);
        (void)snprintf(path, sizeof path, "%s/fd", folder);
    }
    must(uv_loop_init(&s.loop) == 0);
    must(handover_listen(&s.loop, path, NULL, &s.h, &e) == 0);
    for (size_t i = 0; i < GUESTS && (i + 1) * PER_GUEST <= size; i++) {
        one_guest(&s, data + i * PER_GUEST);
    }
    turn(&s.loop);
    handover_close(s.h, NULL, NULL);
    uv_run(&s.loop, UV_RUN_DEFAULT);
    must(uv_loop_close(&s.loop) == 0);
    (void)rmdir(folder); /* the last input's folder goes with it */
    folder[0] = 0;
}

/* The rest is the answer; byte 0 says how many descriptors come with it and are waited for. */
static void feed_taker(uint8_t how, const uint8_t *data, size_t size) {
    enum { MOST = 10 };
    int pair[2], fds[HANDOVER_DESCRIPTORS];
    size_t count = (how >> 1) % (MOST + 1), wanted = 1 + (how >> 5) % HANDOVER_DESCRIPTORS;
    union {
        char bytes[CMSG_SPACE(MOST * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct err e;
    struct iovec iov = {.iov_base = (void *)data, .iov_len = size};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    if (count) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memset(CMSG_DATA(c), 0, count * sizeof(int)); /* all are standard input */
    }
    must(sendmsg(pair[0], &m, MSG_NOSIGNAL) == (ssize_t)size);
    int rv = take_descriptors_finish(pair[1], wanted, fds, &e);
    must(rv <= 0 && (rv != 0 || (data[0] == 0 && count == wanted)));
    for (size_t i = 0; i < wanted && rv == 0; i++) {
        close(fds[i]);
    }
    close(pair[0]);
    close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) {
        return 0;
    }
    int before = lowest_free();
    if (data[0] & 1) {
        feed_taker(data[0], data + 1, size - 1);
    } else {
        feed_daemon(data + 1, size - 1);
    }
    must(lowest_free() == before);
    return 0;
}
