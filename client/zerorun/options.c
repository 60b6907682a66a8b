#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "layout/layout.h"
#include "process/drill_spec.h"

static struct options parsed;

static struct opt table[] = {
    OPT_UNSIGNED('n', "ranks", "N", "4", NULL, 1, LAYOUT_MAX_RANKS, &parsed.ranks,
                 "Ranks to start, each a daemon and a trainer."),
    OPT_TEXT('s', "strategy", "S", "zero3", &parsed.strategy,
             "What is sharded: ddp, zero1, zero2, zero3 (also called full_shard), hybrid_shard or "
             "hybrid_zero2."),
    OPT_CHOICE(0, "reshard-after-forward", "B", "true", "true|false", &parsed.reshard,
               "false: parameters are kept from forward to backward; with fixed memory that makes "
               "zero2 of zero3, hybrid_zero2 of hybrid_shard."),
    OPT_UNSIGNED(0, "shard-size", "S", "0", NULL, 0, LAYOUT_MAX_RANKS, &parsed.shard_size,
                 "Ranks that hybrid strategies shard over; divides the ranks. 0: what the trainer "
                 "asks for, else all."),
    OPT_CHOICE(0, "param-dtype", "T", NULL, "fp32|bf16|fp16", &parsed.param_dtype,
               "Type of gathered parameters; default: what the trainer asks for, else fp32. Master "
               "weights are always fp32."),
    OPT_CHOICE(
        0, "wire-dtype", "T", NULL, "fp32|bf16", &parsed.wire_dtype,
        "Type of the gradients that ranks sum (in fp32); default: what the trainer asks for, "
        "else fp32."),
    OPT_CHOICE(0, "kept-grad", "T", NULL, "fp32|bf16", &parsed.kept_grad,
               "Type of gradients kept between micro-batches; default: what the trainer asks for, "
               "else fp32."),
    OPT_UNSIGNED(0, "gather-slots", "K", "2", NULL, 1, 64, &parsed.gather_slots,
                 "Slots for gathered parameters, each as large as the largest unit."),
    OPT_UNSIGNED(0, "grad-slots", "K", "2", NULL, 1, 64, &parsed.grad_slots,
                 "Slots for gradients, each as large as the largest unit."),
    OPT_UNSIGNED(0, "threads", "T", "1", NULL, 1, 64, &parsed.threads,
                 "Threads of each daemon that sum and update."),
    OPT_BYTES(0, "device-memory", "SIZE", "0", 0, UINT64_MAX, &parsed.device_memory,
              "Most memory that a daemon may take for the model's state, 80GB or 80GiB; 0: no "
              "limit."),
    OPT_TEXT(0, "json", "FILE", NULL, &parsed.json, "Write the job's numbers to FILE at its end."),
    OPT_UNSIGNED(0, "max-skips", "M", "50", NULL, 0, UINT32_MAX, &parsed.max_skips,
                 "Steps in a row whose gradients are not finite before the job fails."),
    OPT_FLAG(0, "no-overlap", &parsed.no_overlap,
             "Gather nothing ahead of being asked (to see what overlap gains)."),
    OPT_FLAG(0, "dry-run", &parsed.dry_run,
             "Start the trainers, print what their model will need under this and the other "
             "strategies, and end; allocates nothing."),
    OPT_UNSIGNED(0, "max-restarts", "M", "3", NULL, 0, 1000000, &parsed.max_restarts,
                 "Dead trainers to start again, all ranks together, before the job fails."),
    OPT_TEXT(
        0, "drill", "SPEC", NULL, &parsed.drill,
        "Kill a trainer at a chosen moment: kill-trainer:rank=R,step=S[,phase=P] with P one of "
        "gather, compute, reduce, voted, apply."),
    OPT_UNSIGNED(0, "observers", "GID", NULL, NULL, 0, UINT32_MAX - 1, &parsed.observers,
                 "Group whose members may connect to the coordinator and the daemons and observe "
                 "(zeroctl status --address); default: only this user and root."),
    OPT_FLAG('h', "help", &parsed.help, "Print this help."),
    OPT_FLAG('V', "version", &parsed.version, "Print the version."),
    OPT_END,
};

void options_help(FILE *to) {
    (void)fputs("Usage: zerorun [OPTIONS] -- TRAINER [ARGUMENTS]\n\n"
                "Runs a training job on this machine: a coordinator, and for each rank a daemon\n"
                "that holds the training state and a trainer that does the training. A trainer\n"
                "that dies is started again and nothing is lost.\n\n",
                to);
    opt_help(table, to);
    (void)fputs(
        "\nTrainers find in their environment RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,\n"
        "ZEROD_ADDRESS (their daemon's socket), and, unless set already, OPENBLAS_NUM_THREADS\n"
        "and OMP_NUM_THREADS = cores / N. `zeroctl status` shows a running job.\n"
        "\nExamples:\n"
        "  zerorun -n 4 --strategy zero3 -- gpt --data text.txt --steps 200\n"
        "  zerorun -n 4 --strategy hybrid_shard --shard-size 2 --dry-run -- gpt --data text.txt\n"
        "  zerorun -n 2 --json run.json --drill kill-trainer:rank=1,step=5,phase=reduce -- \\\n"
        "      gpt --data text.txt --steps 20\n"
        "\nExit status: 0 the job is done, 1 it failed, 2 the command line is wrong.\n",
        to);
}

static int check_strategy(struct options *o, struct err *e) {
    enum strategy strategy = strategy_parse(o->strategy);
    if (strategy == STRATEGY_NONE) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--strategy \"%.60s\": unknown; must be ddp, zero1, zero2, zero3 "
                       "(full_shard), hybrid_shard or hybrid_zero2",
                       o->strategy);
    }
    if (!strcmp(o->reshard, "false")) {
        strategy = strategy_without_reshard(strategy);
    }
    o->strategy = strategy_name(strategy);
    if (o->shard_size && strategy != STRATEGY_HYBRID_SHARD && strategy != STRATEGY_HYBRID_ZERO2) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--shard-size %llu: only hybrid_shard and hybrid_zero2 have one, not %.60s",
                       (unsigned long long)o->shard_size, o->strategy);
    }
    if (o->shard_size && o->ranks % o->shard_size) {
        return err_set(e, ST_INVALID_ARGUMENT, "--shard-size %llu: must divide the %llu ranks",
                       (unsigned long long)o->shard_size, (unsigned long long)o->ranks);
    }
    return 0;
}

/* opt.h ends the options at the first word that is none; a job's trainer must come after "--", so
 * that a mistyped option value is not taken for a program. */
static int find_trainer(int rest, int argc, char *const *argv, struct err *e) {
    if (rest >= argc) {
        return err_set(e, ST_INVALID_ARGUMENT, "no trainer: zerorun [OPTIONS] -- TRAINER ...");
    }
    if (strcmp(argv[rest - 1], "--") != 0) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "\"%.100s\" is no option; the trainer goes after \"--\"", argv[rest]);
    }
    if (!*argv[rest]) {
        return err_set(e, ST_INVALID_ARGUMENT, "the trainer's name after \"--\" is empty");
    }
    return 0;
}

int options_parse(struct options *o, int argc, char *const *argv, struct err *e) {
    int rest = argc;
    int rc = opt_parse(table, argc, argv, &rest, e);
    if (rc) {
        return rc;
    }
    *o = parsed;
    o->observed = opt_given(table, "observers");
    if (o->help || o->version) {
        return 0;
    }
    struct drill_spec drill; /* passed on as text; here only to refuse a wrong one at once */
    rc = check_strategy(o, e);
    rc = rc ? rc : drill_spec_parse(o->drill, o->ranks, &drill, e);
    if (!rc) {
        rc = find_trainer(rest, argc, argv, e);
    }
    o->trainer = argv + (rest < argc ? rest : argc);
    return rc;
}
