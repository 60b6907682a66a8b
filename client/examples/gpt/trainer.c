/* See trainer.h. Everything that can be checked without a daemon (options, data file, initial
 * values' file, memory for activations) is checked before one is attached to. */
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train.h"

static unsigned rank_of_environment(void) {
    const char *text = getenv("RANK");
    return text && strlen(text) < 6 ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* Every tensor of the model is in the file, and no other. */
static int check_init(const struct safetensors *f, const struct gpt_shape *shape, struct err *e) {
    size_t count = 0;
    for (size_t u = 0; u < gpt_units(shape); u++) {
        struct gpt_unit unit;
        gpt_describe(shape, u, &unit);
        for (size_t i = 0; i < unit.count; i++) {
            const struct gpt_tensor *t = &unit.tensors[i];
            const struct safetensors_entry *entry = NULL;
            if (t->tied) {
                continue;
            }
            count++;
            const int rc = safetensors_find(f, t->name, t->dims, t->shape, &entry, e);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return count == f->count
               ? 0
               : err_set(e, ST_INVALID_ARGUMENT, "%s has %zu tensors, the model has %zu", f->path,
                         f->count, count);
}

static int prepare(struct train *t, const struct kernels *k, struct err *e) {
    const struct options *o = t->o;
    int rc = o->data ? text_load(&t->text, o->data, o->seq + 1, e) : 0;
    if (rc == 0 && o->init) {
        rc = safetensors_open(&t->init, o->init, e);
        rc = rc == 0 ? check_init(&t->init, &o->shape, e) : rc;
    }
    t->rows = rows_select(k->isa);
    if (rc == 0 && !t->rows) {
        rc = err_set(e, ST_INTERNAL, "no layers for instruction set %s", k->isa);
    }
    rc = rc == 0 ? gpt_init(&t->gpt, &o->shape, t->rows, e) : rc;
    return rc == 0 ? report_init(&t->report, o->steps, o->quiet, e) : rc;
}

static int open_store(struct train *t, store_open *open, struct err *e) {
    const struct options *o = t->o;
    const struct store_config config = {
        .shape = o->shape,
        .dtype = o->dtype,
        .micro_batches = (uint32_t)o->micro_batches,
        .optimizer = o->optimizer,
        .scaling = o->scaling,
        .initialised = o->init_by_daemon,
        .seed = o->seed,
    };
    return open(&config, &t->store, e);
}

static void fill_in(struct train *t) {
    const struct options *o = t->o;
    t->cursor =
        (struct cursor){.rank = t->store->rank, .seed = o->seed, .text_bytes = t->text.count};
    t->report.quiet = o->quiet || t->store->rank != 0;
    t->report.activation_bytes = t->gpt.arena_elements * sizeof(real);
    t->report.tokens_per_step =
        (double)t->store->world * (double)(o->batch * o->seq * o->micro_batches);
    for (size_t u = 0; u < gpt_units(&o->shape); u++) {
        struct gpt_unit unit;
        gpt_describe(&o->shape, u, &unit);
        for (size_t i = 0; i < unit.count; i++) {
            t->report.parameters += unit.tensors[i].tied ? 0 : unit.tensors[i].elements;
        }
    }
}

static int run(struct train *t, store_open *open, struct err *e) {
    const struct kernels *k = NULL;
    int rc = kernels_select(NULL, &k, e);
    rc = rc == 0 ? prepare(t, k, e) : rc;
    rc = rc == 0 ? open_store(t, open, e) : rc;
    if (rc == 0) {
        fill_in(t);
        rc = units_init(&t->units, t->store, k, &t->o->shape, e);
    }
    return rc == 0 ? train_run(t, e) : rc;
}

static void clean_up(struct train *t, bool finished) {
    if (t->store) {
        t->store->ops->close(t->store, finished);
    }
    units_free(&t->units);
    gpt_free(&t->gpt);
    text_free(&t->text);
    safetensors_close(&t->init);
    report_free(&t->report);
}

int trainer_main(int argc, char **argv, const char *name, store_open *shared) {
    struct options o;
    struct err e = {0};
    int rc = options_parse(&o, argc, argv, &e);
    if (rc < 0) {
        fprintf(stderr, "%s: %s\nTry '%s --help'.\n", name, e.text, name);
        return 2;
    }
    if (o.help) {
        options_help(stdout, name, shared != NULL);
        return 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* whole lines, also into a log */
    struct train t = {.o = &o, .init.fd = -1};
    rc = run(&t, o.standalone || !shared ? store_standalone_open : shared, &e);
    const unsigned rank = t.store ? t.store->rank : rank_of_environment();
    if (rc < 0) {
        fprintf(stderr, "%s[%u]: %s: %s\n", name, rank, status_name(e.code), e.text);
    }
    clean_up(&t, rc == 0);
    return rc < 0 ? 1 : 0;
}
