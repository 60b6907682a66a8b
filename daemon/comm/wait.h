/* Waiting for several futex words at once, in several processes' memory, without spinning. */
#ifndef ZD_COMM_WAIT_H
#define ZD_COMM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WAIT_MAX = 64 };

struct wait_word {
    _Atomic uint32_t *word;
    uint32_t value;
    bool shared; /* with other processes */
};

/* Returns when a word differs from its value, was woken, or for no reason. 1 to WAIT_MAX words. The
 * first must be this process's own: where the kernel cannot wait for several (before Linux 5.16)
 * the others are looked at every half millisecond. */
void wait_any(const struct wait_word *words, size_t count);

/* After raising the word: wakes all that wait for it. */
void wait_wake(_Atomic uint32_t *word, bool shared);

#endif
