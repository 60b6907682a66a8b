/* What a run has to tell: one line a step for people, and the JSON file. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct report {
    bool quiet;
    uint64_t first_step; /* this process's first committed or skipped step; 0: none yet */
    uint64_t count, cap; /* steps that are recorded, from first_step on */
    double *losses;      /* owned; mean over ranks */
    double *grad_norms;  /* owned */
    uint64_t skipped;
    uint64_t parameters;
    double loss_scale;         /* of the last step that was tried */
    uint64_t activation_bytes; /* and other buffers of the computation */
    double tokens_per_step;    /* of all ranks */
    double start, end;         /* seconds of the monotonic clock: first try's begin, last outcome */
    bool hash_known;
    uint64_t hash;
};

/* Room for |steps| steps, taken now. RESOURCE_EXHAUSTED. */
int report_init(struct report *r, uint64_t steps, bool quiet, struct err *e);
void report_free(struct report *r);

/* The first call starts the clock. */
void report_begin(struct report *r);
/* A step's outcome. Steps that this process has already recorded are not recorded twice. */
void report_step(struct report *r, uint64_t step, double loss, double grad_norm, bool skipped);

/* Keys: steps, first_step, losses, grad_norms, skipped, parameters, activation_bytes, loss_scale,
 * param_hash (hex; null: not known here), tokens_per_second, seconds. Numbers that are not finite
 * are null. losses[i] is of step first_step + i; a trainer that replaced another one has only its
 * own steps. UNAVAILABLE. */
int report_write(const struct report *r, const char *path, uint64_t steps, struct err *e);

#endif
