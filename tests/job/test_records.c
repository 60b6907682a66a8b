/* Records in adopted memory: what is read back, which buffer is written, and that a record with any
 * byte wrong is no record. */
#include <stdlib.h>
#include <string.h>

#include "job/words.h"
#include "tests/base/suite.h"

static struct records *r;
static const uint8_t uuid_a[JOB_UUID] = "coordinator a", uuid_b[JOB_UUID] = "coordinator b";

static void setup(void) {
    r = calloc(1, sizeof *r);
}
static void teardown(void) {
    free(r);
}

static struct vote a_vote(uint64_t step, uint64_t attempt, const char *cursor) {
    return (struct vote){.fence = {5, step, attempt},
                         .yes = true,
                         .sum_squares = 2.5,
                         .weight = 1,
                         .user_count = 1,
                         .user = {0.25},
                         .rank_cursor = (const uint8_t *)cursor,
                         .rank_cursor_bytes = strlen(cursor),
                         .shared_cursor = (const uint8_t *)"shared",
                         .shared_cursor_bytes = 6};
}

static struct decision a_decision(uint64_t step) {
    return (struct decision){.fence = {5, step, 1},
                             .outcome = OUTCOME_COMMIT,
                             .t = step,
                             .scale = {.scale = 512, .good = 3, .hysteresis = 1},
                             .shared_cursor = (const uint8_t *)"decided",
                             .shared_cursor_bytes = 7};
}

static void write_vote(struct vote v) {
    records_write_vote(r, &v);
}
static void write_decision(struct decision d) {
    records_write_decision(r, &d);
}

START_TEST(fresh_zeros_hold_nothing) {
    struct vote v;
    struct decision d;
    uint64_t generation;
    uint8_t uuid[JOB_UUID];
    for (uint64_t step = 0; step < 3; step++) {
        ck_assert(!records_read_vote(r, step, &v));
        ck_assert(!records_read_decision(r, step, &d));
    }
    ck_assert(!records_last_decision(r, &d));
    ck_assert(!records_read_grant(r, &generation, uuid));
}
END_TEST

START_TEST(what_is_written_is_read) {
    write_vote(a_vote(4, 2, "rank"));
    write_decision(a_decision(4));
    struct vote v;
    struct decision d;
    ck_assert(records_read_vote(r, 4, &v));
    ck_assert(v.yes && v.sum_squares == 2.5 && v.user[0] == 0.25 && v.fence.attempt == 2);
    ck_assert_uint_eq(v.rank_cursor_bytes, 4);
    ck_assert_mem_eq(v.rank_cursor, "rank", 4);
    ck_assert_mem_eq(v.shared_cursor, "shared", 6);
    ck_assert(v.rank_cursor == r->votes[0].rank_cursor);
    ck_assert(records_read_decision(r, 4, &d));
    ck_assert_mem_eq(d.shared_cursor, "decided", 7);
    ck_assert(d.scale.scale == 512 && d.scale.good == 3 && d.scale.hysteresis == 1);
    ck_assert(!records_read_vote(r, 2, &v));
    ck_assert(!records_read_decision(r, 2, &d));
}
END_TEST

/* A second attempt at S replaces the vote of S, never that of S-1 with its committed cursor. */
START_TEST(buffers_are_even_and_odd_steps) {
    write_vote(a_vote(6, 1, "six"));
    write_vote(a_vote(7, 1, "seven"));
    write_vote(a_vote(7, 2, "seven again"));
    write_vote(a_vote(7, 3, ""));
    struct vote v;
    ck_assert(records_read_vote(r, 6, &v));
    ck_assert_mem_eq(v.rank_cursor, "six", 3);
    ck_assert(records_read_vote(r, 7, &v));
    ck_assert(v.fence.attempt == 3 && v.rank_cursor_bytes == 0);
    write_decision(a_decision(6));
    write_decision(a_decision(7));
    struct decision d;
    ck_assert(records_last_decision(r, &d) && d.fence.step == 7);
    ck_assert(records_read_decision(r, 6, &d));
    write_decision(a_decision(8));
    ck_assert(records_last_decision(r, &d) && d.fence.step == 8);
    ck_assert(!records_read_decision(r, 6, &d));
}
END_TEST

START_TEST(longest_cursors) {
    uint8_t *bytes = malloc(JOB_CURSOR);
    for (size_t i = 0; i < JOB_CURSOR; i++) {
        bytes[i] = (uint8_t)(i * 7);
    }
    struct vote v = a_vote(3, 1, ""), back;
    v.rank_cursor = v.shared_cursor = bytes;
    v.rank_cursor_bytes = v.shared_cursor_bytes = JOB_CURSOR;
    records_write_vote(r, &v);
    ck_assert(records_read_vote(r, 3, &back));
    ck_assert_mem_eq(back.rank_cursor, bytes, JOB_CURSOR);
    r->votes[1].shared_cursor[JOB_CURSOR - 1] ^= 1;
    ck_assert(!records_read_vote(r, 3, &back));
    r->votes[1].shared_cursor[JOB_CURSOR - 1] ^= 1;
    r->votes[1].vote.rank_cursor_bytes =
        SIZE_MAX; /* must not be believed before the crc is checked */
    ck_assert(!records_read_vote(r, 3, &back));
    free(bytes);
}
END_TEST

/* Each byte that counts, flipped: no record. And put back: the record again. */
static void flip_all(void *at, size_t n, bool (*reads)(void)) {
    uint8_t *bytes = at;
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x10;
        ck_assert_msg(!reads(), "byte %zu of %zu flipped, and it still reads", i, n);
        bytes[i] ^= 0x10;
        ck_assert(reads());
    }
}

static bool reads_vote(void) {
    struct vote v;
    return records_read_vote(r, 4, &v);
}

static bool reads_decision(void) {
    struct decision d;
    return records_last_decision(r, &d);
}

static bool reads_grant(void) {
    uint64_t generation;
    uint8_t uuid[JOB_UUID];
    return records_read_grant(r, &generation, uuid);
}

START_TEST(a_flipped_byte_is_no_record) {
    write_vote(a_vote(4, 1, "cursor"));
    flip_all(&r->votes[0].crc, sizeof r->votes[0].crc, reads_vote);
    flip_all(&r->votes[0].vote, sizeof r->votes[0].vote, reads_vote);
    flip_all(r->votes[0].rank_cursor, 6, reads_vote);
    flip_all(r->votes[0].shared_cursor, 6, reads_vote);
    write_decision(a_decision(4));
    flip_all(&r->decisions[0].crc, sizeof r->decisions[0].crc, reads_decision);
    flip_all(&r->decisions[0].decision, sizeof r->decisions[0].decision, reads_decision);
    flip_all(r->decisions[0].shared_cursor, 7, reads_decision);
    records_write_grant(r, 9, uuid_a);
    flip_all(&r->grants[0].crc, sizeof r->grants[0].crc, reads_grant);
    flip_all(&r->grants[0].generation, sizeof r->grants[0].generation, reads_grant);
    flip_all(r->grants[0].coordinator, JOB_UUID, reads_grant);
}
END_TEST

/* Each prefix of a write, as a death leaves it (the crc comes last): the record before it of that
 * buffer is gone, the new one is not there, the other buffer is whole. */
START_TEST(a_torn_write_is_no_record) {
    static struct records before, after;
    write_vote(a_vote(3, 1, "three"));
    write_vote(a_vote(4, 1, "four, first"));
    before = *r;
    write_vote(a_vote(4, 2, "four, again"));
    after = *r;
    const uint8_t *from = (const uint8_t *)&after.votes[0].vote;
    const size_t bytes = sizeof after.votes[0].vote;
    for (size_t n = 0; n <= bytes; n++) {
        *r = before;
        memcpy(&r->votes[0].vote, from, n);
        const bool changed = memcmp(from, &before.votes[0].vote, n) != 0;
        struct vote v;
        ck_assert(records_read_vote(r, 4, &v) == !changed);
        ck_assert(records_read_vote(r, 3, &v));
    }
}
END_TEST

START_TEST(the_higher_grant_counts) {
    uint64_t generation;
    uint8_t uuid[JOB_UUID];
    for (uint64_t g = 1; g < 8; g++) {
        records_write_grant(r, g, g & 1 ? uuid_a : uuid_b);
        ck_assert(records_read_grant(r, &generation, uuid));
        ck_assert_uint_eq(generation, g);
        ck_assert_mem_eq(uuid, g & 1 ? uuid_a : uuid_b, JOB_UUID);
    }
    /* A torn write of the next leaves the last. */
    struct grant_record *older = r->grants[0].generation == 7 ? &r->grants[1] : &r->grants[0];
    older->generation = 8;
    ck_assert(records_read_grant(r, &generation, uuid));
    ck_assert_uint_eq(generation, 7);
    records_write_grant(r, 8, uuid_b);
    ck_assert(records_read_grant(r, &generation, uuid));
    ck_assert_uint_eq(generation, 8);
}
END_TEST

int main(void) {
    Suite *s = suite_create("records");
    TCase *t = tcase_create("records");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, fresh_zeros_hold_nothing);
    tcase_add_test(t, what_is_written_is_read);
    tcase_add_test(t, buffers_are_even_and_odd_steps);
    tcase_add_test(t, longest_cursors);
    tcase_add_test(t, a_flipped_byte_is_no_record);
    tcase_add_test(t, a_torn_write_is_no_record);
    tcase_add_test(t, the_higher_grant_counts);
    suite_add_tcase(s, t);
    return run_suite(s);
}
