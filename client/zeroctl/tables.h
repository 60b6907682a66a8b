/* Status of a job as tables for people. */
#ifndef ZD_ZEROCTL_TABLES_H
#define ZD_ZEROCTL_TABLES_H

#include <stddef.h>
#include <stdio.h>

#include "zerod.pb-c.h"

/* One rank as `zeroctl status` got it. */
struct rank_answer {
    uint32_t rank;
    const Zerod__V1__RankStatus *status; /* NULL: it did not answer */
    const char *error;                   /* why not */
};

void tables_job(const Zerod__V1__JobStatus *job, FILE *to);
void tables_ranks(const struct rank_answer *ranks, size_t count, FILE *to);
/* Memory and traffic; ranks with equal numbers share a table. */
void tables_numbers(const struct rank_answer *ranks, size_t count, FILE *to);

#endif
