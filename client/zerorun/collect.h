/* Asks the coordinator and every daemon for their numbers at a job's end. */
#ifndef ZD_ZERORUN_COLLECT_H
#define ZD_ZERORUN_COLLECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "zerod.pb-c.h"

struct job;
struct collect;

struct results {
    Zerod__V1__StatusReply **ranks; /* owned, one a rank */
    Zerod__V1__StatusReply *job;    /* owned */
    uint64_t *versions;             /* owned, one a rank */
    uint64_t param_hash;            /* sum of the ranks' parts */
};

/* Starts asking, as j->collect; the end is told by job_collected, from the loop. */
void collect_begin(struct job *j);
void collect_cancel(struct collect *c); /* job_collected is not called; frees later. NULL is fine */

void results_free(struct results *r, unsigned ranks);

#endif
