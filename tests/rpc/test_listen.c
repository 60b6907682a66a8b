/* Where a server's socket may be: its own rights, the folders on the way to it, and what lies at
 * its path already. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/unix_address.h"
#include "tests/base/suite.h"
#include "tests/rpc/crowd.h"

static struct host h;

static void setup(void) {
    host_start(&h);
}
static void teardown(void) {
    host_stop(&h);
}

START_TEST(trap_16_private_socket) {
    struct stat st;
    ck_assert_int_eq(lstat(h.path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(lstat(h.fd_path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
}
END_TEST

/* ---- folders ---- */

/* Listens at |path| and ends at once. */
static int try(const char *path, struct err *e) {
    struct rpc_server *s = NULL;
    uv_loop_t loop;
    uv_loop_init(&loop);
    int rv = rpc_server_listen(&loop, path, NULL, 0, &s, e);
    if (rv == 0) {
        rpc_server_close(s, NULL, NULL);
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    return rv;
}

struct looker {
    const char *path;
    atomic_bool stop;
    unsigned seen, mode; /* all rights that it ever had */
};

static void *look_on(void *arg) {
    struct looker *l = arg;
    struct stat st;
    while (!atomic_load(&l->stop)) {
        if (lstat(l->path, &st) == 0) {
            l->seen++;
            l->mode |= st.st_mode & 0777;
        }
    }
    return NULL;
}

/* There is no moment at which others might connect, whatever the umask. */
START_TEST(trap_16_private_from_the_start) {
    enum { TIMES = 2000 };
    char path[128];
    pthread_t thread;
    struct err e;
    struct looker l = {.path = path};
    mode_t before = umask(0);
    (void)snprintf(path, sizeof path, "%s/new", h.folder);
    ck_assert_int_eq(pthread_create(&thread, NULL, look_on, &l), 0);
    for (int i = 0; i < TIMES; i++) {
        ck_assert_int_eq(try(path, &e), 0);
    }
    atomic_store(&l.stop, true);
    pthread_join(thread, NULL);
    umask(before);
    (void)printf("looked at a socket %u times\n", l.seen);
    ck_assert_uint_gt(l.seen, 0);
    ck_assert_uint_eq(l.mode, 0600);
}
END_TEST

static void join(char *to, size_t room, const char *folder, const char *name) {
    int n = snprintf(to, room, "%s/%s", folder, name);
    ck_assert_int_lt(n, (int)room);
}

static const struct {
    mode_t mode;
    bool fine;
} modes[] = {{0700, true},  {0755, true},  {0770, false},
             {0777, false}, {0702, false}, {01777, true}};

/* Refused by name and mode when others may write in |outer|; a sticky one is as good as ours. */
static void expect_by_mode(const char *outer, const char *path) {
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct err e;
        char mode[32];
        ck_assert_int_eq(chmod(outer, modes[i].mode), 0);
        int rv = try(path, &e);
        if (modes[i].fine) {
            ck_assert_msg(rv == 0, "mode %04o: %s", (unsigned)modes[i].mode, e.text);
            continue;
        }
        (void)snprintf(mode, sizeof mode, "%s (mode %04o)", outer, (unsigned)modes[i].mode);
        ck_assert_int_eq(rv, -ST_PERMISSION_DENIED);
        ck_assert_msg(strstr(e.text, mode) != NULL, "%s", e.text);
    }
    if (geteuid() == 0) {
        struct err e;
        ck_assert_int_eq(chmod(outer, 0755), 0);
        ck_assert_int_eq(chown(outer, 65534, 65534), 0);
        ck_assert_int_eq(try(path, &e), -ST_PERMISSION_DENIED);
        ck_assert_msg(strstr(e.text, outer) && strstr(e.text, "user 65534"), "%s", e.text);
    }
}

START_TEST(its_folder) {
    char folder[48], path[64];
    join(folder, sizeof folder, h.folder, "open");
    join(path, sizeof path, folder, "sock");
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    expect_by_mode(folder, path);
    ck_assert_int_eq(rmdir(folder), 0); /* nothing was left there */
}
END_TEST

START_TEST(folders_above) {
    char outer[48], middle[64], inner[80], path[96], link[48];
    join(outer, sizeof outer, h.folder, "open");
    join(middle, sizeof middle, outer, "b");
    join(inner, sizeof inner, middle, "c");
    join(path, sizeof path, inner, "sock");
    join(link, sizeof link, h.folder, "link");
    ck_assert_int_eq(mkdir(outer, 0700) | mkdir(middle, 0700) | mkdir(inner, 0700), 0);
    expect_by_mode(outer, path);
    ck_assert_int_eq(symlink(inner, link), 0); /* a way around it */
    join(path, sizeof path, link, "sock");
    struct err e;
    ck_assert_int_eq(chmod(outer, 0777), 0);
    ck_assert_int_eq(try(path, &e), -ST_PERMISSION_DENIED);
    ck_assert_msg(strstr(e.text, outer) != NULL, "%s", e.text);
    ck_assert_int_eq(unlink(link) | rmdir(inner) | rmdir(middle) | rmdir(outer), 0);
}
END_TEST

/* ---- paths ---- */

START_TEST(trap_16_paths) {
    uv_loop_t loop;
    struct rpc_server *s = NULL;
    struct err e;
    char path[160];
    uv_loop_init(&loop);
    memset(path, 'a', sizeof path);
    memcpy(path, "/tmp/", 5);
    path[120] = 0;
    ck_assert_int_eq(rpc_server_listen(&loop, path, NULL, 0, &s, &e), -ST_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(e.text, "120 bytes"));
    ck_assert_ptr_nonnull(strstr(e.text, "107"));
    ck_assert_ptr_nonnull(strstr(e.text, path));
    /* a live socket is not taken away */
    ck_assert_int_eq(rpc_server_listen(&loop, h.path, NULL, 0, &s, &e), -ST_ALREADY_EXISTS);
    ck_assert_int_eq(rpc_server_listen(&loop, h.folder, NULL, 0, &s, &e), -ST_ALREADY_EXISTS);
    ck_assert_int_eq(rpc_server_listen(&loop, "/nowhere/x", NULL, 0, &s, &e), -ST_UNAVAILABLE);
    /* a dead one is replaced */
    struct sockaddr_un a;
    (void)snprintf(path, sizeof path, "%s/stale", h.folder);
    ck_assert_int_eq(unix_address(path, &a, NULL), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    ck_assert_int_eq(rpc_server_listen(&loop, path, NULL, 0, &s, &e), 0);
    ck_assert_str_eq(rpc_server_path(s), path);
    rpc_server_close(s, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_ne(access(path, F_OK), 0);
    look_serves(&h);
}
END_TEST

int main(void) {
    Suite *s = suite_create("rpc/listen");
    TCase *t = tcase_create("listen");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, trap_16_private_socket);
    tcase_add_test(t, trap_16_private_from_the_start);
    tcase_add_test(t, its_folder);
    tcase_add_test(t, folders_above);
    tcase_add_test(t, trap_16_paths);
    suite_add_tcase(s, t);
    return run_suite(s);
}
