/* A try that nothing disturbs: loading, prefetch without round trips, leases, cursors, eval. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"
#include "in_try.h"

START_TEST(loading_comes_first) {
    const void *p;
    void *g;
    float *v;
    start_with((struct fake_options){.start_step = 0});
    ck_assert(t.loading);
    ck_assert_uint_eq(t.step, 0);
    ck_assert_uint_eq(t.attempt, 1);
    ck_assert_int_eq(zerod_gather(z, 0, &p), -ZEROD_FAILED_PRECONDITION);
    ck_assert_int_eq(zerod_begin_eval(z), -ZEROD_FAILED_PRECONDITION);
    ck_assert_int_eq(zerod_load(z, 0), -ZEROD_FAILED_PRECONDITION);
    ck_assert_int_eq(zerod_grad(z, 0, true, &g), -ZEROD_FAILED_PRECONDITION);
    ck_assert(t.loss_scale == FAKE_SCALE);
    ck_assert_int_eq(trainer_load(z), 0);
    ck_assert_int_eq(zerod_initial(z, 0, &v), -ZEROD_ALREADY_EXISTS);
    ck_assert_int_eq(zerod_initial(z, 0, NULL), -ZEROD_INVALID_ARGUMENT);
    ck_assert_int_eq(zerod_step(z, NULL, &out), 0);
    for (uint32_t unit = 0; unit < 3; unit++) {
        ck_assert(f->last_sum[unit] == fake_param(unit));
    }
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert(!t.loading);
    ck_assert_uint_eq(t.step, 1);
    ck_assert(t.loss_scale == out.loss_scale && t.loss_scale == FAKE_SCALE);
    ck_assert_int_eq(zerod_load(z, 0), -ZEROD_FAILED_PRECONDITION);
    ck_assert_int_eq(zerod_initial(z, 0, &v), -ZEROD_FAILED_PRECONDITION);
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN], 1);
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(zerod_step(z, NULL, &out), 0);
    ck_assert(f->last_sum[0] == 3 && f->last_sum[1] == 2 && f->last_sum[2] == 1);
    stop();
}
END_TEST

/* With a slot for everything the daemon is done before it is asked, and the trainer gets through
 * the whole try while the daemon neither reads nor writes. */
START_TEST(a_planned_try_makes_no_round_trip) {
    start_with((struct fake_options){.start_step = 1, .gather_slots = 8, .grad_slots = 6});
    fake_pause(f);
    int64_t from = clock_ns();
    ck_assert_int_eq(trainer_try(z), 0);
    int64_t ns = clock_ns() - from;
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_GATHER], 0);
    fake_resume(f);
    ck_assert_int_eq(zerod_step(z, NULL, &out), 0);
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_GATHER], 8);
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_RELEASE], 8);
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE], 6);
    ck_assert_uint_eq(f->sent[ZEROD__V1__TRAINER_REPLY__ANSWER_REFUSED], 0);
    printf("a try of 28 calls against a silent daemon: %.0f us\n", (double)ns / 1e3);
    stop();
}
END_TEST

START_TEST(one_way_messages_leave_at_once) {
    start_with((struct fake_options){.start_step = 1});
    ck_assert_int_eq(trainer_micro_batch(z), 0);
    for (int ms = 0; ms < 2000 && f->got[ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE] < 3; ms++) {
        usleep(1000); /* no call of ours meanwhile */
    }
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE], 3);
    stop();
}
END_TEST

START_TEST(a_held_unit_is_gathered_locally) {
    const void *p, *again;
    start_with((struct fake_options){.start_step = 1});
    ck_assert_int_eq(zerod_gather(z, 0, &p), 0);
    ck_assert_int_eq(zerod_gather(z, 0, &again), 0);
    ck_assert_ptr_eq(p, again);
    ck_assert_int_eq(zerod_release(z, 0), 0);
    ck_assert_int_eq(zerod_gather(z, 1, &p), 0);
    fake_pause(f); /* synchronises */
    fake_resume(f);
    ck_assert_int_eq(zerod_release(z, 0), 0);
    ck_assert_int_eq(zerod_release(z, 0), -ZEROD_INVALID_ARGUMENT);
    ck_assert_int_eq(zerod_release(z, 1), 0);
    ck_assert_int_eq(zerod_gather(z, 2, &p), 0);
    for (int ms = 0; ms < 2000 && f->got[ZEROD__V1__TRAINER_REQUEST__CALL_GATHER] < 3; ms++) {
        usleep(1000);
    }
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_GATHER], 3);
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_RELEASE], 2);
    ck_assert_int_eq(zerod_gather(z, 3, &p), -ZEROD_INVALID_ARGUMENT);
    stop();
}
END_TEST

START_TEST(one_unit_is_loaded_at_a_time) {
    float *v;
    start_with((struct fake_options){.start_step = 0});
    ck_assert_int_eq(zerod_initial(z, 0, &v), 0);
    ck_assert_int_eq(zerod_initial(z, 1, &v), -ZEROD_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(zerod_last_error(z)->text, "after 'a'"));
    memset(v, 0, zerod_initial_bytes(z, 0));
    ck_assert_int_eq(zerod_load(z, 0), 0);
    ck_assert_int_eq(zerod_initial(z, 1, &v), 0);
    stop();
}
END_TEST

START_TEST(slots_are_zeroed_when_asked) {
    void *slot;
    start_with((struct fake_options){.start_step = 1});
    memset(f->grads, 0x41, f->grad_bytes);
    ck_assert_int_eq(zerod_grad(z, 2, true, &slot), 0);
    const float *g = slot;
    for (size_t i = 0; i < 64; i++) {
        ck_assert(g[i] == 0);
    }
    ck_assert(g[64] != 0); /* the next unit's business */
    ck_assert_int_eq(zerod_grad(z, 1, false, &slot), 0);
    g = slot;
    ck_assert(g[0] != 0);
    ck_assert_int_eq(zerod_reduce(z, 1), -ZEROD_FAILED_PRECONDITION); /* 2 comes first */
    ck_assert_int_eq(zerod_reduce(z, 2), 0);
    ck_assert_int_eq(zerod_grad(z, 2, true, &slot), -ZEROD_ALREADY_EXISTS);
    ck_assert_int_eq(zerod_reduce(z, 0), -ZEROD_FAILED_PRECONDITION);
    stop();
}
END_TEST

START_TEST(cursors_come_back) {
    double user[] = {1.5, -2};
    struct zerod_step s = {.learning_rate = 0.1,
                           .user_count = 2,
                           .user = user,
                           .rank_cursor = "rank one",
                           .rank_cursor_bytes = 8,
                           .shared_cursor = "shared",
                           .shared_cursor_bytes = 6};
    start_with((struct fake_options){.start_step = 1});
    ck_assert_uint_eq(t.rank_cursor_bytes, 0);
    for (uint64_t step = 2; step < 5; step++) {
        ck_assert_int_eq(trainer_try(z), 0);
        ck_assert_int_eq(zerod_step(z, &s, &out), 0);
        ck_assert_int_eq(out.kind, ZEROD_COMMITTED);
        ck_assert(out.grad_norm == 2.5 && out.user[0] == 1.5 && out.user[1] == -2);
        ck_assert(out.user[2] == 0);
        ck_assert_uint_eq(out.next_step, step);
        ck_assert_int_eq(zerod_begin(z, &t), 0);
        ck_assert_uint_eq(t.step, step);
        ck_assert_uint_eq(t.rank_cursor_bytes, 8);
        ck_assert_int_eq(memcmp(t.rank_cursor, "rank one", 8), 0);
        ck_assert_uint_eq(t.shared_cursor_bytes, 6);
        ck_assert_int_eq(zerod_begin(z, &t), 0); /* nothing was done yet: the same */
        ck_assert_int_eq(memcmp(t.rank_cursor, "rank one", 8), 0);
        s.rank_cursor = t.rank_cursor; /* the library's own bytes may be given back */
    }
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN], 1);
    ck_assert_int_eq(trainer_micro_batch(z), 0);
    ck_assert_int_eq(zerod_begin(z, &t), -ZEROD_FAILED_PRECONDITION);
    zerod_detach(z, false);
    z = trainer_attach(f); /* a replacement gets the committed ones */
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_uint_eq(t.rank_cursor_bytes, 8);
    ck_assert_int_eq(memcmp(t.rank_cursor, "rank one", 8), 0);
    stop();
}
END_TEST

START_TEST(step_checks_its_numbers) {
    double user[17] = {0};
    start_with((struct fake_options){.start_step = 1});
    struct zerod_step bad[] = {
        {.learning_rate = -1},
        {.clip = (double)INFINITY},
        {.weight = (double)NAN},
        {.user_count = 17, .user = user},
        {.user_count = 1},
        {.rank_cursor_bytes = 1},
        {.shared_cursor = user, .shared_cursor_bytes = ZEROD_CURSOR + 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(zerod_step(z, &bad[i], &out), -ZEROD_INVALID_ARGUMENT);
    }
    ck_assert_int_eq(zerod_step(z, NULL, NULL), -ZEROD_INVALID_ARGUMENT);
    ck_assert_int_eq(trainer_try(z), 0); /* the try is as it was */
    char *cursor = calloc(1, ZEROD_CURSOR);
    struct zerod_step full = {.rank_cursor = cursor,
                              .rank_cursor_bytes = ZEROD_CURSOR,
                              .shared_cursor = cursor,
                              .shared_cursor_bytes = ZEROD_CURSOR,
                              .user_count = 16,
                              .user = user};
    ck_assert_int_eq(zerod_step(z, &full, &out), 0);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_uint_eq(t.shared_cursor_bytes, ZEROD_CURSOR);
    free(cursor);
    stop();
}
END_TEST

START_TEST(an_eval_pass_gathers_only) {
    const void *p;
    void *g;
    start_with((struct fake_options){.start_step = 1});
    for (int pass = 0; pass < 2; pass++) {
        ck_assert_int_eq(zerod_end_eval(z), -ZEROD_FAILED_PRECONDITION);
        ck_assert_int_eq(zerod_begin_eval(z), 0);
        ck_assert_int_eq(zerod_begin_eval(z), -ZEROD_FAILED_PRECONDITION);
        for (uint32_t unit = 0; unit < 3; unit++) {
            ck_assert_int_eq(zerod_gather(z, unit, &p), 0);
            ck_assert(*(const float *)p == fake_param(unit));
            ck_assert_int_eq(zerod_release(z, unit), 0);
        }
        ck_assert_int_eq(zerod_grad(z, 0, false, &g), -ZEROD_FAILED_PRECONDITION);
        ck_assert_int_eq(zerod_step(z, NULL, &out), -ZEROD_FAILED_PRECONDITION);
        ck_assert_int_eq(zerod_end_eval(z), 0);
    }
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(zerod_begin_eval(z), -ZEROD_FAILED_PRECONDITION);
    ck_assert_int_eq(zerod_step(z, NULL, &out), 0);
    stop();
}
END_TEST

START_TEST(prefetch_announces_a_step) {
    start_with((struct fake_options){.start_step = 0});
    ck_assert_int_eq(zerod_prefetch(z), -ZEROD_FAILED_PRECONDITION); /* step 0 */
    ck_assert_int_eq(trainer_load(z), 0);
    ck_assert_int_eq(zerod_step(z, NULL, &out), 0);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_int_eq(zerod_begin_eval(z), 0);
    ck_assert_int_eq(zerod_prefetch(z), -ZEROD_FAILED_PRECONDITION); /* in an eval pass */
    ck_assert_int_eq(zerod_end_eval(z), 0);
    ck_assert_int_eq(zerod_prefetch(z), 0);
    ck_assert_int_eq(zerod_begin_eval(z), -ZEROD_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(zerod_last_error(z)->text, "after zerod_prefetch"));
    ck_assert_int_eq(trainer_try(z), 0);
    ck_assert_int_eq(zerod_step(z, NULL, &out), 0);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
    ck_assert_int_eq(zerod_begin_eval(z), 0); /* forgotten with its try */
    ck_assert_uint_eq(f->got[ZEROD__V1__TRAINER_REQUEST__CALL_PREFETCH], 1);
    stop();
}
END_TEST

int main(void) {
    Suite *s = suite_create("client/try");
    TCase *c = tcase_create("try");
    tcase_set_timeout(c, 20);
    tcase_add_test(c, loading_comes_first);
    tcase_add_test(c, a_planned_try_makes_no_round_trip);
    tcase_add_test(c, one_way_messages_leave_at_once);
    tcase_add_test(c, a_held_unit_is_gathered_locally);
    tcase_add_test(c, one_unit_is_loaded_at_a_time);
    tcase_add_test(c, slots_are_zeroed_when_asked);
    tcase_add_test(c, cursors_come_back);
    tcase_add_test(c, step_checks_its_numbers);
    tcase_add_test(c, prefetch_announces_a_step);
    tcase_add_test(c, an_eval_pass_gathers_only);
    suite_add_tcase(s, c);
    return run_suite(s);
}
