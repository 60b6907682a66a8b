/* zeroctl plan: what a model needs and sends under each strategy, before anything is allocated. No
 * job is asked; the numbers come from client/plan. */
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "client/plan/plan.h"
#include "zeroctl.h"

static struct {
    const char *params, *model, *device_memory, *optimizer, *param_dtype, *kept, *wire;
    uint64_t layers, world, shard_size, micro_batches, gather_slots, grad_slots;
    double momentum;
    bool gib, json, help;
} options;

static struct opt table[] = {
    OPT_TEXT(0, "params", "COUNT", NULL, &options.params,
             "Parameters of the model: 7e9, 7B, 124M."),
    OPT_UNSIGNED(0, "layers", "N", "1", NULL, 1, MODEL_MAX_UNITS, &options.layers,
                 "Units that --params are spread over evenly."),
    OPT_TEXT(0, "model", "FILE", NULL, &options.model,
             "Instead: config.json, model.safetensors.index.json or a .safetensors file."),
    OPT_UNSIGNED('n', "world", "N", NULL, NULL, 1, LAYOUT_PLAN_RANKS, &options.world,
                 "Ranks of the job."),
    OPT_UNSIGNED(0, "shard-size", "S", "0", NULL, 0, LAYOUT_PLAN_RANKS, &options.shard_size,
                 "Ranks of one machine, which hybrid strategies shard over; 0: all are on one."),
    OPT_TEXT(0, "device-memory", "SIZE", NULL, &options.device_memory,
             "Memory of one rank, 80GB or 80GiB: says what fits."),
    OPT_CHOICE(0, "optimizer", "O", "adamw", "adamw|adam|sgd|lion", &options.optimizer,
               "Optimizer."),
    OPT_REAL(0, "momentum", "X", "0", NULL, 0, 0.999999, &options.momentum,
             "Momentum of sgd; above 0 it needs a state."),
    OPT_CHOICE(0, "param-dtype", "T", "bf16", "fp32|bf16|fp16", &options.param_dtype,
               "Type of gathered parameters."),
    OPT_CHOICE(0, "kept-grad", "T", "fp32", "fp32|bf16", &options.kept,
               "Type of gradients that are kept between micro-batches."),
    OPT_CHOICE(0, "wire-dtype", "T", "fp32", "fp32|bf16", &options.wire,
               "Type of gradients on the wire."),
    OPT_UNSIGNED(0, "micro-batches", "K", "1", NULL, 1, MODEL_MAX_MICRO_BATCHES,
                 &options.micro_batches, "Micro-batches of a step."),
    OPT_UNSIGNED(0, "gather-slots", "K", "2", NULL, 1, 64, &options.gather_slots,
                 "Slots to gather into, each of the largest unit."),
    OPT_UNSIGNED(0, "grad-slots", "K", "2", NULL, 1, 64, &options.grad_slots,
                 "Slots for gradients, each of the largest unit."),
    OPT_FLAG(0, "gib", &options.gib, "Print GiB (2^30 bytes) beside GB (1e9)."),
    OPT_FLAG(0, "json", &options.json, "Print JSON, in bytes."),
    OPT_FLAG('h', "help", &options.help, "Print this help."),
    OPT_END,
};

static int fail(int status, const char *text) {
    (void)fprintf(stderr, "zeroctl plan: %s\n", text);
    return status;
}

static void print_help(void) {
    (void)fputs("Usage: zeroctl plan --params COUNT --layers N --world N [OPTIONS]\n"
                "       zeroctl plan --model FILE --world N [OPTIONS]\n\n"
                "Predicts, for every strategy, the memory of a rank by kind, its peak with slots, "
                "and what\nit sends in a step; says what fits and what to choose. The allocator "
                "uses the same formulas.\n\n",
                stdout);
    opt_help(table, stdout);
    (void)fputs("\nExamples:\n"
                "  zeroctl plan --params 7e9 --layers 32 --world 8 --device-memory 80GB\n"
                "  zeroctl plan --params 70e9 --layers 80 --world 64 --shard-size 8 --gib\n"
                "  zeroctl plan --model config.json --world 8 --kept-grad bf16 --json\n"
                "\nExit status: 0 done, 1 the model's file is unusable, 2 the command line is "
                "wrong.\n",
                stdout);
}

static int check_words(int argc, int rest, struct err *e) {
    if (rest < argc) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "takes options only; `zeroctl plan --help` lists them");
    }
    if (!options.params == !options.model) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "needs either --params (and --layers) or --model; `zeroctl plan --help` "
                       "has examples");
    }
    if (options.model && opt_given(table, "layers")) {
        return err_set(e, ST_INVALID_ARGUMENT, "--layers goes with --params, not with --model");
    }
    if (!opt_given(table, "world")) {
        return err_set(e, ST_INVALID_ARGUMENT, "needs --world, the number of ranks");
    }
    return 0;
}

static void set_numbers(struct model *m) {
    model_defaults(m);
    m->strategy = STRATEGY_ZERO3; /* for model_check; the table has them all */
    m->param_dtype = dtype_parse(options.param_dtype);
    m->kept_dtype = dtype_parse(options.kept);
    m->wire_dtype = dtype_parse(options.wire);
    m->micro_batches = (uint32_t)options.micro_batches;
    m->optimizer.kind = optimizer_parse(options.optimizer);
    m->optimizer.momentum = options.momentum;
    m->scaling.dynamic = m->param_dtype == DTYPE_FP16;
}

static int make_model(struct model *m, struct plan_lines *notes, struct err *e) {
    uint64_t params;
    int rc;
    set_numbers(m);
    if (options.model) {
        rc = plan_model_read(m, options.model, notes, e);
    } else {
        rc = plan_parse_count(options.params, &params, e);
        if (!rc) {
            rc = plan_model_invent(m, params, options.layers, (unsigned)options.world, e);
        }
    }
    rc = rc ? rc : plan_model_finish(m, e);
    m->strategy = STRATEGY_NONE;
    return rc;
}

static int print(const struct plan_table *t, const struct plan_lines *notes) {
    if (!options.json) {
        plan_print(t, notes, options.gib, stdout);
        return 0;
    }
    cJSON *json = plan_json(t, notes);
    char *text = cJSON_Print(json);
    cJSON_Delete(json);
    if (!text) {
        return fail(EXIT_FAILED, "out of memory");
    }
    (void)puts(text);
    cJSON_free(text);
    return 0;
}

static int run(struct model *m) {
    struct plan_lines notes = {0};
    struct plan_table t;
    struct plan_request r = {
        .model = m,
        .world = (unsigned)options.world,
        .shard_size = (unsigned)options.shard_size,
        .slots = {(uint32_t)options.gather_slots, (uint32_t)options.grad_slots},
    };
    struct err e;
    if (options.device_memory && plan_parse_bytes(options.device_memory, &r.device_memory, &e)) {
        return fail(EXIT_USAGE, e.text);
    }
    if (make_model(m, &notes, &e)) {
        return fail(options.model ? EXIT_FAILED : EXIT_USAGE, e.text);
    }
    int rc = plan_table_init(&t, &r, &e);
    if (rc) {
        return fail(rc == -ST_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED, e.text);
    }
    return print(&t, &notes);
}

int plan_main(int argc, char **argv) {
    struct model m = {0};
    struct err e;
    int rest;
    if (opt_parse(table, argc, argv, &rest, &e)) {
        return fail(EXIT_USAGE, e.text);
    }
    if (options.help) {
        print_help();
        return 0;
    }
    if (check_words(argc, rest, &e)) {
        return fail(EXIT_USAGE, e.text);
    }
    int status = run(&m);
    model_free(&m);
    return status;
}
