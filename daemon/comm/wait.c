#include "comm/wait.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

enum { SHORT_NS = 500000 };

static void wait_briefly(const struct wait_word *w) {
    const struct timespec limit = {.tv_nsec = SHORT_NS};
    int op = w->shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
    (void)syscall(SYS_futex, w->word, op, w->value, &limit, NULL, 0);
}

void wait_any(const struct wait_word *words, size_t count) {
    struct futex_waitv w[WAIT_MAX];
    assert(count >= 1 && count <= WAIT_MAX);
    for (size_t i = 0; i < count; i++) {
        w[i] = (struct futex_waitv){
            .val = words[i].value,
            .uaddr = (uintptr_t)words[i].word,
            .flags = FUTEX_32 | (words[i].shared ? 0u : FUTEX_PRIVATE_FLAG),
        };
    }
    if (syscall(SYS_futex_waitv, w, (unsigned)count, 0u, NULL, 0) < 0 && errno == ENOSYS) {
        wait_briefly(&words[0]);
    }
}

void wait_wake(_Atomic uint32_t *word, bool shared) {
    (void)syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL,
                  0);
}
