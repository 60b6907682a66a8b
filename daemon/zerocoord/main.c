/* zerocoord: the coordinator of one job. Options, the loop, start and end; coord.h says who does
 * the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/slice.h"
#include "zerocoord/coord.h"

enum { EXIT_USAGE = 2, TICK_MS = 1000 };

static struct coord self;

static struct opt options[] = {
    OPT_TEXT(0, "listen", "PATH", NULL, &self.options.listen,
             "Unix socket of the coordinator's gRPC server."),
    OPT_TEXT(0, "job", "NAME", NULL, &self.options.job,
             "Name of the job; daemons of another are refused."),
    OPT_UNSIGNED(0, "world", "N", NULL, NULL, 1, LAYOUT_MAX_RANKS, &self.options.world,
                 "Number of ranks."),
    OPT_UNSIGNED(0, "silence", "S", "30", "s", 1, 86400, &self.options.silence_s,
                 "A rank that has not voted this long after another did is named, and one without "
                 "whose daemon or trainer the job has not begun by then."),
    OPT_UNSIGNED(0, "max-skips", "M", "50", NULL, 0, UINT32_MAX, &self.options.max_skips,
                 "Steps in a row whose gradients are not finite before the job ends."),
    OPT_UNSIGNED(0, "observers", "GID", NULL, NULL, 0, UINT32_MAX - 1, &self.options.observers,
                 "Group whose members may connect and observe; default: only this user and root."),
    OPT_UNSIGNED(0, "holder-fd", "FD", NULL, NULL, 0, INT32_MAX, &self.options.holder_fd,
                 "Pipe whose end means that the job's holder died."),
    OPT_FLAG('h', "help", &self.options.help, "Print this help."),
    OPT_END,
};

/* ---- the end ---- */

void coord_end(struct coord *c, const char *reason) {
    if (c->ending) {
        return;
    }
    c->ending = true;
    if (reason) {
        c->failed = true;
        log_error("%s", reason);
    }
    roster_stop(c, reason);
    admin_end(c);
    serve_end(&c->serve);
    uv_close((uv_handle_t *)&c->tick, NULL);
    life_leave(c->life, c->failed ? EXIT_FAILURE : EXIT_SUCCESS);
}

static void on_end(void *user, enum life_cause cause) {
    coord_end(user, cause == LIFE_HOLDER_DIED ? "the job's holder died" : NULL);
}

/* ---- the start ---- */

/* A job that does not begin says once what it waits for. */
static void name_missing(struct coord *c, int64_t limit) {
    if (c->named || c->agreed || clock_ns() - c->since_ns < limit) {
        return;
    }
    c->named = true;
    for (unsigned i = 0; i < c->options.world; i++) {
        const struct member *m = &c->members[i];
        if (!m->registered) {
            log_warn("the job waits for rank %u of %u: its %s within %llu s", i,
                     (unsigned)c->options.world,
                     m->call ? "trainer has not registered a model" : "daemon has not joined",
                     (unsigned long long)c->options.silence_s);
        }
    }
}

static void on_tick(uv_timer_t *t) {
    struct coord *c = t->data;
    unsigned rank = 0;
    int64_t age = 0;
    struct fence f = job_coordinator_fence(c->job);
    int64_t limit = (int64_t)c->options.silence_s * 1000000000;
    name_missing(c, limit);
    if (!fence_equal(&f, &c->warned) &&
        job_coordinator_silent(c->job, clock_ns(), limit, &rank, &age)) {
        c->warned = f;
        log_warn("rank %u has not voted in step %llu, attempt %llu: another rank did %.0f s ago",
                 rank, (unsigned long long)f.step, (unsigned long long)f.attempt,
                 (double)age / 1e9);
    }
}

static int start(struct coord *c, struct err *e) {
    uint8_t uuid[JOB_UUID];
    int holder = opt_given(options, "holder-fd") ? (int)c->options.holder_fd : LIFE_NO_HOLDER;
    /* The rest comes with the models. */
    struct decide_options o = {.max_skips_in_row = c->options.max_skips};
    if (getrandom(uuid, sizeof uuid, 0) != sizeof uuid) {
        return err_set(e, ST_UNAVAILABLE, "no random bytes for the coordinator's uuid");
    }
    uv_loop_init(&c->loop);
    int code = life_start(&c->loop, holder, on_end, c, &c->life, e);
    if (code) {
        return code;
    }
    c->members = mem_zeroed((size_t)c->options.world, sizeof *c->members);
    for (unsigned i = 0; i < c->options.world; i++) {
        c->members[i].coord = c;
        c->members[i].rank = i;
    }
    c->job = job_coordinator_new((unsigned)c->options.world, uuid, &o, &coord_job_ops, c);
    uv_timer_init(&c->loop, &c->tick);
    c->tick.data = c;
    c->since_ns = clock_ns();
    uv_timer_start(&c->tick, on_tick, TICK_MS, TICK_MS);
    const struct serve_options serve = {
        .listen = c->options.listen,
        .own = roster_service(c),
        .own_name = "zerod.v1.Coordinator",
        .own_ready = true,
        .admin = admin_service(c),
        .observed = opt_given(options, "observers"),
        .observers = (gid_t)c->options.observers,
    };
    return serve_start(&c->loop, &serve, &c->serve, e);
}

static int usage(const struct err *e) {
    (void)fprintf(stderr, "zerocoord: %s\nzerocoord --help lists the options\n", e->text);
    return EXIT_USAGE;
}

static int help(void) {
    printf("zerocoord: the coordinator of one training job; drives its steps, holds none of its "
           "state.\nUsually started by zerorun or by a systemd unit.\n\n");
    opt_help(options, stdout);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    struct err e = {0};
    static const char *const needed[] = {"listen", "job", "world", NULL};
    int rest = 0;
    int code = opt_parse(options, argc, argv, &rest, &e);
    if (code == 0 && self.options.help) {
        return help();
    }
    code = code ? code : opt_need(options, needed, argc, argv, rest, &e);
    if (code) {
        return usage(&e);
    }
    log_name("zerocoord");
    if (start(&self, &e)) {
        log_error("%s", e.text);
        return EXIT_FAILURE;
    }
    slice_take(SLICE_SHORT); /* this thread passes on what others wait for */
    uv_run(&self.loop, UV_RUN_DEFAULT);
    job_coordinator_del(self.job);
    serve_free(&self.serve);
    roster_free(&self);
    (void)uv_loop_close(&self.loop);
    life_remove_folder(self.options.listen);
    return self.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
