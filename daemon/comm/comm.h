/* Collectives between ranks: what the engine calls, whoever moves the bytes (shm.h so far; NCCL's
 * stands beside it).
 *
 * Ranks meet in two groups (layout.h): gradient slots and sharded parameters in the inner one, kept
 * gradients in the outer one. A group of one runs by the same calls; it reads nobody's memory.
 *
 * Whether something *can* run is asked apart from running it: running never waits for a peer, so
 * one worker can serve everything without deadlock. Ranks agree by publishing what they have
 * (versions, tags, fences); a reader takes exactly what it was told to take and never something
 * newer or older.
 *
 * Threads: look, wait, what runs, put_mark and put_reduced are one worker's; all but these are
 * called under the engine's lock.
 */
#ifndef ZD_COMM_COMM_H
#define ZD_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fence.h"
#include "layout/layout.h"

#define COMM_NO_VERSION UINT64_MAX /* nothing was loaded yet */
#define COMM_ABSENT UINT32_MAX     /* a tag's slot: this reduce was left out, it counts as zeros */

enum comm_group { COMM_INNER, COMM_OUTER, COMM_GROUPS };

/* What of a rank's memory others read, beside its gradient slots. */
enum comm_memory {
    COMM_MASTER, /* fp32 masters, gathered as they are */
    COMM_SHARD,  /* other parameters held for gathers */
    COMM_KEPT,   /* kept gradients */
    COMM_REPLICA,
    COMM_MEMORIES
};

enum comm_kind { COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_KINDS };

/* What a reduce of a rank's is. Its record's place is sequence mod gradient slots. */
struct comm_tag {
    struct fence fence;
    uint64_t attachment;     /* whose memory: a trainer's stay */
    uint32_t sequence, unit; /* the reduce's number in the try, and of which unit */
    uint64_t elements;       /* of the unit's slot */
    uint32_t slot;           /* where the gradients are; COMM_ABSENT: nowhere */
};

/* The members' parts of one range, fetched: part i is |count| elements at |at| + i * |step| of
 * member i's memory, and goes to |to| + i * count. */
struct comm_copy {
    enum comm_group group;
    enum comm_memory memory;
    enum comm_kind kind; /* as what it is counted */
    uint64_t at, step;   /* bytes */
    uint64_t count;
    uint64_t element; /* bytes of one */
    void *to;
};

/* One stretch of one range, summed over a group in fp32 in the order of its members; then, with
 * |add|, added to what is in |to|; then rounded, once, to |kept|. */
struct comm_sum {
    uint64_t at; /* elements from the start of the slot, or of kept gradients */
    uint64_t count;
    enum dtype from, kept; /* fp32 or bf16 each */
    bool add;
    void *to;
};

struct comm {
    const struct comm_ops *ops;
};

struct comm_ops {
    /* ---- what this rank has ---- */
    void (*put_version)(struct comm *c, size_t unit, uint64_t version);
    void (*put_tag)(struct comm *c, const struct comm_tag *tag);
    /* This rank has read the inner group's slots of |tag|. */
    void (*put_mark)(struct comm *c, const struct comm_tag *tag);
    /* This rank's kept gradients of the unit are complete; its piece of them is summed. */
    void (*put_kept)(struct comm *c, size_t unit, const struct fence *f);
    void (*put_reduced)(struct comm *c, size_t unit, const struct fence *f);

    /* ---- what all the others of a group have ---- */
    bool (*can_gather)(struct comm *c, enum comm_group group, size_t unit, uint64_t version);
    /* Inner: theirs is |tag| but for the slot, and the attachment is that of the mapped memory. */
    bool (*can_reduce)(struct comm *c, const struct comm_tag *tag);
    /* Outer: put_kept, put_reduced were said. */
    bool (*can_sum)(struct comm *c, size_t unit, const struct fence *f);
    bool (*can_share)(struct comm *c, size_t unit, const struct fence *f);
    /* Inner: they have read this rank's reduce number |sequence|. */
    bool (*is_read)(struct comm *c, const struct fence *f, uint32_t sequence);

    /* ---- running; false: aborted on the way, the result is nothing ---- */
    /* This rank's own part is copied too, unless it lies there already. */
    bool (*all_gather)(struct comm *c, const struct comm_copy *w);
    /* Over the inner group's slots of |tag|, as can_reduce has just found them. */
    bool (*reduce_scatter)(struct comm *c, const struct comm_tag *tag, const struct comm_sum *w);
    /* Over the outer group's kept gradients; |to| may be this rank's own. Counted as |kind|. */
    bool (*sum)(struct comm *c, enum comm_kind kind, const struct comm_sum *w);

    /* Makes what is running return soon (any thread). resume: it did; run again. */
    void (*abort)(struct comm *c);
    void (*resume)(struct comm *c);

    /* look, then ask can_...; wait returns when something was published since look, or *word
     * differs from |value|; it may return for no reason. */
    void (*look)(struct comm *c);
    void (*wait)(struct comm *c, _Atomic uint32_t *word, uint32_t value);

    /* What the others have read of this rank's memory, counted by them where they read. */
    void (*sent)(struct comm *c, struct traffic by[COMM_GROUPS]);
    void (*del)(struct comm *c);
};

#endif
