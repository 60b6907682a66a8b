/* Ten thousand steps in one attachment: no memory, mapping or descriptor more than after the first
 * thousand; and attaching again and again leaves nothing. */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/base/suite.h"
#include "fake.h"

/* Sanitizers make it slow, and their allocator does not count for us. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEPS = 1500, ATTACHMENTS = 30 };
#else
enum { STEPS = 10000, ATTACHMENTS = 200 };
#endif
enum { WARM = 1000 };

struct usage {
    size_t heap; /* bytes in use, of the trainer's thread */
    int maps, fds;
};

static struct usage measure(void) {
    struct usage u = {.heap = mallinfo2().uordblks};
    char line[512];
    FILE *f = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof line, f)) {
        u.maps++;
    }
    fclose(f);
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) {
        u.fds++;
    }
    closedir(d);
    return u;
}

static void one_step(struct zerod *z, uint64_t step) {
    struct zerod_outcome out;
    struct zerod_try t;
    struct zerod_step s = {.rank_cursor = &step, .rank_cursor_bytes = sizeof step};
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(zerod_step(z, &s, &out), 0);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_uint_eq(t.step, step + 1);
    ck_assert_int_eq(memcmp(t.rank_cursor, &step, sizeof step), 0);
}

START_TEST(steps_leave_nothing) {
    struct zerod_try t;
    struct fake *f = fake_start(NULL);
    struct zerod *z = trainer_attach(f);
    struct usage before = measure(); /* the first measuring needs memory itself */
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    int64_t from = clock_ns();
    for (uint64_t step = 1; step <= STEPS; step++) {
        one_step(z, step);
        if (step == WARM) {
            before = measure();
        }
    }
    int64_t ns = clock_ns() - from;
    struct usage after = measure();
    printf("%d steps of 28 calls: %.0f us each; heap %zu -> %zu, maps %d -> %d, fds %d -> %d\n",
           STEPS, (double)ns / 1e3 / STEPS, before.heap, after.heap, before.maps, after.maps,
           before.fds, after.fds);
    ck_assert_uint_le(after.heap, before.heap + 4096); /* stdio's own line buffer */
    ck_assert_int_eq(after.fds, before.fds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ck_assert_int_le(after.maps, before.maps);
#endif
    zerod_detach(z, true);
    fake_stop(f);
}
END_TEST

START_TEST(attachments_leave_nothing) {
    struct zerod_try t;
    struct fake *f = fake_start(NULL);
    struct usage before = {0}, after;
    for (unsigned i = 0; i < ATTACHMENTS; i++) {
        struct zerod *z = trainer_attach(f);
        ck_assert_int_eq(zerod_begin(z, &t), 0);
        ck_assert_int_eq(trainer_micro_batch(z), 0);
        zerod_detach(z, i % 2);
        fake_wait_ended(f, i + 1);
        if (i == ATTACHMENTS / 2) {
            before = measure();
        }
    }
    after = measure();
    ck_assert_uint_le(after.heap,
                      before.heap + 16384);      /* malloc's caches; a leak is 100 times more */
    ck_assert_int_le(after.fds, before.fds + 1); /* the fake may not have closed yet */
    fake_stop(f);
}
END_TEST

int main(void) {
    Suite *s = suite_create("client/growth");
    TCase *c = tcase_create("growth");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, steps_leave_nothing);
    tcase_add_test(c, attachments_leave_nothing);
    suite_add_tcase(s, c);
    return run_suite(s);
}
