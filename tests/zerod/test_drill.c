/* When a drill is due, and that it kills and waits. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zerod/drill.h"
#include "tests/base/suite.h"

START_TEST(is_due_once_at_its_point) {
    struct drill d = {0};
    struct err e = {0};
    struct fence now = {1, 5, 1}, again = {1, 5, 2}, other = {1, 6, 1};
    ck_assert_int_eq(drill_spec_parse("kill-trainer:rank=1,step=5,phase=voted", 3, &d.spec, &e), 0);
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
    struct drill d = {0};
    struct err e = {0};
    int status = 0;
    ck_assert_int_eq(drill_spec_parse("kill-trainer:rank=0,step=1", 1, &d.spec, &e), 0);
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
    tcase_add_test(t, is_due_once_at_its_point);
    tcase_add_test(t, kills_and_waits);
    suite_add_tcase(s, t);
    return run_suite(s);
}
