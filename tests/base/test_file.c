/* Reading files: whole pieces from anywhere, and refusals that name the file. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/base/suite.h"

static char folder[32], path[64];

static void setup(void) {
    strcpy(folder, "/tmp/zd-file-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/f", folder);
}

static void teardown(void) {
    (void)unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void fill(const char *text) {
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(reads_pieces) {
    char got[8] = "";
    uint64_t size = 0;
    int fd = -1;
    struct err e;
    fill("0123456789");
    ck_assert_int_eq(file_open(path, &fd, &size, &e), 0);
    ck_assert_uint_eq(size, 10);
    ck_assert_int_eq(file_read(fd, path, 3, got, 4, &e), 0);
    ck_assert_str_eq(got, "3456");
    ck_assert_int_eq(file_read(fd, path, 10, got, 0, &e), 0);
    ck_assert_int_eq(file_read(fd, path, 8, got, 3, &e), -ST_UNAVAILABLE);
    ck_assert_msg(strstr(e.text, path) && strstr(e.text, "became shorter"), "%s", e.text);
    close(fd);
}
END_TEST

static void refused(const char *name, int code, const char *why) {
    uint64_t size = 7;
    int fd = -7;
    struct err e;
    ck_assert_int_eq(file_open(name, &fd, &size, &e), -code);
    ck_assert_msg(strstr(e.text, name) && strstr(e.text, why), "%s", e.text);
    ck_assert_int_eq(fd, -7);
}

START_TEST(refuses_what_is_no_file) {
    refused(path, ST_NOT_FOUND, "No such file");
    refused(folder, ST_INVALID_ARGUMENT, "no regular file");
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody writes: must not wait */
    refused(path, ST_INVALID_ARGUMENT, "no regular file");
}
END_TEST

START_TEST(refuses_a_closed_file) {
    fill("secret");
    ck_assert_int_eq(chmod(path, 0), 0);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    uid_t before = geteuid();
    if (before == 0) {
        ck_assert_int_eq(seteuid(65534), 0);
    }
    refused(path, ST_PERMISSION_DENIED, "Permission denied");
    ck_assert_int_eq(seteuid(before), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base/file");
    TCase *t = tcase_create("file");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, reads_pieces);
    tcase_add_test(t, refuses_what_is_no_file);
    tcase_add_test(t, refuses_a_closed_file);
    suite_add_tcase(s, t);
    return run_suite(s);
}
