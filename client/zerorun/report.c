#include "report.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/plan/plan.h"
#include "job.h"
#include "screen.h"

enum { PATH_LONGEST = 4096 };

static const Zerod__V1__RankStatus *rank_status(const struct job *j, unsigned rank) {
    return j->results.ranks[rank]->rank;
}

/* cJSON prints 15 digits of a double; these print all that it has. */
static void number(cJSON *to, const char *key, double x) {
    char shown[32];
    (void)snprintf(shown, sizeof shown, "%.17g", x);
    cJSON_AddRawToObject(to, key, shown);
}

static void count(cJSON *to, const char *key, uint64_t n) {
    char shown[24];
    (void)snprintf(shown, sizeof shown, "%" PRIu64, n);
    cJSON_AddRawToObject(to, key, shown);
}

static void text(cJSON *to, const char *key, const char *value) {
    cJSON_AddStringToObject(to, key, value ? value : "");
}

static void add_doubles(cJSON *to, const char *key, const double *list, size_t length) {
    cJSON *array = cJSON_AddArrayToObject(to, key);
    for (size_t i = 0; i < length; i++) {
        char shown[32];
        (void)snprintf(shown, sizeof shown, "%.17g", list[i]);
        cJSON_AddItemToArray(array,
                             isfinite(list[i]) ? cJSON_CreateRaw(shown) : cJSON_CreateNull());
    }
}

static void add_memory(cJSON *to, const char *key, const Zerod__V1__Memory *m) {
    static const Zerod__V1__Memory none = ZEROD__V1__MEMORY__INIT;
    cJSON *object = cJSON_AddObjectToObject(to, key);
    m = m ? m : &none;
    count(object, "params", m->params);
    count(object, "grads", m->grads);
    count(object, "optimizer", m->optimizer);
    count(object, "gather_slots", m->gather_slots);
    count(object, "grad_slots", m->grad_slots);
    count(object, "padding", m->padding);
    count(object, "rounding", m->rounding);
    count(object, "fixed", m->fixed);
}

static void add_pair(cJSON *to, const char *key, uint64_t bytes, uint64_t elements) {
    cJSON *object = cJSON_AddObjectToObject(to, key);
    count(object, "bytes", bytes);
    count(object, "elements", elements);
}

static void add_traffic(cJSON *to, const char *key, const Zerod__V1__Traffic *t) {
    static const Zerod__V1__Traffic none = ZEROD__V1__TRAFFIC__INIT;
    cJSON *object = cJSON_AddObjectToObject(to, key);
    t = t ? t : &none;
    add_pair(object, "all_gather", t->all_gather_bytes, t->all_gather_elements);
    add_pair(object, "reduce_scatter", t->reduce_scatter_bytes, t->reduce_scatter_elements);
    add_pair(object, "all_reduce", t->all_reduce_bytes, t->all_reduce_elements);
}

/* Within shard groups, between them. */
static void add_groups(cJSON *to, const char *key, Zerod__V1__Traffic **groups, size_t n) {
    static const char *const names[] = {"within", "between"};
    cJSON *object = cJSON_AddObjectToObject(to, key);
    for (size_t g = 0; g < sizeof names / sizeof names[0]; g++) {
        add_traffic(object, names[g], g < n ? groups[g] : NULL);
    }
}

/* Seconds of |first| to |end| ranks, their mean. */
static void add_seconds(const struct job *j, cJSON *to, unsigned first, unsigned end) {
    double sums[5] = {0};
    for (unsigned r = first; r < end; r++) {
        const Zerod__V1__RankStatus *s = rank_status(j, r);
        const uint64_t ns[5] = {s->gather_ns, s->compute_ns, s->reduce_ns, s->update_ns,
                                s->wait_ns};
        for (int i = 0; i < 5; i++) {
            sums[i] += (double)ns[i] * 1e-9 / (double)(end - first);
        }
    }
    static const char *const keys[5] = {"gather", "compute", "reduce", "update", "wait"};
    cJSON *object = cJSON_AddObjectToObject(to, "seconds");
    for (int i = 0; i < 5; i++) {
        number(object, keys[i], sums[i]);
    }
}

static void add_rank(const struct job *j, cJSON *list, unsigned rank) {
    const Zerod__V1__RankStatus *s = rank_status(j, rank);
    cJSON *to = cJSON_CreateObject();
    cJSON_AddItemToArray(list, to);
    count(to, "rank", rank);
    add_memory(to, "memory", s->measured);
    add_memory(to, "memory_formula", s->formula);
    count(to, "memory_total", s->memory_total);
    count(to, "huge_bytes", s->huge_bytes);
    add_traffic(to, "sent", s->sent);
    add_traffic(to, "sent_per_step", s->sent_last_step);
    add_traffic(to, "sent_per_step_formula", s->sent_per_step_formula);
    add_traffic(to, "sent_per_step_ddp", s->sent_per_step_ddp);
    add_groups(to, "sent_by_group", s->sent_by_group, s->n_sent_by_group);
    add_groups(to, "sent_per_step_by_group", s->sent_last_step_by_group,
               s->n_sent_last_step_by_group);
    add_groups(to, "sent_per_step_formula_by_group", s->sent_per_step_formula_by_group,
               s->n_sent_per_step_formula_by_group);
    count(to, "gathers", s->gathers);
    count(to, "gathers_ahead", s->gathers_ahead);
    count(to, "eval_gathers", s->eval_gathers);
    text(to, "isa", s->isa);
    add_seconds(j, to, rank, rank + 1);
}

static void add_recoveries(const struct job *j, cJSON *to) {
    cJSON *list = cJSON_AddArrayToObject(to, "recoveries");
    for (size_t i = 0; i < j->recoveries.count; i++) {
        const struct recovery *r = &j->recoveries.list[i];
        cJSON *object = cJSON_CreateObject();
        cJSON_AddItemToArray(list, object);
        count(object, "rank", r->rank);
        count(object, "step", r->step);
        if (r->first_gather_ms >= 0) {
            number(object, "kill_to_first_gather_ms", r->first_gather_ms);
        } else {
            cJSON_AddNullToObject(object, "kill_to_first_gather_ms");
        }
    }
}

static uint64_t attempts(const struct job *j) {
    return j->results.job->job->attempts;
}

static void add_ranks(const struct job *j, cJSON *to) {
    cJSON *ranks = cJSON_AddArrayToObject(to, "ranks");
    for (unsigned r = 0; r < j->ranks; r++) {
        add_rank(j, ranks, r);
    }
}

/* What the job was started with, and what its model chose. */
static void add_options(const struct job *j, cJSON *to) {
    const struct options *o = j->o;
    const Zerod__V1__RankStatus *s = rank_status(j, 0);
    count(to, "world_size", j->ranks);
    text(to, "strategy", s->strategy);
    count(to, "shard_size", s->shard_size);
    text(to, "param_dtype", s->param_dtype);
    text(to, "wire_dtype", s->wire_dtype);
    text(to, "kept_dtype", s->kept_dtype);
    text(to, "optimizer", s->optimizer);
    text(to, "warning", s->warning);
    count(to, "gather_slots", o->gather_slots);
    count(to, "grad_slots", o->grad_slots);
    count(to, "threads", o->threads);
}

static cJSON *build(const struct job *j) {
    cJSON *to = cJSON_CreateObject();
    char hash[24];
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, j->results.param_hash);
    count(to, "steps", j->progress.steps);
    count(to, "skipped", j->progress.skipped);
    add_doubles(to, "losses", j->progress.losses, j->progress.steps);
    add_doubles(to, "grad_norms", j->progress.norms, j->progress.steps);
    text(to, "param_hash", hash);
    number(to, "loss_scale", rank_status(j, 0)->loss_scale);
    add_ranks(j, to);
    add_seconds(j, to, 0, j->ranks);
    count(to, "attempts", attempts(j));
    count(to, "restarts", j->restarts);
    add_recoveries(j, to);
    add_options(j, to);
    number(to, "wall_seconds", (double)(clock_ns() - j->started_ns) * 1e-9);
    return to;
}

/* A terminal, a pipe, /dev/null: written in place, there is nothing to rename. */
static bool is_special(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode);
}

/* What is written first: |path| with ".tmp" and our pid. */
static int temporary_name(const char *path, char name[static PATH_LONGEST], struct err *e) {
    int n = is_special(path) ? snprintf(name, PATH_LONGEST, "%s", path)
                             : snprintf(name, PATH_LONGEST, "%s.tmp%d", path, (int)getpid());
    return n < PATH_LONGEST ? 0 : err_set(e, ST_INVALID_ARGUMENT, "--json: the name is too long");
}

static void drop_temporary(const char *name, const char *path) {
    if (strcmp(name, path) != 0) {
        (void)unlink(name);
    }
}

int report_check_file(const char *path, struct err *e) {
    char name[PATH_LONGEST];
    int rc = temporary_name(path, name, e);
    if (rc) {
        return rc;
    }
    FILE *f = fopen(name, "ae");
    if (!f) {
        return err_set(e, errno == EACCES ? ST_PERMISSION_DENIED : ST_NOT_FOUND,
                       "--json %.200s: cannot write there: %s", path, strerror(errno));
    }
    (void)fclose(f);
    drop_temporary(name, path);
    return 0;
}

static int write_file(const char *path, const char *content, struct err *e) {
    char name[PATH_LONGEST];
    int rc = temporary_name(path, name, e);
    if (rc) {
        return rc;
    }
    FILE *f = fopen(name, "we");
    bool written = f && fputs(content, f) >= 0 && fputc('\n', f) >= 0;
    if (f && fclose(f)) {
        written = false;
    }
    if (!written || rename(name, path)) {
        rc = err_set(e, ST_UNAVAILABLE, "cannot write %.200s: %s", path, strerror(errno));
        drop_temporary(name, path);
    }
    return rc;
}

/* Takes |tree|. */
static int write_tree(const struct job *j, cJSON *tree, struct err *e) {
    char *content = cJSON_Print(tree);
    cJSON_Delete(tree);
    if (!content) {
        return err_set(e, ST_UNAVAILABLE, "out of memory for %.200s", j->o->json);
    }
    int rc = write_file(j->o->json, content, e);
    cJSON_free(content);
    return rc;
}

int report_json(const struct job *j, struct err *e) {
    return j->o->json ? write_tree(j, build(j), e) : 0;
}

int report_dry_json(const struct job *j, const struct plan_table *table, struct err *e) {
    if (!j->o->json) {
        return 0;
    }
    cJSON *tree = cJSON_CreateObject();
    cJSON_AddTrueToObject(tree, "dry_run");
    add_options(j, tree);
    add_ranks(j, tree);
    cJSON_AddItemToObject(tree, "plan", plan_json(table, NULL));
    return write_tree(j, tree, e);
}

void report_dry(const struct job *j, FILE *to) {
    const Zerod__V1__RankStatus *s = rank_status(j, 0);
    const Zerod__V1__Memory *m = s->measured;
    (void)fprintf(to,
                  "\nthis job   rank 0 would take %" PRIu64 " bytes: parameters %" PRIu64
                  ", kept gradients %" PRIu64 ", optimizer %" PRIu64 ",\n"
                  "           gather slots %" PRIu64 ", gradient slots %" PRIu64
                  ", padding %" PRIu64 ", rounding %" PRIu64 ", fixed %" PRIu64 "\n",
                  s->memory_total, m->params, m->grads, m->optimizer, m->gather_slots,
                  m->grad_slots, m->padding, m->rounding, m->fixed);
}

void report_summary(const struct job *j) {
    const struct progress *p = &j->progress;
    char loss[48] = "";
    if (p->steps && isfinite(p->losses[p->steps - 1])) {
        (void)snprintf(loss, sizeof loss, ", last loss %.6f", p->losses[p->steps - 1]);
    }
    screen_say("done: %zu step%s in %.1f s%s, param_hash %016" PRIx64, p->steps,
               p->steps == 1 ? "" : "s", (double)(clock_ns() - j->started_ns) * 1e-9, loss,
               j->results.param_hash);
    screen_say("%" PRIu64 " attempts (also of loading and behind the last step), %" PRIu64
               " restart%s of trainers",
               attempts(j), j->restarts, j->restarts == 1 ? "" : "s");
    if (j->o->drill && !j->restarts) {
        screen_say("the drill did not happen: %s", j->o->drill);
    }
    for (size_t i = 0; i < j->recoveries.count; i++) {
        const struct recovery *r = &j->recoveries.list[i];
        if (r->first_gather_ms >= 0) {
            screen_say("rank %u: %.0f ms from its trainer's death in step %" PRIu64
                       " to the next one's first gather",
                       r->rank, r->first_gather_ms, r->step);
        }
    }
}
