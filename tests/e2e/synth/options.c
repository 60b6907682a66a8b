/* The command line of synth. */
#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "synth.h"

static struct options o;
static struct opt table[] = {
    OPT_UNSIGNED(0, "layers", "L", "2", NULL, 1, MAX_LAYERS, &o.layers, "Units that are trained."),
    OPT_TEXT(0, "sizes", "N,N,...", "64,5,0,1", &o.sizes_text,
             "Elements of each layer's tensors, at most 12 numbers."),
    OPT_UNSIGNED(0, "steps", "N", "3", NULL, 0, 100000, &o.steps, "Steps."),
    OPT_UNSIGNED(0, "micro-batches", "K", "1", NULL, 1, 4096, &o.micro_batches, "Of a step."),
    OPT_UNSIGNED(0, "seed", "N", "1", NULL, 0, UINT64_MAX, &o.seed, "Of values and gradients."),
    OPT_UNSIGNED(0, "overflow", "STEP", "0", NULL, 0, 100000, &o.overflow,
                 "The last rank's gradient is infinite in this step; 0: in none."),
    OPT_CHOICE(0, "dtype", "T", NULL, "fp32|bf16|fp16", &o.dtype_text, "Of gathered parameters."),
    OPT_CHOICE(0, "optimizer", "NAME", "adamw", "adamw|adam|sgd|lion", &o.optimizer_text,
               "What the update does."),
    OPT_REAL(0, "momentum", "X", "0", NULL, 0, 0.999, &o.momentum, "Of sgd."),
    OPT_FLAG(0, "nesterov", &o.nesterov, "Of sgd."),
    OPT_REAL(0, "lr", "X", "0.01", NULL, 0, 10, &o.lr, "Learning rate of step 1; it falls."),
    OPT_REAL(0, "clip", "X", "0", NULL, 0, 1e9, &o.clip, "Largest norm; 0: no clipping."),
    OPT_REAL(0, "clip-value", "X", "0", NULL, 0, 1e9, &o.clip_value, "Largest element; 0: none."),
    OPT_REAL(0, "divisor", "X", "0", NULL, 0, 1e9, &o.divisor,
             "What the sum over ranks is divided by; 0: the weights."),
    OPT_REAL(0, "weight-decay", "X", "0.1", NULL, 0, 10, &o.weight_decay, "Weight decay."),
    OPT_FLAG(0, "frozen", &o.frozen, "Every third tensor is frozen, and a whole unit more."),
    OPT_FLAG(0, "mixed", &o.mixed, "Every fourth tensor is gathered in fp32."),
    OPT_FLAG(0, "ignored", &o.ignored, "Each layer has a tensor that is the trainer's own."),
    OPT_FLAG(0, "tied", &o.tied, "The last layer uses a tensor of the first."),
    OPT_FLAG(0, "absent", &o.absent, "A unit that ranks leave out now and then."),
    OPT_FLAG(0, "multipliers", &o.multipliers,
             "Tensors have learning rates and decays of their own."),
    OPT_FLAG(0, "init", &o.init, "The daemons make the initial values of some tensors."),
    OPT_FLAG(0, "weights", &o.weights, "Ranks weigh differently in the mean."),
    OPT_FLAG('h', "help", &o.help, "Print this help."),
    OPT_END,
};

static int parse_sizes(struct err *e) {
    const char *at = o.sizes_text;
    o.size_count = 0;
    do {
        char *end;
        if (o.size_count == MAX_SIZES) {
            return err_set(e, ST_INVALID_ARGUMENT, "--sizes: more than %d numbers", MAX_SIZES);
        }
        o.sizes[o.size_count++] = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || (*end && *end != ',')) {
            return err_set(e, ST_INVALID_ARGUMENT, "--sizes: '%s' does not begin with a number",
                           at);
        }
        at = *end ? end + 1 : NULL;
    } while (at);
    return 0;
}

int options_parse(struct options *to, int argc, char *const *argv, struct err *e) {
    int rest = argc;
    int rc = opt_parse(table, argc, argv, &rest, e);
    if (!rc && rest < argc) {
        rc = err_set(e, ST_INVALID_ARGUMENT, "'%s' belongs to no option", argv[rest]);
    }
    rc = rc ? rc : parse_sizes(e);
    *to = o;
    return rc;
}

void options_help(FILE *to) {
    (void)fputs("Usage: zerorun [OPTIONS] -- synth [OPTIONS]\n\n", to);
    opt_help(table, to);
}
