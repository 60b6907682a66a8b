/* The decision: a pure function of the votes (design §8), so any coordinator computes the same. */
#ifndef ZD_JOB_DECIDE_H
#define ZD_JOB_DECIDE_H

#include "job/words.h"
#include "layout/model.h"

struct decide_options {
    struct optimizer_options optimizer;
    struct loss_scaling scaling; /* checked */
    double gradient_divisor;     /* 0: the sum of weights */
    uint64_t max_skips_in_row;   /* default 50; one more is an error with state intact */
    const struct unit *units;    /* borrowed; only their names, for texts. NULL: numbers serve */
    size_t unit_count;
};

/* All |ranks| votes are YES and of one fence. |before|: the decision of the step before, NULL at
 * step 0. Sums run in rank order in fp64; the gradient is the ranks' sum divided by (the sum of
 * weights or gradient_divisor) times the scale in |before|, with which the losses were multiplied.
 * COMMIT, or SKIP when any flag is set or the summed norm is not finite (t stays); both carry the
 * scale of the step after. ABORT, with |e| filled, when scalars differ between ranks
 * (FAILED_PRECONDITION naming the first rank that differs from rank 0, the name and both values),
 * initial values differ (naming the unit and the first rank that differs from rank 0), too many
 * skips follow each other, or a skip finds the scale at its floor (both named); nothing of it is
 * carried on then. */
struct decision decide(const struct decide_options *o, const struct vote *votes, size_t ranks,
                       const struct decision *before, struct err *e);

#endif
