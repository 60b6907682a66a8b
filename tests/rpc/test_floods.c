/* Peers that do far too much, over real sockets: others are served all the while, and the memory is
 * what it was (both are printed). The server's loop is a thread of this process, so its resident
 * size is ours. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/base/suite.h"
#include "tests/proto/raw.h"
#include "tests/rpc/crowd.h"

#define SECOND INT64_C(1000000000)

enum { GROWTH_KIB = 4 * 1024 };

static struct host h;

static void setup(void) {
    host_start(&h);
}
static void teardown(void) {
    host_stop(&h);
}

/* ---- floods ---- */

static void resets(struct buf *b, uint32_t i) {
    const uint8_t cancel[] = {0, 0, 0, 8};
    raw_put_request(b, 2 * i + 1, ECHO_UNARY, RAW_END_HEADERS);
    raw_frame(b, RAW_RST, 0, 2 * i + 1, cancel, sizeof cancel);
}

static void pings(struct buf *b, uint32_t i) {
    (void)i;
    raw_frame(b, RAW_PING, 0, 0, "12345678", 8);
}

static void settings(struct buf *b, uint32_t i) {
    (void)i;
    raw_frame(b, RAW_SETTINGS, 0, 0, NULL, 0);
}

static void continuations(struct buf *b, uint32_t i) {
    if (i == 0) {
        raw_put_request(b, 1, ECHO_UNARY, 0);
    }
    raw_frame(b, RAW_CONTINUATION, 0, 1, NULL, 0);
}

static void empty_data(struct buf *b, uint32_t i) {
    if (i == 0) {
        raw_put_request(b, 1, ECHO_SINK, RAW_END_HEADERS);
    }
    raw_frame(b, RAW_DATA, 0, 1, NULL, 0);
}

/* As many new calls as are let in; none has anything to say. */
static void empty_calls(struct buf *b, uint32_t i) {
    raw_frame(b, RAW_HEADERS, RAW_END_HEADERS | RAW_END_STREAM, 2 * i + 1, NULL, 0);
}

static void priorities(struct buf *b, uint32_t i) {
    const uint8_t on[] = {0, 0, 0, 0, 1};
    raw_frame(b, 2, 0, 2 * (i % 100000) + 1, on, sizeof on);
}

static void windows(struct buf *b, uint32_t i) {
    const uint8_t one[] = {0, 0, 0, 1};
    (void)i;
    raw_frame(b, 8, 0, 0, one, sizeof one);
}

static void unknown(struct buf *b, uint32_t i) {
    raw_frame(b, 0xee, 0, i % 7, "?", 1);
}

static const struct {
    const char *name;
    void (*one)(struct buf *b, uint32_t i);
    size_t answer; /* bytes that the peer waits for, one frame's; else it reads what is there ... */
    bool deaf;     /* ... or nothing */
    bool given_up; /* the server must hang up; else it must not */
} floods[] = {
    {"trap_12 resets", resets, 0, false, true},
    {"trap_11 pings, answers read", pings, 17, false, false},
    {"trap_12 pings to the deaf", pings, 0, true, true},
    {"trap_12 settings, answers read", settings, 9, false, false},
    {"trap_12 settings to the deaf", settings, 0, true, true},
    {"trap_12 continuations", continuations, 0, false, true},
    {"trap_12 empty data", empty_data, 0, false, true},
    {"empty calls, answers read", empty_calls, 0, false, false},
    {"trap_12 empty calls to the deaf", empty_calls, 0, true, true},
    {"priorities", priorities, 0, false, false},
    {"window updates", windows, 0, false, false},
    {"unknown frames", unknown, 0, false, false},
};

enum { FLOODS = sizeof floods / sizeof floods[0], BATCH = 500, BATCHES = 400 };

/* Returns how many frames went out before the server hung up. */
static uint32_t flood(int which) {
    struct buf b = {0};
    int fd = raw_connect(h.path);
    bool up = true;
    uint32_t sent = 0;
    raw_preface(&b);
    for (int batch = 0; batch < BATCHES && up; batch++) {
        for (int i = 0; i < BATCH; i++) {
            floods[which].one(&b, sent++);
        }
        up = raw_flush(fd, &b) && raw_await(fd, BATCH * floods[which].answer) &&
             (floods[which].deaf || raw_read(fd));
    }
    buf_free(&b);
    close(fd);
    return up ? UINT32_MAX : sent;
}

START_TEST(trap_12_floods) {
    const char *name = floods[_i].name;
    (void)flood(_i);
    look_serves(&h);
    look_all_gone(&h);
    long before = look_rss_kib();
    for (int round = 0; round < 3; round++) {
        uint32_t frames = flood(_i);
        if (frames == UINT32_MAX) {
            (void)printf("%s: %d frames were borne\n", name, BATCH * BATCHES);
        } else {
            (void)printf("%s: hung up on within %u frames\n", name, frames);
        }
        ck_assert_int_eq(frames != UINT32_MAX, floods[_i].given_up);
        look_serves(&h);
    }
    look_all_gone(&h);
    look_limited(name, before, GROWTH_KIB);
}
END_TEST

/* 9 KiB of headers, then a message that says it is 4 GiB, many times on one connection. */
static void oversize(uint32_t calls) {
    struct buf b = {0}, fields = {0};
    char value[121];
    const uint8_t large[] = {0, 0xff, 0xff, 0xff, 0xff, 'x'};
    int fd = raw_connect(h.path);
    unsigned before = look_at(&h).echo.done;
    memset(value, 'v', sizeof value - 1);
    value[120] = 0;
    raw_request(&fields, ECHO_UNARY, "localhost");
    for (int i = 0; i < 66; i++) {
        raw_field(&fields, "x", value);
    }
    raw_preface(&b);
    for (uint32_t i = 0; i < calls; i++) {
        raw_frame(&b, RAW_HEADERS, RAW_END_HEADERS | RAW_END_STREAM, 4 * i + 1, buf_bytes(&fields),
                  buf_unread(&fields));
        raw_put_request(&b, 4 * i + 3, ECHO_UNARY, RAW_END_HEADERS);
        raw_frame(&b, RAW_DATA, RAW_END_STREAM, 4 * i + 3, large, sizeof large);
        ck_assert(raw_flush(fd, &b) && raw_read(fd));
    }
    int64_t until = clock_ns() + 10 * SECOND;
    while (look_at(&h).echo.done < before + calls && clock_ns() < until) {
        ck_assert(raw_read(fd));
    }
    buf_free(&fields);
    buf_free(&b);
    close(fd);
}

START_TEST(trap_06_oversized) {
    oversize(200);
    look_all_gone(&h);
    long before = look_rss_kib();
    oversize(2000);
    look_serves(&h);
    look_all_gone(&h);
    look_limited("oversized headers and messages", before, GROWTH_KIB);
    struct echo e = look_at(&h).echo;
    ck_assert_uint_eq(e.opened, 2200 + 1); /* never one with too long headers */
    ck_assert_uint_eq(e.done, e.opened);
}
END_TEST

START_TEST(connections_10000_in_a_row) {
    enum { CONNECTIONS = 10000 };
    for (int i = 0; i < CONNECTIONS / 10; i++) {
        look_serves(&h);
    }
    look_all_gone(&h);
    long before = look_rss_kib();
    for (int i = 0; i < CONNECTIONS; i++) {
        look_serves(&h);
    }
    look_all_gone(&h);
    look_limited("10000 connections in a row", before, GROWTH_KIB / 4);
    ck_assert_uint_eq(look_at(&h).echo.done, CONNECTIONS + CONNECTIONS / 10);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("floods");
    TCase *t = tcase_create("floods");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, trap_12_floods, 0, FLOODS);
    tcase_add_test(t, trap_06_oversized);
    tcase_add_test(t, connections_10000_in_a_row);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
