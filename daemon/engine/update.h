/* The update of a shard, tile by tile, so that it survives the death of whoever does it (design
 * §8).
 *
 * Each thread has a scratch tile and a progress record, both in adopted memory. A tile's new master
 * and optimizer states are computed into the scratch; then |ready| names step and tile; then they
 * are copied into place, with the parameters in the dtype in which they are gathered or lent; then
 * |done| names step and tile. Whoever begins a unit reads the records first: a tile that was ready
 * is copied again, those behind it are computed. So a run that was stopped between any two writes
 * is continued by the same call. Threads share a unit by a fixed rule of its size and their number;
 * a successor with another number continues with the old one.
 */
#ifndef ZD_ENGINE_UPDATE_H
#define ZD_ENGINE_UPDATE_H

#include <stdalign.h>
#include <stdatomic.h>

#include "engine/places.h"
#include "kernels/kernels.h"

enum {
    UPDATE_TILE = 512,   /* elements; tile, scratch and gradient fit in a first-level cache, which
                            made it 1.4 times as fast as tiles of 1024 and more */
    UPDATE_WIDE = 65536, /* elements of a unit from which on all threads share it */
};

/* Of one thread, zeros at first (step 0 has no update). Two words are not written at once: the tile
 * goes first, and one of another step is none. */
struct progress {
    alignas(64) _Atomic uint64_t ready_step;
    _Atomic uint64_t ready_tile, done_step, done_tile;
};

enum { UPDATE_STATES = 2 }; /* at most, beside the master */

/* What an update works on; all borrowed. */
struct update {
    const struct kernels *kernels;
    const struct places *places;
    float *master, *state[UPDATE_STATES]; /* the shard, in place; states it lacks: NULL */
    const void *kept;                     /* summed gradients, of the model's kept dtype */
    uint8_t *held;                        /* where updated parameters go too; NULL: nowhere */
    struct progress *progress;            /* one a thread */
    float *scratch;                       /* update_scratch_bytes(model, 1) a thread */
    void (*hook)(void *ctx);              /* tests: called between any two writes; NULL */
    void *hook_ctx;
};

/* Tiles for the master, each state, and gradients that are kept in bf16. */
uint64_t update_scratch_bytes(const struct model *m, unsigned threads);

/* How many of |threads| share the unit. */
unsigned update_threads(const struct update *u, size_t unit, unsigned threads);

/* Thread |thread|'s share of |threads| (update_threads') of the unit's update. */
void update_share(const struct update *u, size_t unit, uint64_t step, const struct step_scalars *s,
                  unsigned thread, unsigned threads);

/* Finishes, on one thread, a unit's update that |threads| threads had begun. */
void update_resume(const struct update *u, size_t unit, uint64_t step, const struct step_scalars *s,
                   unsigned threads);

#endif
