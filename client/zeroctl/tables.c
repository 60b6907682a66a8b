#include "tables.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define N "%" PRIu64

static const Zerod__V1__Memory no_memory = ZEROD__V1__MEMORY__INIT;
static const Zerod__V1__Traffic no_traffic = ZEROD__V1__TRAFFIC__INIT;
static const Zerod__V1__Fence no_fence = ZEROD__V1__FENCE__INIT;

static const char *word(const char *text) {
    return text && *text ? text : "-";
}

void tables_job(const Zerod__V1__JobStatus *job, FILE *to) {
    const Zerod__V1__Fence *f = job->fence ? job->fence : &no_fence;
    (void)fprintf(to,
                  "job %s: %" PRIu32 " ranks, generation " N ", step " N ", attempt " N ", %s\n"
                  "steps determined " N ", tries opened " N "\n\n",
                  word(job->job), job->world_size, job->generation, f->step, f->attempt,
                  word(job->phase), job->steps, job->attempts);
}

static void print_rank(const struct rank_answer *r, FILE *to) {
    const Zerod__V1__RankStatus *s = r->status;
    if (!s) {
        (void)fprintf(to, "%4" PRIu32 "  no answer: %s\n", r->rank, word(r->error));
        return;
    }
    const Zerod__V1__Fence *f = s->fence ? s->fence : &no_fence;
    char trainer[32] = "none";
    if (s->trainer_pid) {
        (void)snprintf(trainer, sizeof trainer, N, s->trainer_pid);
    }
    (void)fprintf(to,
                  "%4" PRIu32 "  %7" PRIu64 "  %-12s  %-5s  %10" PRIu64 "  %6" PRIu64 "  %7" PRIu64
                  "  %-10s  %10" PRIu64 "  %7s  %-6s  %7" PRIu32 "\n",
                  s->rank, s->pid, word(s->strategy), word(s->param_dtype), f->generation, f->step,
                  f->attempt, word(s->phase), s->attachment, trainer, word(s->isa), s->threads);
}

void tables_ranks(const struct rank_answer *ranks, size_t count, FILE *to) {
    (void)fprintf(to, "%4s  %7s  %-12s  %-5s  %10s  %6s  %7s  %-10s  %10s  %7s  %-6s  %7s\n",
                  "rank", "pid", "strategy", "dtype", "generation", "step", "attempt", "phase",
                  "attachment", "trainer", "isa", "threads");
    for (size_t i = 0; i < count; i++) {
        print_rank(&ranks[i], to);
    }
}

/* ---- numbers ---- */

static void memory_line(FILE *to, const char *kind, uint64_t measured, uint64_t formula) {
    (void)fprintf(to, "  %-14s %16" PRIu64 " %16" PRIu64 "%s\n", kind, measured, formula,
                  measured == formula ? "" : "  differs");
}

static uint64_t sum(const Zerod__V1__Memory *m) {
    return m->params + m->grads + m->optimizer + m->gather_slots + m->grad_slots + m->padding +
           m->rounding + m->fixed;
}

static void print_memory(const Zerod__V1__RankStatus *s, FILE *to) {
    const Zerod__V1__Memory *m = s->measured ? s->measured : &no_memory;
    const Zerod__V1__Memory *f = s->formula ? s->formula : &no_memory;
    (void)fprintf(to, "  %-14s %16s %16s\n", "memory, bytes", "measured", "formula");
    memory_line(to, "params", m->params, f->params);
    memory_line(to, "grads", m->grads, f->grads);
    memory_line(to, "optimizer", m->optimizer, f->optimizer);
    memory_line(to, "gather slots", m->gather_slots, f->gather_slots);
    memory_line(to, "grad slots", m->grad_slots, f->grad_slots);
    memory_line(to, "padding", m->padding, f->padding);
    memory_line(to, "rounding", m->rounding, f->rounding);
    memory_line(to, "fixed", m->fixed, f->fixed);
    memory_line(to, "total", s->memory_total, sum(f));
    (void)fprintf(to, "  %-14s %16" PRIu64 "\n", "in huge pages", s->huge_bytes);
}

static void traffic_line(FILE *to, const char *kind, uint64_t sent, uint64_t formula,
                         uint64_t ddp) {
    (void)fprintf(to, "  %-14s %16" PRIu64 " %16" PRIu64 " %16" PRIu64 "\n", kind, sent, formula,
                  ddp);
}

static uint64_t bytes(const Zerod__V1__Traffic *t) {
    return t->all_gather_bytes + t->reduce_scatter_bytes + t->all_reduce_bytes;
}

static uint64_t elements(const Zerod__V1__Traffic *t) {
    return t->all_gather_elements + t->reduce_scatter_elements + t->all_reduce_elements;
}

/* Hybrid strategies: what stays within the S ranks that share a machine, and what leaves them. */
static void print_groups(const Zerod__V1__RankStatus *s, FILE *to) {
    static const char *const names[] = {"bytes within", "bytes between"};
    size_t n = s->n_sent_last_step_by_group;
    for (size_t g = 0; g < 2 && n == 2 && s->n_sent_per_step_formula_by_group == 2; g++) {
        uint64_t sent = bytes(s->sent_last_step_by_group[g]);
        uint64_t formula = bytes(s->sent_per_step_formula_by_group[g]);
        if (!strncmp(s->strategy, "hybrid", strlen("hybrid"))) {
            (void)fprintf(to, "  %-14s %16" PRIu64 " %16" PRIu64 "\n", names[g], sent, formula);
        }
    }
}

static void print_traffic(const Zerod__V1__RankStatus *s, FILE *to) {
    const Zerod__V1__Traffic *t = s->sent_last_step ? s->sent_last_step : &no_traffic;
    const Zerod__V1__Traffic *f = s->sent_per_step_formula ? s->sent_per_step_formula : &no_traffic;
    const Zerod__V1__Traffic *d = s->sent_per_step_ddp ? s->sent_per_step_ddp : &no_traffic;
    (void)fprintf(to, "  %-14s %16s %16s %16s\n", "sent per step", "last step", "formula",
                  "ddp's formula");
    traffic_line(to, "all-gather", t->all_gather_bytes, f->all_gather_bytes, d->all_gather_bytes);
    traffic_line(to, "reduce-scatter", t->reduce_scatter_bytes, f->reduce_scatter_bytes,
                 d->reduce_scatter_bytes);
    traffic_line(to, "all-reduce", t->all_reduce_bytes, f->all_reduce_bytes, d->all_reduce_bytes);
    traffic_line(to, "bytes", bytes(t), bytes(f), bytes(d));
    traffic_line(to, "elements", elements(t), elements(f), elements(d));
    print_groups(s, to);
}

static bool same(const ProtobufCMessage *a, const ProtobufCMessage *b) {
    uint8_t x[512], y[512];
    if (!a || !b) {
        return a == b;
    }
    size_t n = protobuf_c_message_get_packed_size(a);
    if (n > sizeof x || n != protobuf_c_message_get_packed_size(b)) {
        return false;
    }
    protobuf_c_message_pack(a, x);
    protobuf_c_message_pack(b, y);
    return !memcmp(x, y, n);
}

static const ProtobufCMessage *base_of(const void *m) {
    return m; /* |base| is the first member of every message */
}

static bool same_numbers(const Zerod__V1__RankStatus *a, const Zerod__V1__RankStatus *b) {
    return a && b && a->memory_total == b->memory_total && a->huge_bytes == b->huge_bytes &&
           same(base_of(a->measured), base_of(b->measured)) &&
           same(base_of(a->formula), base_of(b->formula)) &&
           same(base_of(a->sent_last_step), base_of(b->sent_last_step)) &&
           same(base_of(a->sent_per_step_formula), base_of(b->sent_per_step_formula)) &&
           same(base_of(a->sent_per_step_ddp), base_of(b->sent_per_step_ddp));
}

void tables_numbers(const struct rank_answer *ranks, size_t count, FILE *to) {
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;
        while (end < count && same_numbers(ranks[i].status, ranks[end].status)) {
            end++;
        }
        if (ranks[i].status && end - i > 1) {
            (void)fprintf(to, "\nranks %" PRIu32 " to %" PRIu32 ", each\n", ranks[i].rank,
                          ranks[end - 1].rank);
        } else if (ranks[i].status) {
            (void)fprintf(to, "\nrank %" PRIu32 "\n", ranks[i].rank);
        }
        if (ranks[i].status) {
            print_memory(ranks[i].status, to);
            print_traffic(ranks[i].status, to);
        }
        i = end;
    }
}
