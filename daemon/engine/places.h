/* Where this rank's ranges of each unit lie in its buffers, and which tensors' segments are in
 * them. Arithmetic on the layout, done once. */
#ifndef ZD_ENGINE_PLACES_H
#define ZD_ENGINE_PLACES_H

#include "layout/layout.h"

/* The segments of one range of each unit: of unit u, list[first[u]] to list[first[u + 1]). */
struct pieces {
    size_t *first;        /* owned, units + 1 */
    struct segment *list; /* owned */
    uint64_t elements;    /* of all: without padding */
};

/* One unit; elements. */
struct place {
    uint64_t updated;       /* length of the range that this rank updates */
    uint64_t optimizer_at;  /* where it starts in master, m and v ... */
    uint64_t copy_at;       /* ... and in the parameters that are gathered or lent */
    uint64_t summed_at;     /* where it starts in the kept gradients */
    uint64_t kept, kept_at; /* the range of gradients that is kept: length, start */
    uint64_t part_at;       /* where this rank's part starts in the kept gradients */
    uint64_t own_at;        /* where this rank's part starts in master */
    uint64_t first_tile;    /* tiles are numbered over the whole shard and never cross a unit */
};

struct places {
    const struct layout *layout; /* borrowed */
    unsigned rank;
    struct place *units;       /* owned */
    struct pieces part, whole; /* of this rank's part; of the whole unit */
    uint64_t optimizer, kept;  /* elements of the buffers, padding included */
    uint64_t largest_part;
};

void places_init(struct places *p, const struct layout *l, unsigned rank, uint64_t tile);
void places_free(struct places *p);

/* Those of the range that is updated, and of that which is kept. */
const struct pieces *places_updated(const struct places *p);
const struct pieces *places_kept(const struct places *p);

/* Zeroes what no segment of the unit covers in x[0, n), the range that |q| is of. */
void pieces_zero_gaps(const struct pieces *q, size_t unit, float *x, uint64_t n);

#endif
