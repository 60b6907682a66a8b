/* A drill: the daemon kills its own trainer with SIGKILL at a given point of a given step, holds
 * there until the trainer's pidfd reports the death, and goes on. Once per job: attempt 1 of the
 * step. In the phase `voted` the other ranks hold their votes meanwhile. */
#ifndef ZD_ZEROD_DRILL_H
#define ZD_ZEROD_DRILL_H

#include "base/fence.h"
#include "process/drill_spec.h"

struct drill {
    struct drill_spec spec;
    bool done;
};

/* Is this the point? */
bool drill_due(const struct drill *d, unsigned rank, enum drill_phase phase,
               const struct fence *fence);

/* Kills and waits (at most 5 s), then |done|. */
void drill_kill(struct drill *d, int pidfd);

/* Must rank |rank| hold its vote of this try back until the drill is done? */
bool drill_holds_vote(const struct drill *d, unsigned rank, const struct fence *fence);

#endif
