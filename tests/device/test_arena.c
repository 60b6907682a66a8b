#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/arena.h"
#include "tests/base/suite.h"

static uint64_t file_bytes(int fd) {
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    return (uint64_t)st.st_size;
}

START_TEST(lines_sum_to_the_file) {
    const uint64_t sizes[] = {0, 1, 63, 64, 65, 4096, 100000, 2097152, 5000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct arena a;
        arena_init(&a);
        ck_assert_uint_eq(arena_carve(&a, 10, 3, &a.lines.params), 0);
        ck_assert_uint_eq(arena_carve(&a, sizes[i], 7, &a.lines.grads), 64);
        ck_assert_uint_eq(arena_carve(&a, 1, 0, &a.lines.fixed) % ARENA_ALIGN, 0);
        uint64_t size = arena_size(&a);
        ck_assert_int_eq(arena_alloc(&a, "test", ARENA_SHARED, NULL), 0);
        ck_assert_uint_eq(a.bytes, size);
        ck_assert_uint_eq(file_bytes(a.fd), size);
        ck_assert_uint_eq(memory_total(&a.lines), size);
        ck_assert_uint_eq(size % (a.used < ARENA_HUGE ? ARENA_PAGE : ARENA_HUGE), 0);
        ck_assert_uint_le(a.huge, size);
        ck_assert_uint_eq(a.lines.grads, sizes[i]);
        ck_assert_uint_eq(a.lines.padding, 10);
        arena_free(&a);
        ck_assert_int_eq(arena_alloc(&a, "again", ARENA_SHARED, NULL), 0);
        ck_assert_uint_eq(memory_total(&a.lines), size);
        arena_free(&a);
    }
}
END_TEST

START_TEST(sizes_beyond_reason_are_refused) {
    struct arena a;
    struct err e;
    arena_init(&a);
    arena_carve(&a, UINT64_MAX - 10, 0, &a.lines.params);
    arena_carve(&a, UINT64_MAX - 10, 100, &a.lines.params);
    ck_assert_uint_eq(arena_size(&a), UINT64_MAX);
    ck_assert_int_eq(arena_alloc(&a, "state", ARENA_SHARED, &e), -ST_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(e.text, "state: more bytes than a file can have");
    arena_init(&a);
    arena_carve(&a, UINT64_C(1) << 60, 0, &a.lines.params);
    ck_assert_int_eq(arena_alloc(&a, "state", ARENA_SHARED, &e), -ST_RESOURCE_EXHAUSTED);
    ck_assert_ptr_null(a.base);
    ck_assert_int_eq(a.fd, -1);
}
END_TEST

START_TEST(seals_hold) {
    struct arena a;
    int fd;
    arena_init(&a);
    arena_carve(&a, 5000, 0, &a.lines.params);
    ck_assert_int_eq(arena_alloc(&a, "published", ARENA_PUBLISHED, NULL), 0);
    ck_assert_int_ne(ftruncate(a.fd, 0), 0);
    ck_assert_int_ne(ftruncate(a.fd, 1 << 20), 0);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd, 0), MAP_FAILED);
    a.base[0] = 7; /* ours is still writable */
    ck_assert_int_eq(arena_readonly(&a, &fd, NULL), 0);
    struct mapping m;
    ck_assert_int_eq(mapping_import(fd, 8192, "a peer's", &m, NULL), 0);
    ck_assert_uint_eq(m.base[0], 7);
    ck_assert_uint_eq(m.bytes, 8192);
    mapping_drop(&m);
    ck_assert_int_eq(close(fd), -1); /* import took it */
    arena_free(&a);

    arena_init(&a);
    arena_carve(&a, 5000, 0, &a.lines.params);
    ck_assert_int_eq(arena_alloc(&a, "shared", ARENA_SHARED, NULL), 0);
    ck_assert_int_eq(arena_readonly(&a, &fd, NULL), 0);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    ck_assert_int_eq(errno, EACCES);
    close(fd);
    void *writable = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd, 0);
    ck_assert_ptr_ne(writable, MAP_FAILED);
    munmap(writable, 4096);
    arena_free(&a);
}
END_TEST

START_TEST(garbage_is_not_imported) {
    struct mapping m = {0};
    struct err e;
    int fds[2];
    ck_assert_int_eq(mapping_import(-1, 1, "x", &m, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(mapping_import(fds[0], 1, "x", &m, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(close(fds[0]), -1);
    close(fds[1]);
    int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    ck_assert_int_eq(mapping_import(dup(fd), 4096, "rank 3's control page", &m, &e),
                     -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "rank 3's control page: the memfd is not sealed against shrinking");
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ck_assert_int_eq(mapping_import(fd, 8192, "rank 3's control page", &m, &e),
                     -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "rank 3's control page: 4096 bytes, must be at least 8192");
    ck_assert_ptr_null(m.base);
}
END_TEST

int main(void) {
    Suite *s = suite_create("arena");
    TCase *c = tcase_create("arena");
    tcase_add_test(c, lines_sum_to_the_file);
    tcase_add_test(c, sizes_beyond_reason_are_refused);
    tcase_add_test(c, seals_hold);
    tcase_add_test(c, garbage_is_not_imported);
    suite_add_tcase(s, c);
    return run_suite(s);
}
