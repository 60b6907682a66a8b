/* Where this rank's stretches of each range lie in its buffers, and which tensors' segments are in
 * them. Arithmetic on the layout, done once. */
#ifndef ZD_ENGINE_PLACES_H
#define ZD_ENGINE_PLACES_H

#include "layout/layout.h"

/* The segments of one stretch of each range: of range i, list[first[i]] to list[first[i + 1]). */
struct pieces {
    size_t *first;        /* owned, ranges + 1 */
    struct segment *list; /* owned */
};

/* One range. Stretches are of the range, in elements; frozen ones are neither kept nor updated. */
struct place {
    struct stretch kept, updated, piece;
    struct stretch held;   /* of its parameters, in a replica or in the shard that others gather */
    bool from_master;      /* sharded fp32: others gather the master, nothing is held beside it */
    uint64_t kept_at;      /* elements: where |kept| starts in the kept gradients */
    uint64_t optimizer_at; /* elements: where |updated| starts in master and states */
    uint64_t held_at;      /* bytes: where |held| starts in the replica or shard */
    uint64_t first_tile;   /* tiles are numbered over the whole shard and never cross a range */
};

/* One unit. */
struct unit_at {
    uint64_t replica; /* bytes: where it starts in the replica */
    uint64_t updated; /* elements of its ranges that this rank updates */
};

/* A buffer: elements of tensors and of all, or bytes of them. */
struct extent {
    uint64_t real, padded;
};

struct places {
    const struct layout *layout; /* borrowed */
    unsigned rank;
    struct place *ranges;                     /* owned, one a range */
    struct unit_at *units;                    /* owned, one a unit */
    struct pieces kept, updated, piece, held; /* segments of the stretches of these names */
    struct extent kept_elements, optimizer_elements, held_bytes;
    uint64_t largest_piece; /* of a trainable range */
};

void places_init(struct places *p, const struct layout *l, unsigned rank, uint64_t tile);
void places_free(struct places *p);

/* Zeroes what no segment of the range covers in x[0, n), the stretch that |q| is of, in elements of
 * |element| bytes. */
void pieces_zero_gaps(const struct pieces *q, size_t range, void *x, uint64_t n, size_t element);

#endif
