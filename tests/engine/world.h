/* N engines in one process, each with a trainer that follows its plan, and a fake of the protocol
 * between them. One thread drives all, in an order drawn from a seed; the engines' workers run
 * freely. What trainers gather, and the parameters in the end, are compared bit for bit with a
 * plain reference (reference.h) that knows no ranks' memory, slots or threads. */
#ifndef TEST_ENGINE_WORLD_H
#define TEST_ENGINE_WORLD_H

#include <pthread.h>

#include "engine/engine.h"
#include "reference.h"

struct config {
    unsigned ranks, threads;
    struct variant model;
    struct slots slots;
    const char *isa;
    uint64_t seed;
    bool on_demand;
    bool absent;         /* units that may be are left out now and then */
    unsigned compute_us; /* a trainer sleeps so long with each unit it has gathered */
};

struct trainer {
    struct world *w;
    unsigned rank;
    struct engine *e;
    uint64_t attachment;
    const uint8_t *params;
    uint8_t *grads;
    uint64_t bytes[2];
    /* of the try */
    struct fence fence;
    bool open, wants_void, cancelled;
    bool wants_grads;              /* has not mapped rank 0's new slots yet */
    uint32_t op, gathers, reduces; /* next of the plan: of all, of either kind */
    uint32_t calls;                /* reduces, loads that were made */
    bool asked;                    /* the gather at |op| was asked for */
    uint32_t gathered, granted;    /* reported: behind the last position; how many */
    uint64_t *gather_offset, *grant_offset;
    bool finished, reduced, non_finite;
    double sum_squares;
    const uint64_t *checksums;
    unsigned moves;
    bool hashed;
    uint64_t hash, hash_version;
    unsigned progressed;
};

struct world {
    struct config c;
    struct model model;
    struct layout layout;
    const struct kernels *kernels;
    struct reference ref;
    struct trainer trainers[LAYOUT_MAX_RANKS];
    uint64_t random, generation, step, attempt;
    bool inf;            /* one gradient of this step is infinite */
    unsigned voids;      /* attempts of this step that are voided; their gradients are garbage */
    unsigned void_after; /* moves until an attempt is voided */
    bool reattach;       /* rank 0's trainer dies with each voided attempt */
    unsigned moves;      /* of this attempt */
    double clip;
    struct traffic missing[LAYOUT_MAX_RANKS]; /* not sent since reduces were left out: elements */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint64_t notified; /* under lock */
};

struct world *world_up(const struct config *c);
void world_down(struct world *w); /* NULL is allowed */

void world_load(struct world *w);              /* step 0 */
void world_steps(struct world *w, unsigned n); /* each committed, unless w->inf */
/* Opens and enters the next step on all ranks, without moving. */
void world_open(struct world *w);
/* Runs the open step to its decision. */
void world_finish_step(struct world *w);
void world_move(struct world *w, unsigned rank); /* one call of this trainer's, or a short wait */
uint64_t world_hash(struct world *w);            /* the ranks' sum; checks the version */
void world_quiet(struct world *w);               /* until every engine is quiet */

void world_attach(struct world *w, unsigned rank); /* a new attachment, told to the peers */
void world_connect(struct world *w, unsigned a, unsigned b); /* a maps b's state and gradients */
void world_maps(struct trainer *t);
void world_wait(struct world *w, uint64_t seen);
uint64_t world_seen(struct world *w);
extern const struct engine_callbacks world_callbacks;

/* trainer.c: one call of the trainer's, if it can make one. */
bool trainer_move(struct trainer *t);

#endif
