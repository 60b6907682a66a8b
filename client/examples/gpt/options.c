/* See options.h. */
#include "options.h"

#include <string.h>

#include "base/opt.h"

enum { MAX_SIZE = 1 << 16, MAX_SAMPLE = 1 << 20, MAX_SLEEP = 60000 };
#define MAX_STEPS UINT64_C(10000000) /* a report keeps two numbers a step */

static const double optimizer_epsilon = 1e-8;

static struct options o;
static struct opt table[] = {
    OPT_UNSIGNED(0, "layers", "L", "4", NULL, 1, GPT_MAX_LAYERS, &o.layers, "Transformer blocks."),
    OPT_UNSIGNED(0, "heads", "H", "4", NULL, 1, 1024, &o.heads, "Attention heads of a block."),
    OPT_UNSIGNED(0, "channels", "C", "128", NULL, 1, MAX_SIZE, &o.channels,
                 "Width of the model, a multiple of the heads."),
    OPT_UNSIGNED(0, "seq", "T", "64", NULL, 1, MAX_SIZE, &o.seq, "Bytes of a sequence."),
    OPT_UNSIGNED(0, "batch", "B", "4", NULL, 1, MAX_SIZE, &o.batch,
                 "Sequences of one rank and micro-batch."),
    OPT_UNSIGNED(0, "micro-batches", "K", "1", NULL, 1, MODEL_MAX_MICRO_BATCHES, &o.micro_batches,
                 "Micro-batches whose gradients make one step."),
    OPT_UNSIGNED(0, "steps", "N", "100", NULL, 0, MAX_STEPS, &o.steps,
                 "Train until this step is done."),
    OPT_REAL(0, "lr", "X", "0.001", NULL, 0, 10, &o.lr, "Learning rate."),
    OPT_UNSIGNED(0, "warmup", "N", "0", NULL, 0, MAX_STEPS, &o.warmup,
                 "Steps in which the learning rate rises to its value in equal parts."),
    OPT_REAL(0, "clip", "X", "1", NULL, 0, 1e9, &o.clip,
             "Largest norm of the gradient; 0: no clipping."),
    OPT_REAL(0, "weight-decay", "X", "0.1", NULL, 0, 10, &o.weight_decay,
             "Of matrices and embeddings; biases and layer norms do not decay."),
    OPT_CHOICE(0, "optimizer", "NAME", "adamw", "adamw|adam|sgd|lion", &o.optimizer_text,
               "What the update does; adam and sgd add the weight decay to the gradient."),
    OPT_REAL(0, "beta1", "X", "0.9", NULL, 0, 0.999999, &o.beta1, "Decay of the mean (not sgd)."),
    OPT_REAL(0, "beta2", "X", "0.999", NULL, 0, 0.999999, &o.beta2,
             "Decay of the mean square (lion: of the mean)."),
    OPT_REAL(0, "momentum", "X", "0", NULL, 0, 0.999999, &o.momentum, "Of sgd; 0: none."),
    OPT_FLAG(0, "nesterov", &o.nesterov, "Momentum looks one step ahead (sgd)."),
    OPT_REAL(0, "clip-value", "X", "0", NULL, 0, 1e9, &o.clip_value,
             "Largest size of one element of the gradient; 0: no such clipping."),
    OPT_UNSIGNED(0, "seed", "N", "1", NULL, 0, UINT64_MAX, &o.seed,
                 "Of initial values, batches and the sample."),
    OPT_CHOICE(0, "dtype", "T", NULL, "fp32|bf16|fp16", &o.dtype_text,
               "Of the parameters that a unit is computed with, masters are fp32; default: what "
               "the daemon was started with, alone fp32. fp16 scales the loss."),
    OPT_REAL(0, "loss-scale", "X", "65536", NULL, 1, 3e38, &o.loss_scale,
             "What the loss is multiplied with at first (fp16)."),
    OPT_UNSIGNED(0, "scale-window", "N", "1000", NULL, 1, 1000000, &o.scale_window,
                 "Good steps in a row after which the loss scale doubles (fp16)."),
    OPT_UNSIGNED(0, "scale-hysteresis", "N", "2", NULL, 1, 1000, &o.scale_hysteresis,
                 "Steps that are not finite before the loss scale is halved (fp16)."),
    OPT_FLAG(0, "tied", &o.tied, "The head's matrix is the embedding's (tied weights)."),
    OPT_FLAG(0, "checkpoint-activations", &o.checkpoint,
             "Keep only the blocks' inputs; compute a block again before its backward pass."),
    OPT_FLAG(0, "init-by-daemon", &o.init_by_daemon,
             "The daemons make the initial values (normal, from the seed); nothing is loaded."),
    OPT_TEXT(0, "data", "FILE", NULL, &o.data, "The text to train on, any bytes."),
    OPT_TEXT(0, "json", "FILE", NULL, &o.json, "Write steps, losses and norms to this file."),
    OPT_TEXT(0, "init", "FILE", NULL, &o.init,
             "Take the initial values from this safetensors file (F32)."),
    OPT_TEXT(0, "dump", "FILE", NULL, &o.dump,
             "Write the parameters to this safetensors file at the end."),
    OPT_UNSIGNED(0, "sample", "N", "0", "bytes", 0, MAX_SAMPLE, &o.sample,
                 "Print so much text of the model's own at the end."),
    OPT_TEXT(0, "prompt", "TEXT", "", &o.prompt, "What the sample continues."),
    OPT_UNSIGNED(0, "sleep-ms", "N", "0", "ms", 0, MAX_SLEEP, &o.sleep_ms,
                 "Sleep in each unit's computation (for tests of prefetch)."),
    OPT_FLAG(0, "standalone", &o.standalone,
             "Train in this process alone, without zerod: the baseline."),
    OPT_FLAG(0, "verbose", &o.verbose, "Every rank tells of void steps, not only rank 0."),
    OPT_FLAG('q', "quiet", &o.quiet, "Print no line a step."),
    OPT_FLAG('h', "help", &o.help, "Print this help."),
    OPT_END,
};

static int check(int argc, char *const *argv, int rest, struct err *e) {
    if (rest < argc) {
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' belongs to no option", argv[rest]);
    }
    if (o.channels % o.heads != 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "--channels %ju is no multiple of --heads %ju",
                       (uintmax_t)o.channels, (uintmax_t)o.heads);
    }
    if (!o.data && o.steps > 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "--data FILE is needed: the text to train on");
    }
    if (o.init && o.init_by_daemon) {
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "--init FILE and --init-by-daemon: the initial values come from one of them");
    }
    return 0;
}

/* What only other values of other options give a meaning to. */
static int check_meaning(struct err *e) {
    const bool sgd = strcmp(o.optimizer_text, "sgd") == 0;
    const bool fp16 = o.dtype_text && strcmp(o.dtype_text, "fp16") == 0;
    if (!sgd && (o.momentum > 0 || o.nesterov)) {
        return err_set(e, ST_INVALID_ARGUMENT, "--%s is sgd's, not %s's",
                       o.nesterov ? "nesterov" : "momentum", o.optimizer_text);
    }
    static const char *const scaling[] = {"loss-scale", "scale-window", "scale-hysteresis"};
    for (size_t i = 0; i < sizeof scaling / sizeof scaling[0] && !fp16; i++) {
        if (opt_given(table, scaling[i])) {
            return err_set(e, ST_INVALID_ARGUMENT, "--%s needs --dtype fp16", scaling[i]);
        }
    }
    return 0;
}

static int fill_in(struct err *e) {
    o.dtype = o.dtype_text ? dtype_parse(o.dtype_text) : DTYPE_NONE;
    o.shape = (struct gpt_shape){.layers = o.layers,
                                 .heads = o.heads,
                                 .channels = o.channels,
                                 .seq = o.seq,
                                 .batch = o.batch,
                                 .vocab = GPT_VOCABULARY,
                                 .tied = o.tied,
                                 .recompute = o.checkpoint};
    o.optimizer = (struct optimizer_options){.kind = optimizer_parse(o.optimizer_text),
                                             .beta1 = o.beta1,
                                             .beta2 = o.beta2,
                                             .epsilon = optimizer_epsilon,
                                             .weight_decay = o.weight_decay,
                                             .momentum = o.momentum,
                                             .nesterov = o.nesterov,
                                             .clip_value = o.clip_value};
    if (o.dtype == DTYPE_FP16) {
        o.scaling = (struct loss_scaling){.dynamic = true,
                                          .start = o.loss_scale,
                                          .window = (uint32_t)o.scale_window,
                                          .hysteresis = (uint32_t)o.scale_hysteresis};
    }
    const int rc = optimizer_check(&o.optimizer, e);
    return rc < 0 ? rc : scaling_check(&o.scaling, e);
}

int options_parse(struct options *to, int argc, char *const *argv, struct err *e) {
    memset(&o, 0, sizeof o);
    int rest = argc;
    int rc = opt_parse(table, argc, argv, &rest, e);
    if (rc == 0 && !o.help) {
        rc = check(argc, argv, rest, e);
        rc = rc == 0 ? check_meaning(e) : rc;
        rc = rc == 0 ? fill_in(e) : rc;
    }
    *to = o;
    return rc;
}

void options_help(FILE *to, const char *program, bool shared) {
    if (shared) {
        fprintf(to, "Usage: zerorun [OPTIONS] -- %s --data FILE [OPTIONS]\n", program);
    }
    fprintf(to,
            "%s %s%s --data FILE [OPTIONS]\n\n"
            "Trains a GPT on the bytes of a text. Exit status: 0 done, 1 failed, 2 usage.\n\n",
            shared ? "      " : "Usage:", program, shared ? " --standalone" : "");
    opt_help(table, to);
}
