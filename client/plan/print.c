/* The table for people. */
#include <math.h>

#include "plan_inner.h"

enum { CELL = 24 };

static const double giga = 1e9, gibi = 1024.0 * 1024.0 * 1024.0;

static const char *cell(uint64_t bytes, bool gib, char text[static CELL]) {
    if (gib) {
        (void)snprintf(text, CELL, "%.3f (%.3f)", (double)bytes / giga, (double)bytes / gibi);
    } else {
        (void)snprintf(text, CELL, "%.3f", (double)bytes / giga);
    }
    return text;
}

static void print_cell(uint64_t bytes, bool gib, FILE *to) {
    char text[CELL];
    (void)fprintf(to, "  %*s", gib ? 21 : 11, cell(bytes, gib, text));
}

static void print_title(const char *title, bool gib, FILE *to) {
    (void)fprintf(to, "  %*s", gib ? 21 : 11, title);
}

static void print_name(const struct plan_row *r, FILE *to) {
    (void)fprintf(to, "%c %-12s", r->chosen ? '>' : ' ', strategy_name(r->strategy));
}

/* ---- what was asked ---- */

static void print_model(const struct plan_table *t, FILE *to) {
    const struct model *m = t->request.model;
    char all[PLAN_NUMBER], trainable[PLAN_NUMBER], largest[PLAN_NUMBER];
    (void)fprintf(to, "model      %s parameters", plan_count_text(t->elements, all));
    if (t->trainable != t->elements) {
        (void)fprintf(to, ", %s of them trained", plan_count_text(t->trainable, trainable));
    }
    (void)fprintf(to, " in %zu unit%s; the largest, \"%s\", has %s (%.1f %%)\n", m->unit_count,
                  m->unit_count == 1 ? "" : "s", m->units[t->largest].name,
                  plan_count_text(t->largest_elements, largest),
                  t->elements ? 100.0 * (double)t->largest_elements / (double)t->elements : 0);
}

static void print_bytes(const struct model *m, FILE *to) {
    const unsigned states = optimizer_states(&m->optimizer);
    (void)fprintf(to,
                  "bytes      an element: parameters %zu (%s), kept gradients %zu (%s), optimizer "
                  "%u (%s: fp32 master and %u states);\n"
                  "           on the wire gradients %zu (%s)",
                  dtype_bytes(m->param_dtype), dtype_name(m->param_dtype),
                  dtype_bytes(m->kept_dtype), dtype_name(m->kept_dtype), 4 * (1 + states),
                  optimizer_name(m->optimizer.kind), states, dtype_bytes(m->wire_dtype),
                  dtype_name(m->wire_dtype));
    if (m->param_dtype == DTYPE_FP32) {
        (void)fprintf(to, "; sharded fp32 parameters are read from the master: 0");
    }
    (void)fputc('\n', to);
}

static void print_request(const struct plan_table *t, bool gib, FILE *to) {
    const struct plan_request *r = &t->request;
    const unsigned machine = r->shard_size ? r->shard_size : r->world;
    char size[2 * PLAN_NUMBER];
    (void)fprintf(to, "ranks      %u, on %u machine%s of %u; %u micro-batch%s a step\n", r->world,
                  r->world / machine, r->world == machine ? "" : "s", machine,
                  r->model->micro_batches, r->model->micro_batches == 1 ? "" : "es");
    (void)fprintf(to, "slots      %u to gather into, %u for gradients\n", r->slots.gather,
                  r->slots.grad);
    print_bytes(r->model, to);
    if (r->device_memory) {
        (void)fprintf(to, "device     %s\n", plan_size_text(r->device_memory, gib, size));
    }
}

/* ---- tables ---- */

static void print_memory(const struct plan_table *t, bool gib, FILE *to) {
    static const char *const titles[] = {"params",  "grads",        "optimizer",  "sum",
                                         "padding", "gather slots", "grad slots", "peak"};
    (void)fprintf(to, "\nmemory of a rank, GB%s\n  %-12s", gib ? " (GiB)" : "", "strategy");
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        print_title(titles[i], gib, to);
    }
    (void)fprintf(to, "%s\n", t->request.device_memory ? "  fits" : "");
    for (size_t i = 0; i < t->row_count; i++) {
        const struct plan_row *r = &t->rows[i];
        const uint64_t cells[] = {
            r->memory.params,  r->memory.grads,        r->memory.optimizer,  r->states,
            r->memory.padding, r->memory.gather_slots, r->memory.grad_slots, r->peak};
        print_name(r, to);
        for (size_t c = 0; c < sizeof cells / sizeof *cells; c++) {
            print_cell(cells[c], gib, to);
        }
        (void)fprintf(to, "%s\n", !t->request.device_memory ? "" : r->fits ? "  yes" : "  no");
    }
}

static void print_factor(double x, FILE *to) {
    if (isnan(x)) {
        (void)fprintf(to, "  %14s", "-");
    } else {
        (void)fprintf(to, "  %14.3f", x);
    }
}

static void print_traffic(const struct plan_table *t, bool gib, FILE *to) {
    (void)fprintf(to, "\nsent by a rank in a step, GB%s and 1e9 elements\n  %-12s",
                  gib ? " (GiB)" : "", "strategy");
    print_title("in machine", gib, to);
    print_title("between", gib, to);
    (void)fprintf(to, "  %11s  %11s  %14s  %14s\n", "in machine", "between", "bytes / ddp",
                  "elements / ddp");
    for (size_t i = 0; i < t->row_count; i++) {
        const struct plan_row *r = &t->rows[i];
        print_name(r, to);
        print_cell(traffic_bytes(&r->within), gib, to);
        print_cell(traffic_bytes(&r->between), gib, to);
        (void)fprintf(to, "  %11.3f  %11.3f", (double)traffic_elements(&r->within) / giga,
                      (double)traffic_elements(&r->between) / giga);
        print_factor(r->bytes_factor, to);
        print_factor(r->elements_factor, to);
        (void)fputc('\n', to);
    }
}

static void print_lines(const char *title, const struct plan_lines *l, FILE *to) {
    for (size_t i = 0; l && i < l->count; i++) {
        (void)fprintf(to, "%s%s %s\n", i ? "" : "\n", title, l->text[i]);
    }
}

void plan_print(const struct plan_table *t, const struct plan_lines *notes, bool gib, FILE *to) {
    print_model(t, to);
    print_request(t, gib, to);
    print_memory(t, gib, to);
    print_traffic(t, gib, to);
    print_lines("warning:", &t->warnings, to);
    print_lines("note:", notes, to);
    print_lines("advice:", &t->advice, to);
    (void)fputs(
        "\nNot counted: activations, the daemon's fixed part, page rounding, a GPU's driver "
        "and libraries.\n",
        to);
}
