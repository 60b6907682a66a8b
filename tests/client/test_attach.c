/* How an attachment begins and ends: arguments, what the daemon may get wrong, forked children. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/client.h"
#include "tests/base/suite.h"
#include "fake.h"

static struct zerod_error error;

static int count_fds(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) {
        n++;
    }
    closedir(d);
    return n;
}

/* Lines of /proc/self/maps that map a memfd "fake". */
static int count_maps(void) {
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof line, f)) {
        n += strstr(line, "memfd:fake") != NULL;
    }
    fclose(f);
    return n;
}

/* Attaching to such a daemon fails with |code| and a text that has |part|; nothing stays. */
static void refused(const struct fake_options *o, int code, const char *part) {
    struct zerod *z = NULL;
    struct fake *f = fake_start(o);
    int fds = count_fds(), maps = count_maps();
    ck_assert_int_eq(attach_within(f->path, fake_model(), 5, &z, &error), -code);
    ck_assert_int_eq(error.code, code);
    ck_assert_msg(strstr(error.text, part) != NULL, "'%s' lacks '%s'", error.text, part);
    ck_assert_ptr_null(z);
    fake_wait_ended(f, 1);
    ck_assert_int_le(count_fds(), fds + 1); /* the fake's end of the connection */
    ck_assert_int_eq(count_maps(), maps);
    fake_stop(f);
}

START_TEST(attach_maps_the_memory) {
    struct zerod *z;
    struct fake *f = fake_start(NULL);
    int maps = count_maps();
    ck_assert_int_eq(zerod_attach(f->path, fake_model(), &z, &error), 0);
    ck_assert_uint_eq(zerod_rank(z), 0);
    ck_assert_uint_eq(zerod_world_size(z), 1);
    ck_assert_uint_eq(zerod_attachment(z), 1);
    ck_assert_str_eq(zerod_strategy(z), "zero3");
    ck_assert_int_eq(zerod_param_dtype(z), ZEROD_FP32);
    ck_assert_int_eq(zerod_wire_dtype(z), ZEROD_FP32);
    ck_assert_uint_eq(zerod_param_bytes(z, 0), 1024);
    ck_assert_uint_eq(zerod_grad_bytes(z, 0), 1024);
    ck_assert_uint_eq(zerod_initial_bytes(z, 0), 1024);
    ck_assert_uint_eq(zerod_param_offset(z, 0, 1), 768);
    ck_assert_uint_eq(zerod_grad_offset(z, 0, 1), 768);
    ck_assert_uint_eq(zerod_initial_offset(z, 0, 1), 768);
    ck_assert_uint_eq(zerod_param_bytes(z, 3), 0);
    ck_assert_uint_eq(zerod_grad_bytes(z, 3), 0);
    ck_assert_uint_eq(zerod_initial_bytes(z, 3), 0);
    ck_assert_uint_eq(zerod_param_offset(z, 0, 2), ZEROD_NOWHERE);
    ck_assert_uint_eq(zerod_grad_offset(z, 3, 0), ZEROD_NOWHERE);
    ck_assert_uint_eq(zerod_initial_offset(z, 3, 0), ZEROD_NOWHERE);
    ck_assert_int_eq(count_maps(), maps + 2);
    const void *p;
    ck_assert_int_eq(zerod_gather(z, 0, &p), -ZEROD_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(zerod_last_error(z)->text, "zerod_begin comes first"));
    ck_assert_int_eq(zerod_set_timeout(z, 0), -ZEROD_INVALID_ARGUMENT);
    ck_assert_int_eq(zerod_set_timeout(z, 1e300), 0);
    zerod_detach(z, true);
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_DETACH], 1);
    fake_wait_ended(f, 1);
    ck_assert_int_eq(count_maps(), maps);

    ck_assert_int_eq(setenv("ZEROD_ADDRESS", f->path, 1), 0);
    ck_assert_int_eq(zerod_attach(NULL, fake_model(), &z, &error), 0);
    ck_assert_uint_eq(zerod_attachment(z), 2);
    zerod_detach(z, false);
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_DETACH], 2);
    fake_wait_ended(f, 2);
    fake_stop(f);
    zerod_detach(NULL, true);
}
END_TEST

START_TEST(arguments_are_checked) {
    struct zerod *z = NULL;
    char path[200];
    unsetenv("ZEROD_ADDRESS");
    ck_assert_int_eq(zerod_attach(NULL, fake_model(), &z, &error), -ZEROD_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "ZEROD_ADDRESS"));
    memset(path, 'p', sizeof path);
    path[0] = '/';
    path[108] = '\0';
    ck_assert_int_eq(zerod_attach(path, fake_model(), &z, &error), -ZEROD_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "107"));
    ck_assert_int_eq(zerod_attach("/nowhere/z.sock", fake_model(), &z, &error), -ZEROD_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.text, "/nowhere/z.sock"));
    ck_assert_int_eq(zerod_attach("/nowhere/z.sock", NULL, &z, NULL), -ZEROD_INVALID_ARGUMENT);
    ck_assert_int_eq(zerod_attach("/nowhere/z.sock", fake_model(), NULL, NULL),
                     -ZEROD_INVALID_ARGUMENT);
    ck_assert_ptr_null(z);
    ck_assert_str_eq(zerod_status_name(-10), "ABORTED");
    ck_assert_str_eq(zerod_status_name(10), "ABORTED");
}
END_TEST

START_TEST(wrong_memory_is_refused) {
    refused(&(struct fake_options){.promise_params = 1 << 20}, ZEROD_INTERNAL,
            "8192 bytes for the parameters, it promised 1048576");
    refused(&(struct fake_options){.promise_grads = 8193}, ZEROD_INTERNAL, "gradient slots");
    refused(&(struct fake_options){.promise_params = UINT64_MAX}, ZEROD_INTERNAL, "promised");
    refused(&(struct fake_options){.promise_params = 512}, ZEROD_INTERNAL, "unit 'a' has 1024");
    refused(&(struct fake_options){.unsealed = true}, ZEROD_INTERNAL, "not sealed");
    refused(&(struct fake_options){.swapped = true, .gather_slots = 4}, ZEROD_INTERNAL, "promised");
    refused(&(struct fake_options){.no_token = true}, ZEROD_INTERNAL, "no ticket");
    refused(&(struct fake_options){.bad_place = true}, ZEROD_INTERNAL, "tensor 'a.bias'");
    refused(&(struct fake_options){.one_descriptor = true}, ST_DATA_LOSS, "descriptor");
}
END_TEST

static bool refuse_to_register(struct fake *f, const Zerod__V1__TrainerRequest *r) {
    fake_refuse(f, r->id, 6, "trainer 4711 is attached", false);
    return true;
}

static bool end_with_status(struct fake *f, const Zerod__V1__TrainerRequest *r) {
    (void)r;
    grpc_call_finish(f->call, ST_PERMISSION_DENIED, "another user's daemon");
    return true;
}

static bool say_nothing(struct fake *f, const Zerod__V1__TrainerRequest *r) {
    (void)f, (void)r;
    return true;
}

static bool answer_done(struct fake *f, const Zerod__V1__TrainerRequest *r) {
    Zerod__V1__TrainerReply reply = ZEROD__V1__TRAINER_REPLY__INIT;
    Zerod__V1__Done m = ZEROD__V1__DONE__INIT;
    reply.id = r->id;
    reply.answer_case = ZEROD__V1__TRAINER_REPLY__ANSWER_DONE;
    reply.done = &m;
    fake_send(f, &reply);
    return true;
}

static bool send_garbage(struct fake *f, const Zerod__V1__TrainerRequest *r) {
    static const char bytes[] = "HTTP/1.1 400 this is no HTTP/2 at all\r\n\r\n";
    (void)r;
    ck_assert_int_gt((int)send(f->conn_fd, bytes, sizeof bytes, MSG_NOSIGNAL), 0);
    return true;
}

START_TEST(a_refusal_says_why) {
    refused(&(struct fake_options){.hook = refuse_to_register}, ZEROD_ALREADY_EXISTS,
            "trainer 4711 is attached");
    refused(&(struct fake_options){.hook = end_with_status}, ZEROD_PERMISSION_DENIED,
            "another user's daemon");
    refused(&(struct fake_options){.hook = answer_done}, ZEROD_INTERNAL, "done");
}
END_TEST

/* Something else than a daemon listens there, and waits. */
START_TEST(garbage_is_no_daemon) {
    struct zerod *z = NULL;
    struct fake *f = fake_start(&(struct fake_options){.hook = send_garbage});
    int rc = attach_within(f->path, fake_model(), 0.5, &z, &error);
    ck_assert_msg(rc == -ZEROD_UNAVAILABLE, "%d", rc);
    ck_assert_ptr_nonnull(strstr(error.text, f->path));
    ck_assert_ptr_null(z);
    fake_stop(f);
}
END_TEST

START_TEST(attach_has_a_deadline) {
    struct zerod *z;
    struct fake *f = fake_start(&(struct fake_options){.hook = say_nothing});
    ck_assert_int_eq(attach_within(f->path, fake_model(), 0.1, &z, &error),
                     -ZEROD_DEADLINE_EXCEEDED);
    ck_assert_ptr_nonnull(strstr(error.text, f->path));
    fake_stop(f);
}
END_TEST

/* Exits with the number of the first thing that is wrong. */
static void forked_child(struct zerod *z, const void *params) {
    const void *p;
    unsigned char in_core;
    if (zerod_gather(z, 0, &p) != -ZEROD_FAILED_PRECONDITION ||
        !strstr(zerod_last_error(z)->text, "forked")) {
        _exit(1);
    }
    if (zerod_step(z, NULL, NULL) != -ZEROD_FAILED_PRECONDITION ||
        zerod_release(z, 0) != -ZEROD_FAILED_PRECONDITION) {
        _exit(2);
    }
    void *page = (void *)((uintptr_t)params & ~(uintptr_t)4095);
    if (mincore(page, 1, &in_core) != -1 || errno != ENOMEM) { /* not inherited */
        _exit(3);
    }
    /* Something else may lie there by now, and detach must not unmap it. */
    char *mine =
        mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    zerod_detach(z, true);
    if (mincore(mine, 1, &in_core) != 0) {
        _exit(4);
    }
    _exit(0);
}

START_TEST(a_forked_child_is_no_trainer) {
    struct zerod *z;
    struct zerod_try t;
    const void *p;
    struct fake *f = fake_start(NULL);
    ck_assert_int_eq(zerod_attach(f->path, fake_model(), &z, &error), 0);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    pid_t child = fork();
    if (child == 0) {
        forked_child(z, p);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
    ck_assert_uint_eq(f->ended, 0); /* the parent's attachment goes on */
    ck_assert(*(const float *)p == fake_param(0));
    ck_assert_int_eq(zerod_release(z, 0), 0);
    ck_assert_int_eq(zerod_gather(z, 1, &p), 0);
    ck_assert(*(const float *)p == fake_param(1));
    zerod_detach(z, false);
    fake_stop(f);
}
END_TEST

int main(void) {
    Suite *s = suite_create("client/attach");
    TCase *c = tcase_create("attach");
    tcase_set_timeout(c, 20);
    tcase_add_test(c, attach_maps_the_memory);
    tcase_add_test(c, arguments_are_checked);
    tcase_add_test(c, wrong_memory_is_refused);
    tcase_add_test(c, a_refusal_says_why);
    tcase_add_test(c, garbage_is_no_daemon);
    tcase_add_test(c, attach_has_a_deadline);
    tcase_add_test(c, a_forked_child_is_no_trainer);
    suite_add_tcase(s, c);
    return run_suite(s);
}
