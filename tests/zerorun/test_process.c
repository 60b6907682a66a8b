/* Child processes: output before the end, environment, groups, and errors of exec. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/zerorun/process.h"
#include "tests/base/suite.h"

static struct seen {
    char text[2][256];
    bool over;
    struct process_end end;
} seen;

static void on_output(void *user, int stream, const char *bytes, size_t n) {
    struct seen *s = user;
    ck_assert(!s->over);
    strncat(s->text[stream - 1], bytes, n);
}

static void on_exit_(void *user, const struct process_end *end) {
    struct seen *s = user;
    s->over = true;
    s->end = *end;
}

static struct process_options shell(const char *script) {
    static char *argv[4] = {"sh", "-c", NULL, NULL};
    static char copy[512];
    snprintf(copy, sizeof copy, "%s", script);
    argv[2] = copy;
    seen = (struct seen){0};
    return (struct process_options){
        .argv = argv,
        .keep_fd = -1,
        .on_output = on_output,
        .on_exit = on_exit_,
        .user = &seen,
    };
}

static void run(const struct process_options *o, int signal_number) {
    uv_loop_t loop;
    struct process *p;
    struct err e;
    uv_loop_init(&loop);
    ck_assert_int_eq(process_start(&loop, o, &p, &e), 0);
    if (signal_number) {
        process_signal(p, signal_number);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert(seen.over);
}

START_TEST(test_output_and_status) {
    struct process_options o = shell("printf 'to one'; printf 'to two' >&2; exit 7");
    char text[64];
    run(&o, 0);
    ck_assert_str_eq(seen.text[0], "to one");
    ck_assert_str_eq(seen.text[1], "to two");
    ck_assert(!seen.end.killed);
    ck_assert_int_eq(seen.end.code, 7);
    seen.end.pid = 12;
    ck_assert_str_eq(process_end_text("x", &seen.end, text, sizeof text),
                     "x (pid 12) exited with status 7");
}
END_TEST

START_TEST(test_signal) {
    struct process_options o = shell("sleep 60; echo no");
    run(&o, SIGKILL);
    ck_assert(seen.end.killed);
    ck_assert_int_eq(seen.end.code, SIGKILL);
    ck_assert_str_eq(seen.text[0], "");
}
END_TEST

START_TEST(test_environment) {
    struct process_options o = shell("printf \"$A $B $C\"");
    setenv("B", "kept", 1);
    unsetenv("C");
    o.environment = (char *[]){"A=set", NULL};
    o.defaults = (char *[]){"B=lost", "C=default", NULL};
    run(&o, 0);
    ck_assert_str_eq(seen.text[0], "set kept default");
}
END_TEST

/* What the child left behind in its group goes when it ends, though it holds the pipes. */
START_TEST(test_group_goes) {
    struct process_options o = shell("sleep 60 & printf $!; exit 0");
    alarm(10);
    run(&o, 0);
    alarm(0);
    pid_t left = (pid_t)atoi(seen.text[0]);
    ck_assert_int_gt(left, 1);
    for (int i = 0; i < 100 && kill(left, 0) == 0; i++) { /* until somebody reaps it */
        char path[64], state[128] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", (int)left);
        FILE *f = fopen(path, "r");
        if (!f || !fgets(state, sizeof state, f) || strstr(state, ") Z")) {
            if (f) {
                fclose(f);
            }
            return;
        }
        fclose(f);
        usleep(20000);
        ck_assert_msg(i < 99, "pid %d still runs: %s", (int)left, state);
    }
}
END_TEST

START_TEST(test_kept_descriptor) {
    struct process_options o = shell("cat <&3");
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq((int)write(ends[1], "held", 4), 4);
    close(ends[1]);
    o.keep_fd = ends[0];
    run(&o, 0);
    close(ends[0]);
    ck_assert_str_eq(seen.text[0], "held");
}
END_TEST

START_TEST(test_not_there) {
    struct process_options o = shell("");
    uv_loop_t loop;
    struct process *p;
    struct err e;
    uv_loop_init(&loop);
    o.argv = (char *[]){"/no/such/program", NULL};
    ck_assert_int_eq(process_start(&loop, &o, &p, &e), -ST_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(e.text, "/no/such/program"));
    o.argv = (char *[]){"/etc/passwd", NULL};
    ck_assert_int_eq(process_start(&loop, &o, &p, &e), -ST_PERMISSION_DENIED);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("zerorun/process");
    TCase *t = tcase_create("process");
    tcase_set_timeout(t, 20);
    tcase_add_test(t, test_output_and_status);
    tcase_add_test(t, test_signal);
    tcase_add_test(t, test_environment);
    tcase_add_test(t, test_group_goes);
    tcase_add_test(t, test_kept_descriptor);
    tcase_add_test(t, test_not_there);
    suite_add_tcase(s, t);
    return run_suite(s);
}
