/* zerorun's command line. */
#ifndef ZD_ZERORUN_OPTIONS_H
#define ZD_ZERORUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct options {
    uint64_t ranks;
    const char *strategy;
    const char *reshard;                              /* after forward: "true" or "false" */
    const char *param_dtype, *wire_dtype, *kept_grad; /* NULL: the trainer's choice */
    uint64_t shard_size, max_skips;
    uint64_t gather_slots, grad_slots, threads;
    uint64_t device_memory; /* bytes; 0: no limit */
    const char *json;       /* NULL: none */
    uint64_t max_restarts;
    const char *drill; /* NULL: none */
    bool observed;
    uint64_t observers; /* a gid, if |observed| */
    bool no_overlap, dry_run, help, version;
    char *const *trainer; /* its argv, NULL-terminated; points into ours */
};

/* Fills |o| from the command line; texts point into |argv|. INVALID_ARGUMENT or OUT_OF_RANGE naming
 * the option, its value and what it must be. With help or version given nothing else is asked for.
 */
int options_parse(struct options *o, int argc, char *const *argv, struct err *e);

void options_help(FILE *to);

#endif
