/* What the coordinator tells of each step, kept for the report and shown: one line redrawn on a
 * terminal, plain lines at most once a second elsewhere, later every five. */
#ifndef ZD_ZERORUN_PROGRESS_H
#define ZD_ZERORUN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "talk.h"
#include "zerod.pb-c.h"

struct progress {
    struct talk *talk;
    uint64_t restarts;                  /* shown; the owner counts */
    size_t steps;                       /* training steps determined */
    size_t skipped;                     /* of them */
    double *losses;                     /* one a step: NaN where the trainers gave none; owned */
    double *norms;                      /* owned */
    int64_t first_ns, last_ns, said_ns; /* of the first and last step, of the last line */
    uint64_t last_step, said_step;
    bool loaded; /* the initial values are there: step 0 is determined */
};

/* A step's outcome or a void try. */
void progress_event(struct progress *p, const Zerod__V1__StepEvent *event);
void progress_finish(struct progress *p); /* the last step's line, if it was not said */
void progress_free(struct progress *p);

#endif
