/* What tests of an open try share: a fake daemon, a trainer that is attached to it, the try that it
 * has begun. One each: a test runs in a process of its own. */
#ifndef ZD_TESTS_CLIENT_IN_TRY_H
#define ZD_TESTS_CLIENT_IN_TRY_H

#include <string.h>

#include "tests/base/suite.h"
#include "fake.h"

static struct fake *f;
static struct zerod *z;
static struct zerod_try t;
static struct zerod_outcome out; /* of the last step */

static inline void start_with(struct fake_options o) {
    f = fake_start(&o);
    z = trainer_attach(f);
    ck_assert_int_eq(zerod_begin(z, &t), 0);
}

/* At step 1; |hook| sees each request first, NULL: nobody does. */
static inline void start(bool (*hook)(struct fake *f, const Zerod__V1__TrainerRequest *r)) {
    start_with((struct fake_options){.start_step = 1, .hook = hook});
}

static inline void stop(void) {
    zerod_detach(z, true);
    fake_stop(f);
}

static inline void said(const char *part) {
    const char *text = zerod_last_error(z)->text;
    ck_assert_msg(strstr(text, part) != NULL, "'%s' lacks '%s'", text, part);
}

#endif
