/* One rank's daemon without its sockets: session, calls, job and a real engine with its worker, on
 * wire.h's calls. The worker runs while rank_host_settle waits for it and only then, so the same
 * input does the same things every time. One at a time; one thread of the engine. Sources are
 * compiled with syscall and pthread_create renamed to what stands here, and clock_gettime to
 * wire.c's (CMakeLists.txt). */
#ifndef ZD_FUZZ_RANK_HOST_H
#define ZD_FUZZ_RANK_HOST_H

#include "wire.h"
#include "zerod/session.h"

/* Bits of |shape| choose the strategy (0, 1), gather slots (2), gathering on demand (4). */
struct rank *rank_host_up(unsigned rank, unsigned world, unsigned shape);
/* Everything that follows from what was said so far has happened: the worker sleeps, the loop has
 * nothing to do. |pass| carries messages between parties; true: it did. May be NULL. */
void rank_host_settle(struct rank *r, bool (*pass)(void *user), void *user);
void rank_host_die(struct rank *r); /* the attached trainer's process dies, if there is one */
bool rank_host_was_killed(void);    /* the daemon has killed a trainer since the last look */
/* Ends as main.c does and frees all; nothing may be left. */
void rank_host_down(struct rank *r);

#endif
