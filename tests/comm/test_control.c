/* Records are read whole or not at all; waiting ends when any of the words is raised. */
#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "comm/control.h"
#include "comm/wait.h"
#include "tests/base/suite.h"

enum { READS = 1000, BURST = 64 };

static struct control_record record;
static _Atomic bool done;

static void *write_records(void *arg) {
    (void)arg;
    for (uint64_t i = 1; !atomic_load(&done); i++) {
        const uint64_t words[CONTROL_WORDS] = {i, i, i, i, i, i, i};
        control_write(&record, words, CONTROL_WORDS);
        if (i % BURST == 0) {
            sched_yield(); /* else a reader on a busy machine may never come in between */
        }
    }
    return NULL;
}

START_TEST(a_record_is_whole) {
    pthread_t t;
    uint64_t w[CONTROL_WORDS], read = 0;
    ck_assert_int_eq(pthread_create(&t, NULL, write_records, NULL), 0);
    while (read < READS) {
        if (control_read(&record, w)) {
            for (int i = 1; i < CONTROL_WORDS; i++) {
                ck_assert_uint_eq(w[i], w[0]);
            }
            read++;
        }
    }
    atomic_store(&done, true);
    pthread_join(t, NULL);
    ck_assert(control_read(&record, w));
    ck_assert_uint_gt(w[0], 0);
}
END_TEST

START_TEST(a_record_being_written_is_not_read) {
    static struct control_record r = {.turn = 3}; /* 64-byte aligned, as it is in the page */
    uint64_t w[CONTROL_WORDS];
    ck_assert(!control_read(&r, w));
}
END_TEST

static _Atomic uint32_t words[3];

static void *raise_last(void *arg) {
    (void)arg;
    const struct timespec t = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&t, NULL);
    atomic_fetch_add(&words[2], 1);
    wait_wake(&words[2], true);
    return NULL;
}

START_TEST(any_word_ends_the_wait) {
    pthread_t t;
    const struct wait_word w[] = {
        {&words[0], 0, false}, {&words[1], 0, true}, {&words[2], 0, true}};
    int64_t begin = clock_ns();
    ck_assert_int_eq(pthread_create(&t, NULL, raise_last, NULL), 0);
    while (!atomic_load(&words[2])) {
        wait_any(w, 3);
    }
    pthread_join(t, NULL);
    ck_assert_int_lt(clock_ns() - begin, INT64_C(2000000000));
    wait_any(w, 3); /* differs already: returns at once */
}
END_TEST

int main(void) {
    Suite *s = suite_create("control");
    TCase *c = tcase_create("control");
    tcase_add_test(c, a_record_is_whole);
    tcase_add_test(c, a_record_being_written_is_not_read);
    tcase_add_test(c, any_word_ends_the_wait);
    suite_add_tcase(s, c);
    return run_suite(s);
}
