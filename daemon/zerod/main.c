/* zerod: the daemon of one rank. Options, the loop, start and end; rank.h says who does the rest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/opt.h"
#include "base/slice.h"
#include "zerod/session.h"

enum { EXIT_USAGE = 2, NAME = 32 };

static struct rank self;

static struct opt options[] = {
    OPT_TEXT(0, "listen", "PATH", NULL, &self.options.listen,
             "Unix socket of this daemon's gRPC server."),
    OPT_TEXT(0, "handover", "PATH", NULL, &self.options.handover,
             "Unix socket on which descriptors of memory are handed over."),
    OPT_TEXT(0, "coordinator", "PATH", NULL, &self.options.coordinator,
             "Unix socket of the job's zerocoord; dialled for 10 s."),
    OPT_TEXT(0, "job", "NAME", NULL, &self.options.job,
             "Name of the job; must be the coordinator's."),
    OPT_UNSIGNED(0, "rank", "R", NULL, NULL, 0, LAYOUT_MAX_RANKS - 1, &self.options.rank,
                 "This daemon's rank."),
    OPT_UNSIGNED(0, "world", "N", NULL, NULL, 1, LAYOUT_MAX_RANKS, &self.options.world,
                 "Number of ranks."),
    OPT_TEXT(0, "strategy", "S", "zero3", &self.options.strategy_text,
             "How state is sharded: ddp, zero1, zero2, zero3 (full_shard), hybrid_shard, "
             "hybrid_zero2."),
    OPT_UNSIGNED(0, "shard-size", "S", "0", NULL, 0, LAYOUT_MAX_RANKS, &self.options.shard_size,
                 "Ranks that one copy of the state is sharded over, of the hybrid strategies; 0: "
                 "what the trainer asks for, else all."),
    OPT_CHOICE(0, "param-dtype", "T", NULL, "fp32|bf16|fp16", &self.options.param_text,
               "Type of gathered parameters; default: what the trainer asks for, else fp32."),
    OPT_CHOICE(0, "wire-dtype", "T", NULL, "fp32|bf16", &self.options.wire_text,
               "Type of gradient slots; default: what the trainer asks for, else fp32."),
    OPT_CHOICE(0, "kept-grad", "T", NULL, "fp32|bf16", &self.options.kept_text,
               "Type of gradients that are kept between micro-batches; default: what the trainer "
               "asks for, else fp32."),
    OPT_UNSIGNED(0, "gather-slots", "K", "2", NULL, 1, 64, &self.options.gather_slots,
                 "Gathered units held at a time; each slot holds the largest unit."),
    OPT_UNSIGNED(0, "grad-slots", "K", "2", NULL, 1, 64, &self.options.grad_slots,
                 "Gradients in flight at a time; each slot holds the largest unit."),
    OPT_UNSIGNED(0, "threads", "T", "1", NULL, 1, 64, &self.options.threads,
                 "Threads that gather, sum and update."),
    OPT_BYTES(0, "device-memory", "BYTES", "0", 0, UINT64_MAX, &self.options.device_memory,
              "Most memory that this rank may take; 0: no limit."),
    OPT_TEXT(0, "isa", "NAME", "", &self.options.isa,
             "Instruction set: plain, avx2, avx512; empty: $ZEROD_ISA, else the best there is."),
    OPT_TEXT(0, "drill", "SPEC", "", &self.options.drill_text,
             "kill-trainer:rank=R,step=S[,phase=gather|compute|reduce|voted|apply]."),
    OPT_UNSIGNED(0, "observers", "GID", NULL, NULL, 0, UINT32_MAX - 1, &self.options.observers,
                 "Group whose members may connect and observe; default: only this user and root."),
    OPT_UNSIGNED(0, "holder-fd", "FD", NULL, NULL, 0, INT32_MAX, &self.options.holder_fd,
                 "Pipe whose end means that the job's holder died."),
    OPT_FLAG(0, "no-overlap", &self.options.no_overlap,
             "Gather only what is asked for, nothing ahead (for tests)."),
    OPT_FLAG(0, "dry-run", &self.options.dry_run,
             "Take a trainer's model, tell by Status what it would need, allocate nothing."),
    OPT_FLAG(0, "trainer-groups", &self.options.trainer_groups,
             "Trainers run in process groups of their own: when one ends, its whole group does."),
    OPT_FLAG('h', "help", &self.options.help, "Print this help."),
    OPT_END,
};

static int check_options(struct options *o, struct err *e) {
    if (o->rank >= o->world) {
        return err_set(e, ST_INVALID_ARGUMENT, "--rank %llu, but there are %llu ranks",
                       (unsigned long long)o->rank, (unsigned long long)o->world);
    }
    o->defaults = (struct model_defaults){
        .strategy = strategy_parse(o->strategy_text),
        .shard_size = (uint32_t)o->shard_size,
        .param_dtype = o->param_text ? dtype_parse(o->param_text) : DTYPE_NONE,
        .wire_dtype = o->wire_text ? dtype_parse(o->wire_text) : DTYPE_NONE,
        .kept_dtype = o->kept_text ? dtype_parse(o->kept_text) : DTYPE_NONE,
    };
    if (o->defaults.strategy == STRATEGY_NONE) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--strategy %s is unknown: ddp, zero1, zero2, zero3 (full_shard), "
                       "hybrid_shard, hybrid_zero2",
                       o->strategy_text);
    }
    if (o->shard_size && o->world % o->shard_size) {
        return err_set(e, ST_INVALID_ARGUMENT, "--shard-size %llu does not divide the %llu ranks",
                       (unsigned long long)o->shard_size, (unsigned long long)o->world);
    }
    return drill_spec_parse(o->drill_text, o->world, &self.drill.spec, e);
}

/* ---- the end ---- */

void rank_end(struct rank *r, const char *reason) {
    if (r->ending) {
        return;
    }
    r->ending = true;
    if (reason) {
        r->failed = true;
        log_error("%s", reason);
    }
    session_end(r, life_holder_died(r->life), reason ? reason : "the daemon is ending");
    link_close(r);
    admin_end(r);
    serve_end(&r->serve);
    handover_close(r->handover, NULL, NULL);
    uv_async_send(&r->work); /* the engine goes from there: this may be one of its callbacks */
    life_leave(r->life, r->failed ? EXIT_FAILURE : EXIT_SUCCESS);
}

static void on_end(void *user, enum life_cause cause) {
    struct rank *r = user;
    rank_end(r, cause == LIFE_HOLDER_DIED ? "the job's holder died" : NULL);
}

/* ---- the start ---- */

static void on_work(uv_async_t *a) {
    struct rank *r = a->data;
    if (r->ending) {
        engine_del(r->engine);
        r->engine = NULL;
        uv_close((uv_handle_t *)a, NULL);
        return;
    }
    rank_hear_engine(r);
}

static int open_sockets(struct rank *r, struct err *e) {
    const struct serve_options o = {
        .listen = r->options.listen,
        .own = session_service(r),
        .own_name = "zerod.v1.Trainer",
        .own_ready = false, /* until memory is there */
        .admin = admin_service(r),
        .observed = opt_given(options, "observers"),
        .observers = (gid_t)r->options.observers,
    };
    int code = serve_start(&r->loop, &o, &r->serve, e);
    if (code) {
        return code;
    }
    code = handover_listen(&r->loop, r->options.handover, NULL, &r->handover, e);
    if (code) {
        serve_undo(&r->serve);
    }
    return code;
}

static int start(struct rank *r, struct err *e) {
    int holder = opt_given(options, "holder-fd") ? (int)r->options.holder_fd : LIFE_NO_HOLDER;
    uv_loop_init(&r->loop);
    int code = kernels_select(r->options.isa, &r->kernels, e);
    code = code ? code : rank_memory_records(r, e);
    code = code ? code : life_start(&r->loop, holder, on_end, r, &r->life, e);
    if (code) {
        return code;
    }
    r->job = job_rank_new((unsigned)r->options.rank, r->records, &rank_job_ops, r);
    code = open_sockets(r, e);
    if (code) {
        return code;
    }
    uv_async_init(&r->loop, &r->work, on_work);
    r->work.data = r;
    link_start(r);
    return 0;
}

static int usage(const struct err *e) {
    (void)fprintf(stderr, "zerod: %s\nzerod --help lists the options\n", e->text);
    return EXIT_USAGE;
}

static int help(void) {
    printf("zerod: the daemon of one rank; keeps its shard of a training job's state.\n"
           "Usually started by zerorun or by a systemd unit.\n\n");
    opt_help(options, stdout);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    struct err e = {0};
    static const char *const needed[] = {"listen", "handover", "coordinator", "job",
                                         "rank",   "world",    NULL};
    char name[NAME];
    int rest = 0;
    int code = opt_parse(options, argc, argv, &rest, &e);
    if (code == 0 && self.options.help) {
        return help();
    }
    code = code ? code : opt_need(options, needed, argc, argv, rest, &e);
    code = code ? code : check_options(&self.options, &e);
    if (code) {
        return usage(&e);
    }
    (void)snprintf(name, sizeof name, "zerod[%u]", (unsigned)self.options.rank);
    log_name(name);
    if (start(&self, &e)) {
        log_error("%s", e.text);
        return EXIT_FAILURE;
    }
    slice_take(SLICE_SHORT); /* this thread passes on what others wait for */
    uv_run(&self.loop, UV_RUN_DEFAULT);
    rank_memory_free(&self);
    job_rank_del(self.job);
    serve_free(&self.serve);
    (void)uv_loop_close(&self.loop);
    life_remove_folder(self.options.listen);
    return self.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
