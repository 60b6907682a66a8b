/* A drill: the daemon kills its own trainer with SIGKILL at a given point of a given step, holds
 * there until the trainer's pidfd reports the death, and goes on. Once per job: attempt 1 of the
 * step. In the phase `voted` the other ranks hold their votes meanwhile. */
#ifndef ZD_ZEROD_DRILL_H
#define ZD_ZEROD_DRILL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fence.h"

enum drill_phase {
    DRILL_GATHER = 1, /* a gather in mid-plan was asked for and not looked at */
    DRILL_COMPUTE,    /* a unit was released, the next is computed */
    DRILL_REDUCE,     /* a reduce in mid-plan was asked for and not looked at */
    DRILL_VOTED,      /* this rank's YES is recorded and sent, another has not voted */
    DRILL_APPLY,      /* the decision is recorded, nothing is applied */
};

struct drill {
    bool set, done;
    unsigned rank; /* whose trainer dies */
    uint64_t step;
    enum drill_phase phase;
};

/* "kill-trainer:rank=R,step=S[,phase=gather|compute|reduce|voted|apply]"; phase defaults to
 * compute. INVALID_ARGUMENT naming what is wrong. |text| "" or NULL: none. */
int drill_parse(const char *text, unsigned world, struct drill *d, struct err *e);

/* Is this the point? */
bool drill_due(const struct drill *d, unsigned rank, enum drill_phase phase,
               const struct fence *fence);

/* Kills and waits (at most 5 s), then |done|. */
void drill_kill(struct drill *d, int pidfd);

/* Must rank |rank| hold its vote of this try back until drill_release? */
bool drill_holds_vote(const struct drill *d, unsigned rank, const struct fence *fence);

#endif
