/* Peers of a real socket that are no clients, or not ours: the server goes on for others. */
#include <grp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/grpc_channel.h"
#include "proto/take_descriptors.h"
#include "tests/base/seed.h"
#include "tests/base/suite.h"
#include "tests/proto/raw.h"
#include "tests/rpc/crowd.h"

#define SECOND INT64_C(1000000000)

static struct host h;

static void setup(void) {
    host_start(&h);
}
static void teardown(void) {
    host_stop(&h);
}

static int call(const char *method, struct err *e) {
    struct grpc_channel *ch = NULL;
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    ProtobufCMessage *reply = NULL;
    int rv = grpc_channel_connect(h.path, 0, &ch, e);
    if (rv == 0) {
        rv = grpc_channel_unary(ch, method, &t.base, &zerod__v1__ticket__descriptor, SECOND, &reply,
                                e);
        grpc_channel_close(ch);
    }
    if (rv == 0) {
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return rv;
}

/* Runs |body| as user 65534 with the supplementary |group|; it returns 0 when all is as it should
 * be. Needs root: else nothing is run. */
static void as_another(gid_t group, int (*body)(void)) {
    if (geteuid() != 0) {
        return;
    }
    ck_assert_int_eq(chmod(h.folder, 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        if (setgroups(1, &group) || setresgid(65534, 65534, 65534) || seteuid(65534)) {
            _exit(100);
        }
        _exit(body());
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

static int is_denied(void) {
    struct err e;
    uint8_t token[HANDOVER_TOKEN] = {0};
    int fd;
    if (call(ECHO_UNARY, &e) != -ST_PERMISSION_DENIED ||
        !strstr(e.text, "user 65534 has no role") || !strstr(e.text, "user 0")) {
        return 1;
    }
    if (take_descriptors(h.fd_path, token, SECOND, 1, &fd, &e) != -ST_PERMISSION_DENIED ||
        !strstr(e.text, "user 65534") || !strstr(e.text, "user 0")) {
        return 2;
    }
    return 0;
}

START_TEST(another_user) {
    ck_assert_int_eq(chmod(h.path, 0666), 0); /* somebody opened them by hand */
    ck_assert_int_eq(chmod(h.fd_path, 0666), 0);
    as_another(65534, is_denied);
    as_another(0, is_denied); /* root's group is not root */
}
END_TEST

static int is_locked_out(void) {
    struct err e;
    return call(ECHO_UNARY, &e) == -ST_PERMISSION_DENIED && strstr(e.text, h.path) ? 0 : 1;
}

static int may_observe(void) {
    struct err e;
    if (call(ECHO_UNARY, &e)) {
        return 1;
    }
    return call(ECHO_HOLD, &e) == -ST_PERMISSION_DENIED && strstr(e.text, "needs the role admin") &&
                   strstr(e.text, "user 65534 has observe") && strstr(e.text, "group 4242 may")
               ? 0
               : 2;
}

static void let_observe(struct host *host, void *arg) {
    struct err e;
    *(int *)arg = rpc_server_observers(host->server, 4242, &e);
}

START_TEST(observers) {
    int rv = -1;
    as_another(4242, is_locked_out);
    host_do(&h, let_observe, &rv);
    if (geteuid() != 0) {
        ck_assert_int_eq(rv, -ST_PERMISSION_DENIED); /* no member of that group */
        return;
    }
    ck_assert_int_eq(rv, 0);
    struct stat st;
    ck_assert_int_eq(lstat(h.path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0660);
    as_another(4242, may_observe);
    as_another(4243, is_locked_out);
}
END_TEST

/* Guests cannot use up the connections: 64 of 100 stay. */
static int are_limited(void) {
    enum { TRIED = 100, STAY = 64 };
    struct pollfd fds[TRIED];
    struct err e;
    char sink[4096];
    int gone = 0;
    for (int i = 0; i < TRIED; i++) {
        fds[i] = (struct pollfd){.fd = raw_connect(h.path), .events = POLLIN};
        gone += poll(&fds[i], 1, 5000) == 1 && recv(fds[i].fd, sink, sizeof sink, 0) <= 0;
    }
    if (gone != TRIED - STAY || call(ECHO_UNARY, &e) != -ST_UNAVAILABLE) {
        return 1;
    }
    close(fds[0].fd);
    for (int64_t until = clock_ns() + 5 * SECOND; clock_ns() < until;) {
        if (call(ECHO_UNARY, &e) == 0) { /* its place is free again */
            return 0;
        }
    }
    return 2;
}

START_TEST(guests_are_few) {
    int rv = -1;
    if (geteuid() != 0) {
        return;
    }
    host_do(&h, let_observe, &rv);
    ck_assert_int_eq(rv, 0);
    as_another(4242, are_limited);
    look_all_gone(&h);
    as_another(4242, may_observe); /* none is counted twice */
    as_another(4242, are_limited);
    look_serves(&h);
}
END_TEST

static bool hangs_up(int fd) {
    char sink[4096];
    struct pollfd f = {.fd = fd, .events = POLLIN};
    while (poll(&f, 1, 3000) > 0) {
        if (recv(fd, sink, sizeof sink, 0) <= 0) {
            return true;
        }
    }
    return false;
}

START_TEST(garbage) {
    srand((unsigned)test_seed("peers"));
    for (int i = 0; i < 200; i++) {
        struct buf b = {0};
        if (i % 2) { /* half of them begin well */
            raw_preface(&b);
        }
        uint8_t noise[300];
        for (size_t k = 0; k < sizeof noise; k++) {
            noise[k] = (uint8_t)rand();
        }
        buf_append(&b, noise, (size_t)(rand() % 300) + 1);
        int fd = raw_connect(h.path);
        (void)raw_send(fd, buf_bytes(&b), buf_unread(&b));
        buf_free(&b);
        close(fd);
    }
    int fd = raw_connect(h.path);
    (void)raw_send(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    ck_assert(hangs_up(fd));
    close(fd);
    look_serves(&h);
}
END_TEST

/* Frames cut anywhere, then silence or the end: the server goes on for others. */
START_TEST(half_sent_frames) {
    struct buf b = {0}, fields = {0};
    const uint8_t message[] = {0, 0, 0, 0, 2, 0x0a, 0};
    raw_preface(&b);
    raw_request(&fields, ECHO_UNARY, "localhost");
    raw_frame(&b, RAW_HEADERS, RAW_END_HEADERS, 1, buf_bytes(&fields), buf_unread(&fields));
    raw_frame(&b, RAW_DATA, RAW_END_STREAM, 1, message, sizeof message);
    size_t n = buf_unread(&b);
    int open[16], opened = 0;
    for (size_t cut = 1; cut < n; cut++) {
        int fd = raw_connect(h.path);
        (void)raw_send(fd, buf_bytes(&b), cut);
        if (cut % 16 == 0 && opened < 16) {
            open[opened++] = fd; /* stays, half-sent */
        } else {
            close(fd);
        }
    }
    look_serves(&h);
    while (opened) {
        close(open[--opened]);
    }
    buf_free(&fields);
    buf_free(&b);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("peers");
    TCase *t = tcase_create("peers");
    tcase_set_timeout(t, 30);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, another_user);
    tcase_add_test(t, observers);
    tcase_add_test(t, guests_are_few);
    tcase_add_test(t, garbage);
    tcase_add_test(t, half_sent_frames);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
