/* The descriptor socket: tickets, and guests that misbehave. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/take_descriptors.h"
#include "proto/unix_address.h"
#include "tests/base/suite.h"
#include "tests/rpc/host.h"

#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)

static struct host h;
static int memory[HANDOVER_DESCRIPTORS + 1];

static void setup(void) {
    h.handover_options = (struct handover_options){.ticket_ns = 300 * MS, .silence_ns = 300 * MS};
    host_start(&h);
    for (int i = 0; i <= HANDOVER_DESCRIPTORS; i++) {
        memory[i] = memfd_create("test", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(memory[i], 1000 * (i + 1)), 0);
    }
}

static void teardown(void) {
    for (int i = 0; i <= HANDOVER_DESCRIPTORS; i++) {
        close(memory[i]);
    }
    host_stop(&h);
}

struct order {
    size_t n, outstanding;
    uint8_t token[HANDOVER_TOKEN];
    int rv;
    struct err e;
};

static void give(struct host *host, void *arg) {
    struct order *o = arg;
    o->rv = handover_ticket(host->handover, memory, o->n, o->token, &o->e);
    o->outstanding = handover_tickets(host->handover);
}

static void count(struct host *host, void *arg) {
    ((struct order *)arg)->outstanding = handover_tickets(host->handover);
}

static size_t outstanding(void) {
    struct order o;
    host_do(&h, count, &o);
    return o.outstanding;
}

static struct order ticket(size_t n) {
    struct order o = {.n = n};
    host_do(&h, give, &o);
    ck_assert_int_eq(o.rv, 0);
    return o;
}

static int descriptors(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) {
        n++;
    }
    closedir(d);
    return n;
}

static int take(const struct order *o, size_t n, int *fds, struct err *e) {
    return take_descriptors(h.fd_path, o->token, 2 * SECOND, n, fds, e);
}

static void serves(void) {
    struct order o = ticket(1);
    struct err e;
    int fd = -1;
    ck_assert_int_eq(take(&o, 1, &fd, &e), 0);
    close(fd);
}

START_TEST(taken) {
    for (size_t n = 1; n <= HANDOVER_DESCRIPTORS; n++) {
        struct order o = ticket(n);
        struct err e;
        int fds[HANDOVER_DESCRIPTORS];
        ck_assert_int_eq(take(&o, n, fds, &e), 0);
        for (size_t i = 0; i < n; i++) { /* the same memory, in order, close-on-exec */
            struct stat st;
            ck_assert_int_eq(fstat(fds[i], &st), 0);
            ck_assert_int_eq(st.st_size, 1000 * ((long)i + 1));
            ck_assert_int_eq(fcntl(fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
            close(fds[i]);
        }
    }
    ck_assert_uint_eq(outstanding(), 0);
}
END_TEST

START_TEST(used_twice) {
    int before = descriptors();
    struct order o = ticket(2);
    struct err e;
    int fds[2];
    ck_assert_int_eq(take(&o, 2, fds, &e), 0);
    close(fds[0]);
    close(fds[1]);
    ck_assert_int_eq(take(&o, 2, fds, &e), -ST_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(e.text, "ticket"));
    int64_t until = clock_ns() + SECOND;
    while (descriptors() != before && clock_ns() < until) { /* the host's side closes soon */
    }
    ck_assert_int_eq(descriptors(), before);
}
END_TEST

START_TEST(expired) {
    int before = descriptors();
    struct order o = ticket(3);
    struct err e;
    int fds[3];
    nanosleep(&(struct timespec){.tv_nsec = 600 * MS}, NULL);
    ck_assert_uint_eq(outstanding(), 0);
    ck_assert_int_eq(descriptors(), before); /* its duplicates are closed, unasked */
    ck_assert_int_eq(take(&o, 3, fds, &e), -ST_NOT_FOUND);
}
END_TEST

START_TEST(wrong_count) {
    struct order o = ticket(3);
    struct err e;
    int fds[4], before = descriptors();
    ck_assert_int_eq(take(&o, 2, fds, &e), -ST_DATA_LOSS);
    int64_t until = clock_ns() + SECOND;
    while (descriptors() > before - 3 && clock_ns() < until) {
    }
    ck_assert_int_eq(descriptors(), before - 3); /* nor do the ones that came stay open */
}
END_TEST

START_TEST(orders) {
    struct order o = {.n = 0};
    host_do(&h, give, &o);
    ck_assert_int_eq(o.rv, -ST_INVALID_ARGUMENT);
    o.n = HANDOVER_DESCRIPTORS + 1;
    host_do(&h, give, &o);
    ck_assert_int_eq(o.rv, -ST_INVALID_ARGUMENT);
    int kept = memory[0];
    memory[0] = -1;
    o.n = 1;
    host_do(&h, give, &o);
    memory[0] = kept;
    ck_assert_int_eq(o.rv, -ST_INVALID_ARGUMENT);
    ck_assert_uint_eq(o.outstanding, 0);
}
END_TEST

static int guest(void) {
    struct sockaddr_un a;
    ck_assert_int_eq(unix_address(h.fd_path, &a, NULL), 0);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

START_TEST(wrong_length) {
    static const size_t lengths[] = {1, 15, 17, 60000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        static uint8_t noise[60000];
        uint8_t answer[300];
        int fd = guest();
        ck_assert_int_eq(send(fd, noise, lengths[i], MSG_NOSIGNAL), (long)lengths[i]);
        ssize_t n = recv(fd, answer, sizeof answer, 0);
        ck_assert_int_gt(n, 1);
        ck_assert_int_eq(answer[0], ST_INVALID_ARGUMENT);
        ck_assert_int_eq(recv(fd, answer, sizeof answer, 0), 0);
        close(fd);
    }
    serves();
}
END_TEST

/* Descriptors that a guest pushes on us are dropped, not kept. */
START_TEST(pushed_descriptors) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    int before = descriptors();
    int fd = guest();
    char x = 'x';
    struct iovec iov = {.iov_base = &x, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &memory[0], sizeof(int));
    ck_assert_int_eq(sendmsg(fd, &m, MSG_NOSIGNAL), 1);
    uint8_t answer[300];
    ck_assert_int_gt(recv(fd, answer, sizeof answer, 0), 1);
    ck_assert_int_eq(recv(fd, answer, sizeof answer, 0), 0);
    close(fd);
    int64_t until = clock_ns() + SECOND;
    while (descriptors() > before && clock_ns() < until) {
    }
    ck_assert_int_le(descriptors(), before);
    serves();
}
END_TEST

START_TEST(silence) {
    uint8_t answer[300];
    int64_t start = clock_ns();
    int fd = guest();
    ck_assert_int_eq(recv(fd, answer, sizeof answer, 0), 0); /* hung up on */
    ck_assert_int_ge(clock_ns() - start, 250 * MS);
    ck_assert_int_lt(clock_ns() - start, 3 * SECOND);
    close(fd);
}
END_TEST

START_TEST(too_many_guests) {
    int fds[HANDOVER_PENDING + 8];
    uint8_t answer[300];
    for (int i = 0; i < HANDOVER_PENDING + 8; i++) {
        fds[i] = guest();
    }
    ck_assert_int_gt(recv(fds[HANDOVER_PENDING + 7], answer, sizeof answer, 0), 1);
    ck_assert_int_eq(answer[0], ST_RESOURCE_EXHAUSTED);
    for (int i = 0; i < HANDOVER_PENDING + 8; i++) {
        close(fds[i]);
    }
    nanosleep(&(struct timespec){.tv_nsec = 50 * MS}, NULL);
    serves();
}
END_TEST

START_TEST(unknown_and_absent) {
    struct order o = {.token = {1, 2, 3}};
    struct err e;
    int fd;
    ck_assert_int_eq(take(&o, 1, &fd, &e), -ST_NOT_FOUND);
    ck_assert_int_eq(take_descriptors("/tmp/zd-nobody", o.token, SECOND, 1, &fd, &e),
                     -ST_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(e.text, "/tmp/zd-nobody"));
}
END_TEST

/* A server that accepts and says nothing. */
START_TEST(deadline) {
    struct sockaddr_un a;
    char path[80];
    uint8_t token[HANDOVER_TOKEN] = {0};
    struct err e;
    int fd;
    (void)snprintf(path, sizeof path, "%s/mute", h.folder);
    ck_assert_int_eq(unix_address(path, &a, NULL), 0);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(s, 1), 0);
    int64_t start = clock_ns();
    ck_assert_int_eq(take_descriptors(path, token, 50 * MS, 1, &fd, &e), -ST_DEADLINE_EXCEEDED);
    ck_assert_int_ge(clock_ns() - start, 50 * MS);
    close(s);
    unlink(path);
}
END_TEST

struct taken {
    int code, fd;
    unsigned calls;
};

static void on_taken(void *user, int code, size_t n, const int *fds, const struct err *e) {
    struct taken *t = user;
    (void)e;
    t->calls++;
    t->code = code;
    t->fd = n ? fds[0] : -1;
}

START_TEST(on_a_loop) {
    uv_loop_t loop;
    struct taken t = {0};
    struct order o = ticket(1);
    uv_loop_init(&loop);
    handover_take(&loop, h.fd_path, o.token, 1, SECOND, on_taken, &t);
    ck_assert_uint_eq(t.calls, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_uint_eq(t.calls, 1);
    ck_assert_int_eq(t.code, 0);
    ck_assert_int_eq(close(t.fd), 0);
    handover_take(&loop, h.fd_path, o.token, 1, SECOND, on_taken, &t);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(t.code, -ST_NOT_FOUND);
    handover_take(&loop, "/tmp/zd-nobody", o.token, 1, SECOND, on_taken, &t);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(t.code, -ST_UNAVAILABLE);
    ck_assert_uint_eq(t.calls, 3);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("handover");
    TCase *t = tcase_create("handover");
    tcase_set_timeout(t, 20);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, taken);
    tcase_add_test(t, used_twice);
    tcase_add_test(t, expired);
    tcase_add_test(t, wrong_count);
    tcase_add_test(t, orders);
    tcase_add_test(t, wrong_length);
    tcase_add_test(t, pushed_descriptors);
    tcase_add_test(t, silence);
    tcase_add_test(t, too_many_guests);
    tcase_add_test(t, unknown_and_absent);
    tcase_add_test(t, deadline);
    tcase_add_test(t, on_a_loop);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
