/* Lines of the job's processes: prefixes, order, and what a first cause leaves of them. Standard
 * output and error are a file meanwhile. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/zerorun/screen.h"
#include "client/zerorun/talk.h"
#include "tests/base/suite.h"

static uv_loop_t loop;
static struct talk *talk;
static int file, saved[2];

static void setup(void) {
    char name[] = "/tmp/zerod-test-XXXXXX";
    file = mkstemp(name);
    ck_assert_int_ge(file, 0);
    unlink(name);
    (void)fcntl(file, F_SETFL, O_APPEND);
    for (int i = 0; i < 2; i++) {
        saved[i] = dup(i + 1);
        dup2(file, i + 1);
    }
    screen_init();
    uv_loop_init(&loop);
    talk = talk_new(&loop);
}

static void restore(void) {
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], i + 1);
        close(saved[i]);
    }
}

/* Ends the loop, puts the streams back, compares what was written. */
static void wrote(const char *expected) {
    char text[65536];
    talk_close(talk);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    restore();
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    ck_assert_int_ge(n, 0);
    text[n] = 0;
    close(file);
    ck_assert_str_eq(text, expected);
}

static void hear(struct speaker *s, const char *text) {
    talk_hear(talk, s, text, strlen(text));
}

START_TEST(test_prefix_and_pieces) {
    struct speaker s = {.owner = &s, .fd = 2, .prefix = "[rank 1] "};
    hear(&s, "one\ntw");
    hear(&s, "o\n\nunfin");
    hear(&s, "ished");
    talk_end(talk, &s);
    wrote("[rank 1] one\n[rank 1] two\n[rank 1] \n[rank 1] unfinished\n");
}
END_TEST

START_TEST(test_as_it_comes) {
    struct speaker raw = {.owner = &raw, .fd = 1, .as_it_comes = true};
    struct speaker s = {.owner = &s, .fd = 2};
    hear(&s, "held\n");
    hear(&raw, "no newline ");
    talk_end(talk, &raw);
    wrote("no newline held\n");
    talk = NULL;
    buf_free(&s.unfinished);
}
END_TEST

START_TEST(test_first_cause) {
    struct speaker a = {.owner = &a, .fd = 2}, b = {.owner = &b, .fd = 2};
    hear(&a, "consequence\n");
    hear(&b, "cause\n");
    talk_say(talk, "another consequence");
    hear(&b, "more of it\n");
    talk_first_cause(talk, &b);
    hear(&a, "too late\n");
    talk_end(talk, &a);
    talk_end(talk, &b);
    wrote("cause\nmore of it\n");
}
END_TEST

START_TEST(test_place_and_pause) {
    struct speaker a = {.owner = &a, .fd = 2}, b = {.owner = &b, .fd = 2};
    hear(&a, "first\n");
    talk_pause(talk);
    hear(&b, "second\n");
    ck_assert_uint_eq(talk_place(talk, &a), 0);
    ck_assert_uint_eq(talk_place(talk, &b), 1);
    ck_assert_uint_eq(talk_place(talk, &loop), SIZE_MAX);
    uv_run(&loop, UV_RUN_DEFAULT); /* nothing is due */
    ck_assert_int_eq((int)lseek(file, 0, SEEK_END), 0);
    talk_end(talk, &a);
    talk_end(talk, &b);
    wrote("first\nsecond\n");
}
END_TEST

START_TEST(test_quarantine) {
    struct speaker a = {.owner = &a, .fd = 2}, b = {.owner = &b, .fd = 2};
    hear(&a, "before\n");
    talk_quarantine(talk);
    hear(&a, "farewell\n");
    hear(&b, "crash\n");
    talk_release(talk, &b);
    talk_end(talk, &a);
    talk_end(talk, &b);
    wrote("before\ncrash\n");
}
END_TEST

START_TEST(test_delay_passes) {
    struct speaker s = {.owner = &s, .fd = 2};
    uv_update_time(&loop);
    hear(&s, "line\n");
    ck_assert_int_eq((int)lseek(file, 0, SEEK_END), 0);
    uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq((int)lseek(file, 0, SEEK_END), 5);
    talk_end(talk, &s);
    wrote("line\n");
}
END_TEST

START_TEST(test_endless_line_is_cut) {
    struct speaker s = {.owner = &s, .fd = 2};
    static char many[TALK_LINE_MAX + 2];
    memset(many, 'x', sizeof many - 1);
    hear(&s, many);
    ck_assert_uint_eq(buf_unread(&s.unfinished), 1);
    talk_silence(talk);
    talk_end(talk, &s);
    many[TALK_LINE_MAX] = '\n';
    wrote(many);
}
END_TEST

int main(void) {
    Suite *s = suite_create("zerorun/talk");
    TCase *t = tcase_create("talk");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, test_prefix_and_pieces);
    tcase_add_test(t, test_as_it_comes);
    tcase_add_test(t, test_first_cause);
    tcase_add_test(t, test_place_and_pause);
    tcase_add_test(t, test_quarantine);
    tcase_add_test(t, test_delay_passes);
    tcase_add_test(t, test_endless_line_is_cut);
    suite_add_tcase(s, t);
    return run_suite(s);
}
