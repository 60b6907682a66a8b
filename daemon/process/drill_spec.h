/* What a drill is to do, as zerorun and zerod take it on their command lines:
 * kill-trainer:rank=R,step=S[,phase=P], with R below the job's ranks, S from 1 on, and P one of
 * gather, compute (when none is given), reduce, voted, apply. */
#ifndef ZD_PROCESS_DRILL_SPEC_H
#define ZD_PROCESS_DRILL_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum drill_phase {
    DRILL_GATHER = 1, /* a gather in mid-plan was asked for and not looked at */
    DRILL_COMPUTE,    /* a unit was released, the next is computed */
    DRILL_REDUCE,     /* a reduce in mid-plan was asked for and not looked at */
    DRILL_VOTED,      /* this rank's YES is recorded and sent, another has not voted */
    DRILL_APPLY,      /* the decision is recorded, nothing is applied */
};

struct drill_spec {
    bool set;
    unsigned rank; /* whose trainer dies */
    uint64_t step;
    enum drill_phase phase;
};

/* Fills |d|; |text| "" or NULL: not set. INVALID_ARGUMENT naming what is wrong, |d| not set then.
 */
int drill_spec_parse(const char *text, uint64_t ranks, struct drill_spec *d, struct err *e);

const char *drill_phase_name(enum drill_phase phase);

#endif
