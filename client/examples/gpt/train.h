/* The training loop over a store: begin, load or compute a step, vote, again; a void step is redone
 * from its cursor. Knows nothing of where the state lives. */
#ifndef GPT_TRAIN_H
#define GPT_TRAIN_H

#include "cursor.h"
#include "model.h"
#include "options.h"
#include "report.h"
#include "safetensors.h"
#include "text.h"
#include "units.h"

struct train {
    const struct options *o;
    const struct rows *rows;
    struct store *store; /* borrowed */
    struct units units;
    struct gpt gpt;
    struct text text;
    struct safetensors init; /* path NULL: initial values come from the seed */
    struct cursor cursor;    /* as of the last step that counted */
    struct report report;
};

/* Trains until o->steps steps are done, then makes the dump, the sample and the JSON file. Errors:
 * what the store says, never ABORTED. */
int train_run(struct train *t, struct err *e);

#endif
