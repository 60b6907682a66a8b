/* Peers of a real socket that are no clients, or not ours: the server goes on for others. */
#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/grpc_channel.h"
#include "proto/unix_address.h"
#include "tests/proto/raw.h"
#include "tests/rpc/host.h"

#define SECOND INT64_C(1000000000)

static struct host h;

static void setup(void) {
    host_start(&h);
}
static void teardown(void) {
    host_stop(&h);
}

static void serves(void) {
    struct grpc_channel *ch = NULL;
    ProtobufCMessage *reply = NULL;
    struct err e;
    Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
    ck_assert_int_eq(grpc_channel_connect(h.path, SECOND, &ch, &e), 0);
    ck_assert_int_eq(grpc_channel_unary(ch, ECHO_UNARY, &t.base, &zerod__v1__ticket__descriptor,
                                        SECOND, &reply, &e),
                     0);
    protobuf_c_message_free_unpacked(reply, NULL);
    grpc_channel_close(ch);
}

/* Needs root to become somebody else. */
START_TEST(another_user) {
    if (geteuid() != 0) {
        return;
    }
    ck_assert_int_eq(chmod(h.folder, 0755), 0);
    ck_assert_int_eq(chmod(h.path, 0666), 0);
    pid_t child = fork();
    if (child == 0) {
        struct err e;
        struct grpc_channel *ch = NULL;
        Zerod__V1__Ticket t = ZEROD__V1__TICKET__INIT;
        ProtobufCMessage *reply;
        if (seteuid(65534) || grpc_channel_connect(h.path, 0, &ch, &e)) {
            _exit(1);
        }
        int rv = grpc_channel_unary(ch, ECHO_UNARY, &t.base, &zerod__v1__ticket__descriptor, SECOND,
                                    &reply, &e);
        bool named = strstr(e.text, "user 65534") && strstr(e.text, "user 0");
        _exit(rv == -ST_PERMISSION_DENIED && named ? 0 : 2);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

static int raw_connect(void) {
    struct sockaddr_un a;
    ck_assert_int_eq(unix_address(h.path, &a, NULL), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void raw_send(int fd, const void *bytes, size_t n) {
    (void)!send(fd, bytes, n, MSG_NOSIGNAL);
}

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
    unsigned seed = (unsigned)clock_ns();
    (void)printf("seed %u\n", seed);
    srand(seed);
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
        int fd = raw_connect();
        raw_send(fd, buf_bytes(&b), buf_unread(&b));
        buf_free(&b);
        close(fd);
    }
    int fd = raw_connect();
    raw_send(fd, "GET / HTTP/1.1\r\n\r\n", 18);
    ck_assert(hangs_up(fd));
    close(fd);
    serves();
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
        int fd = raw_connect();
        raw_send(fd, buf_bytes(&b), cut);
        if (cut % 16 == 0 && opened < 16) {
            open[opened++] = fd; /* stays, half-sent */
        } else {
            close(fd);
        }
    }
    serves();
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
    tcase_add_test(t, garbage);
    tcase_add_test(t, half_sent_frames);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
