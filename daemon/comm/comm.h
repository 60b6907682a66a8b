/* Collectives between ranks: what the engine calls, whoever moves the bytes (shm.h so far; NCCL's
 * stands beside it).
 *
 * Whether something *can* run is asked apart from running it: running never waits for a peer, so
 * one worker can serve everything without deadlock. Ranks agree by publishing what they have
 * (versions, tags, fences); a reader takes exactly what it was told to take and never something
 * newer or older.
 *
 * Threads: put_tag is the owner's; look, wait and everything that runs is one worker's. All but
 * those that run are called under the engine's lock.
 */
#ifndef ZD_COMM_COMM_H
#define ZD_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fence.h"
#include "layout/layout.h"

#define COMM_NO_VERSION UINT64_MAX /* nothing was loaded yet */

/* What a gradient slot holds. */
struct comm_tag {
    struct fence fence;
    uint64_t attachment;     /* whose memory: a trainer's stay */
    uint32_t sequence, unit; /* the reduce's number in the try, and of which unit */
    uint64_t elements;       /* the unit's padded length */
};

struct comm {
    const struct comm_ops *ops;
};

struct comm_ops {
    /* ---- what this rank has ---- */
    void (*put_version)(struct comm *c, size_t unit, uint64_t version);
    void (*put_tag)(struct comm *c, uint32_t slot, const struct comm_tag *tag);
    /* This rank's kept gradients of the unit are complete, for an all-reduce. */
    void (*put_kept)(struct comm *c, size_t unit, const struct fence *f);

    /* ---- what all the others have ---- */
    bool (*can_gather)(struct comm *c, size_t unit, uint64_t version);
    /* Their slots hold |tag| but for the attachment, which is that of the mapped memory. */
    bool (*can_reduce)(struct comm *c, uint32_t slot, const struct comm_tag *tag);
    bool (*can_sum)(struct comm *c, size_t unit, const struct fence *f);
    bool (*can_share)(struct comm *c, size_t unit, const struct fence *f);
    /* They have finished reading this rank's slot as it was tagged. */
    bool (*slot_is_read)(struct comm *c, uint32_t slot, const struct fence *f, uint32_t sequence);

    /* ---- running; false: aborted on the way, the result is nothing ---- */
    /* All parts of the unit into |to| (its flat range, param dtype). This rank's own part is copied
     * too, unless it lies there already. */
    bool (*all_gather)(struct comm *c, size_t unit, void *to);
    /* This rank's part of the slots' sum in rank order; with |add| to + sum. Then tells the owners
     * that their slots are read. */
    bool (*reduce_scatter)(struct comm *c, uint32_t slot, const struct comm_tag *tag, bool add,
                           float *to);
    /* An all-reduce of kept gradients in place, in two halves: this rank's part is summed and
     * published; the others' parts are fetched. */
    bool (*sum_part)(struct comm *c, size_t unit, const struct fence *f);
    bool (*share_parts)(struct comm *c, size_t unit);

    /* Makes what is running return soon (any thread). resume: it did; run again. */
    void (*abort)(struct comm *c);
    void (*resume)(struct comm *c);

    /* look, then ask can_...; wait returns when something was published since look, or *word
     * differs from |value|; it may return for no reason. */
    void (*look)(struct comm *c);
    void (*wait)(struct comm *c, _Atomic uint32_t *word, uint32_t value);

    /* What the others have read of this rank's memory, counted by them where they read. */
    void (*sent)(struct comm *c, struct traffic *t);
    void (*del)(struct comm *c);
};

#endif
