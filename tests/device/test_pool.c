#include <stdlib.h>

#include "device/device.h"
#include "tests/base/suite.h"

enum { MANY = 200000 };

static void raise_share(void *ctx, unsigned thread, unsigned threads) {
    unsigned *hits = ctx;
    uint64_t from, to;
    pool_share(MANY, 64, thread, threads, &from, &to);
    for (uint64_t i = from; i < to; i++) {
        hits[i]++;
    }
}

START_TEST(every_element_once) {
    unsigned *hits = calloc(MANY, sizeof *hits), rounds = 0;
    for (unsigned threads = 1; threads <= 5; threads++) {
        struct device *d;
        ck_assert_int_eq(device_cpu(threads, &d, NULL), 0);
        for (unsigned used = 1; used <= threads; used++, rounds++) {
            d->ops->launch(d, used, raise_share, hits);
        }
        for (int i = 0; i < 200; i++, rounds++) { /* rounds follow each other closely */
            d->ops->launch(d, 1 + (unsigned)i % threads, raise_share, hits);
        }
        d->ops->del(d);
    }
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert_uint_eq(hits[i], rounds);
    }
    free(hits);
}
END_TEST

START_TEST(shares_cover_and_start_on_grains) {
    for (uint64_t n = 0; n < 1000; n += 37) {
        for (unsigned threads = 1; threads < 9; threads++) {
            uint64_t at = 0;
            for (unsigned t = 0; t < threads; t++) {
                uint64_t from, to;
                pool_share(n, 64, t, threads, &from, &to);
                ck_assert_uint_eq(from, at);
                ck_assert(from == n || from % 64 == 0);
                at = to;
            }
            ck_assert_uint_eq(at, n);
        }
    }
}
END_TEST

START_TEST(refuses_silly_numbers) {
    struct device *d;
    struct err e;
    ck_assert_int_eq(device_cpu(0, &d, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "0 threads: must be 1 to 256");
    ck_assert_int_eq(device_cpu(257, &d, &e), -ST_INVALID_ARGUMENT);
}
END_TEST

int main(void) {
    Suite *s = suite_create("pool");
    TCase *c = tcase_create("pool");
    tcase_add_test(c, every_element_once);
    tcase_add_test(c, shares_cover_and_start_on_grains);
    tcase_add_test(c, refuses_silly_numbers);
    suite_add_tcase(s, c);
    return run_suite(s);
}
