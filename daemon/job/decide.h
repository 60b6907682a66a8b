/* The decision: a pure function of the votes (design §8), so any coordinator computes the same. */
#ifndef ZD_JOB_DECIDE_H
#define ZD_JOB_DECIDE_H

#include "job/words.h"

struct decide_options {
    struct optimizer_options optimizer;
    struct loss_scaling scaling; /* checked */
    double gradient_divisor;     /* 0: the sum of weights */
    uint64_t max_skips_in_row;   /* default 50; one more is an error with state intact */
};

/* All |ranks| votes are YES and of one fence. |before|: the decision of the step before, NULL at
 * step 0. Sums run in rank order in fp64. COMMIT, or SKIP when any flag is set or the summed norm
 * is not finite (t stays). ABORT, with |e| filled, when scalars differ between ranks
 * (FAILED_PRECONDITION naming the first rank that differs from rank 0, the name and both values),
 * initial values differ (naming unit index and rank), or too many skips follow each other. */
struct decision decide(const struct decide_options *o, const struct vote *votes, size_t ranks,
                       const struct decision *before, struct err *e);

#endif
