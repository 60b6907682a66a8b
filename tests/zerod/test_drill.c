/* The drill's specification, and that it kills and waits. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zerod/drill.h"
#include "tests/base/suite.h"

START_TEST(parses_all_parts) {
    struct drill d;
    struct err e = {0};
    ck_assert_int_eq(drill_parse("kill-trainer:rank=1,step=7,phase=voted", 2, &d, &e), 0);
    ck_assert(d.set && !d.done);
    ck_assert_uint_eq(d.rank, 1);
    ck_assert_uint_eq(d.step, 7);
    ck_assert_int_eq(d.phase, DRILL_VOTED);
    ck_assert_int_eq(drill_parse("kill-trainer:step=3,rank=0", 1, &d, &e), 0);
    ck_assert_int_eq(d.phase, DRILL_COMPUTE);
    ck_assert_int_eq(drill_parse("", 1, &d, &e), 0);
    ck_assert(!d.set);
}
END_TEST

START_TEST(names_what_is_wrong) {
    static const struct {
        const char *spec, *word;
    } cases[] = {
        {"kill-daemon:rank=0,step=1", "kill-trainer:"},
        {"kill-trainer:rank=0", "needs rank=R and step=S"},
        {"kill-trainer:rank=9,step=1", "there are 2 ranks"},
        {"kill-trainer:rank=x,step=1", "rank=x is not a number"},
        {"kill-trainer:rank=0,step=1,phase=lunch", "phase=lunch"},
        {"kill-trainer:rank=0,step=1,color=red", "color"},
        {"kill-trainer:rank", "not name=value"},
        {"kill-trainer:rank=99999999999999999999,step=1", "is not a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct drill d;
        struct err e = {0};
        ck_assert_int_eq(drill_parse(cases[i].spec, 2, &d, &e), -ST_INVALID_ARGUMENT);
        ck_assert_msg(strstr(e.text, cases[i].word) != NULL, "%s: %s", cases[i].spec, e.text);
        ck_assert(!d.set);
    }
}
END_TEST

START_TEST(is_due_once_at_its_point) {
    struct drill d;
    struct err e = {0};
    struct fence now = {1, 5, 1}, again = {1, 5, 2}, other = {1, 6, 1};
    ck_assert_int_eq(drill_parse("kill-trainer:rank=1,step=5,phase=voted", 3, &d, &e), 0);
    ck_assert(drill_due(&d, 1, DRILL_VOTED, &now));
    ck_assert(!drill_due(&d, 0, DRILL_VOTED, &now));
    ck_assert(!drill_due(&d, 1, DRILL_APPLY, &now));
    ck_assert(!drill_due(&d, 1, DRILL_VOTED, &again));
    ck_assert(!drill_due(&d, 1, DRILL_VOTED, &other));
    ck_assert(drill_holds_vote(&d, 0, &now) && drill_holds_vote(&d, 2, &now));
    ck_assert(!drill_holds_vote(&d, 1, &now));
    d.done = true;
    ck_assert(!drill_due(&d, 1, DRILL_VOTED, &now) && !drill_holds_vote(&d, 0, &now));
}
END_TEST

START_TEST(kills_and_waits) {
    struct drill d;
    struct err e = {0};
    int status = 0;
    ck_assert_int_eq(drill_parse("kill-trainer:rank=0,step=1", 1, &d, &e), 0);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    ck_assert_int_ge(fd, 0);
    drill_kill(&d, fd);
    ck_assert(d.done);
    ck_assert_int_eq(waitpid(child, &status, WNOHANG), child); /* dead already: no waiting here */
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(fd);
}
END_TEST

int main(void) {
    Suite *s = suite_create("drill");
    TCase *t = tcase_create("drill");
    tcase_add_test(t, parses_all_parts);
    tcase_add_test(t, names_what_is_wrong);
    tcase_add_test(t, is_due_once_at_its_point);
    tcase_add_test(t, kills_and_waits);
    suite_add_tcase(s, t);
    return run_suite(s);
}
