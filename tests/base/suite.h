/* main() of a unit test: runs one suite, prints failures, 0 when all passed. */
#ifndef ZD_TESTS_SUITE_H
#define ZD_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int run_suite(Suite *s) {
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
