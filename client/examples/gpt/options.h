/* gpt's command line: one table with every flag's limits (options.c), parsed into this. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "layout/model.h"
#include "spec.h"

struct options {
    uint64_t layers, heads, channels, seq, batch, micro_batches;
    uint64_t steps, warmup, seed, sample, sleep_ms;
    double lr, clip, weight_decay, beta1, beta2, momentum, clip_value, loss_scale;
    uint64_t scale_window, scale_hysteresis;
    const char *dtype_text, *optimizer_text, *data, *json, *init, *dump, *prompt;
    bool nesterov, tied, checkpoint, init_by_daemon, standalone, quiet, verbose, help;

    enum dtype dtype;       /* of gathered parameters; NONE: the store's choice */
    struct gpt_shape shape; /* from the numbers above, like the next two */
    struct optimizer_options optimizer;
    struct loss_scaling scaling;
};

/* Texts point into argv. INVALID_ARGUMENT, OUT_OF_RANGE: what is wrong, in words; with |help| set
 * nothing is checked. */
int options_parse(struct options *o, int argc, char *const *argv, struct err *e);

/* |shared|: the program can also use zerod. */
void options_help(FILE *to, const char *program, bool shared);

#endif
