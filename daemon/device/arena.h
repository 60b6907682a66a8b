/* An arena: one memfd, carved into ranges once, then allocated, touched and sealed.
 *
 * First every range is carved (arithmetic only), so that the caller knows all sizes, and may
 * refuse, before anything is allocated; then arena_alloc makes the memory. Every byte is accounted
 * for: the lines' sum is the size that fstat reports. Ranges start at multiples of ARENA_ALIGN at
 * least.
 *
 * Memory is touched at allocation, in huge pages where the kernel gives them: later faults are
 * none, and a machine that is out of memory says so here.
 */
#ifndef ZD_DEVICE_ARENA_H
#define ZD_DEVICE_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "layout/layout.h"

enum {
    ARENA_ALIGN = 64,             /* bytes: a cache line */
    ARENA_PAGE = 4096,            /* arenas below ARENA_HUGE are whole pages ... */
    ARENA_HUGE = 2 * 1024 * 1024, /* ... from it on, whole huge pages */
};

struct arena {
    int fd;              /* the memfd; -1: not allocated */
    uint8_t *base;       /* mapped read-write; NULL: not allocated */
    uint64_t used;       /* carved; UINT64_MAX: more than 64 bits can say */
    uint64_t bytes;      /* of the memfd; 0: not allocated */
    uint64_t huge;       /* of them in huge pages, as seen at allocation */
    struct memory lines; /* of the carved ranges, and once allocated of all: sums to bytes */
};

/* How much others may do with the memory, beyond that nobody may resize it. */
enum arena_use {
    ARENA_SHARED,   /* who gets the descriptor may map it writable */
    ARENA_PUBLISHED /* sealed against new writable mappings: only this process writes */
};

void arena_init(struct arena *a);

/* Adds |real| + |padding| bytes at a multiple of ARENA_ALIGN and returns their offset. |line|, one
 * of a->lines, grows by |real|, a->lines.padding by |padding|; what alignment costs is rounding. */
uint64_t arena_carve(struct arena *a, uint64_t real, uint64_t padding, uint64_t *line);

/* The size that arena_alloc will give it; UINT64_MAX: none. */
uint64_t arena_size(const struct arena *a);

/* |name| shows in /proc. RESOURCE_EXHAUSTED with size and reason. */
int arena_alloc(struct arena *a, const char *name, enum arena_use use, struct err *e);

/* Unmaps and closes; carved ranges stay, so that it can be allocated again. */
void arena_free(struct arena *a);

/* A new descriptor of the memory that cannot be written through; the caller closes it. */
int arena_readonly(const struct arena *a, int *fd, struct err *e);

/* ---- other processes' arenas ---- */

struct mapping {
    const uint8_t *base; /* read-only; NULL: none */
    uint64_t bytes;
};

/* Maps what another process handed over; takes |fd| (closes it, also on failure). INVALID_ARGUMENT:
 * no memfd, not sealed against shrinking, fewer than |least| bytes. |what| names it in the text. */
int mapping_import(int fd, uint64_t least, const char *what, struct mapping *m, struct err *e);
void mapping_drop(struct mapping *m);

#endif
