/* What the job's processes say: cut into lines, given a prefix, and held back for a moment.
 *
 * Held back because of deaths: when a daemon dies, its trainer and its peers complain, often before
 * the death itself is seen. The first cause must stand alone, so what the others said in the last
 * moment is dropped then. Standard output of rank 0's trainer goes through as it comes. */
#ifndef ZD_ZERORUN_TALK_H
#define ZD_ZERORUN_TALK_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/buf.h"

enum { TALK_DELAY_MS = 100, TALK_LINE_MAX = 16384 /* bytes; longer lines are cut into such */ };

struct talk;

/* One stream of one process. Zeroed storage with the first members set. */
struct speaker {
    const void *owner; /* whose lines they are, for talk_first_cause */
    int fd;            /* where they go: 1 or 2 */
    bool as_it_comes;  /* no lines, no delay */
    char prefix[32];   /* "[rank 3] " or "" */
    struct buf unfinished;
};

struct talk *talk_new(uv_loop_t *loop);
/* Prints what is held, but for a quarantine; frees when the loop has closed its timer. */
void talk_close(struct talk *t);

void talk_hear(struct talk *t, struct speaker *s, const char *bytes, size_t n);
void talk_end(struct talk *t, struct speaker *s); /* an unfinished last line gets its end */
/* A line of zerorun's own that takes its place among the held ones. */
void talk_say(struct talk *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void talk_flush(struct talk *t); /* prints everything now */
void talk_pause(struct talk *t); /* prints nothing more by itself, until one of these is called */
/* How many lines are held before |owner|'s first; SIZE_MAX: it has none. */
size_t talk_place(const struct talk *t, const void *owner);
/* Prints |owner|'s held lines, drops all others, and all that comes from now on. */
void talk_first_cause(struct talk *t, const void *owner);
void talk_silence(struct talk *t); /* drops what comes from now on */
/* Prints what is held; what comes from now on is only printed by talk_release of its owner. */
void talk_quarantine(struct talk *t);
void talk_release(struct talk *t, const void *owner);

#endif
