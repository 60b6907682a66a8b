/* What a model needs and sends under each strategy, before anything is allocated.
 *
 * The numbers are layout_memory's and layout_traffic_by_group's, the functions that the allocator
 * and `status` use; nothing is computed a second way here. A table has one row a strategy. Machines
 * are counted by the shard size: S ranks each. What a flat group of several machines sends is split
 * by where the reader is: of the N - 1 readers S - 1 are on the sender's machine.
 *
 * Not counted, because the model does not say it: activations, the daemon's fixed part and the
 * rounding to pages (rounding and fixed are 0 here), driver and library memory of a GPU.
 */
#ifndef ZD_PLAN_H
#define ZD_PLAN_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

#include "layout/layout.h"

enum { PLAN_ROWS = 6, PLAN_LINES = 12, PLAN_LINE = 320 };

/* Sentences for people. */
struct plan_lines {
    size_t count;
    char text[PLAN_LINES][PLAN_LINE]; /* what does not fit is cut */
};
void plan_line(struct plan_lines *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct plan_request {
    const struct model *model; /* borrowed; passed model_check. Its strategy, unless NONE, is marked
                                  in the table; the others are computed beside it */
    unsigned world;
    unsigned shard_size; /* ranks of one machine; 0: all are on one */
    struct slots slots;
    uint64_t device_memory; /* bytes; 0: not known */
};

struct plan_row {
    enum strategy strategy;
    bool chosen;                    /* it is the model's */
    struct memory memory;           /* of rank 0; the others' lines differ by padding only */
    uint64_t states;                /* params + grads + optimizer */
    uint64_t peak;                  /* with padding and slots: the same on every rank */
    struct traffic within, between; /* sent in a step to ranks of the own machine, of others */
    double bytes_factor, elements_factor; /* against ddp; NAN: ddp sends nothing */
    bool fits;                            /* peak <= device_memory, or that is not known */
};

struct plan_table {
    struct plan_request request;
    uint64_t elements, trainable; /* Psi */
    size_t largest;               /* unit with the most elements */
    uint64_t largest_elements;
    size_t row_count;
    struct plan_row rows[PLAN_ROWS]; /* ddp, zero1, zero2, zero3; with S < N hybrid_zero2, _shard */
    struct plan_lines warnings, advice;
};

/* Fills the table. Errors are layout_init's: INVALID_ARGUMENT (world, shard size) and
 * RESOURCE_EXHAUSTED. Nothing to free. */
int plan_table_init(struct plan_table *t, const struct plan_request *r, struct err *e);

/* For people: decimal GB, with |gib| GiB beside it. */
void plan_print(const struct plan_table *t, const struct plan_lines *notes, bool gib, FILE *to);
/* Everything, in bytes; per rank too when there are at most LAYOUT_MAX_RANKS. Numbers over 2^53 are
 * texts, as JSON readers would round them. The caller frees it. */
cJSON *plan_json(const struct plan_table *t, const struct plan_lines *notes);

/* ---- models ---- */

/* Adds |layers| units of |params| elements together: whole shards of |world| ranks where possible,
 * the last one takes the rest, so that formulas hold without padding. Then call plan_model_finish.
 * INVALID_ARGUMENT: fewer elements than layers, or too many of either. */
int plan_model_invent(struct model *m, uint64_t params, uint64_t layers, unsigned world,
                      struct err *e);

/* Adds the units of a Hugging Face config.json, a model.safetensors.index.json (with the files that
 * it names beside it) or a .safetensors file (or its header alone). |notes| may get lines on what
 * was left out. NOT_FOUND, UNAVAILABLE (reading), INVALID_ARGUMENT (malformed), UNIMPLEMENTED (an
 * unknown architecture), RESOURCE_EXHAUSTED (limits); the text names the file. */
int plan_model_read(struct model *m, const char *path, struct plan_lines *notes, struct err *e);

/* Declares the plan "train" (each unit gathered forward and backward and reduced; a tied unit at
 * both of its places) and checks the model. model_check's errors. */
int plan_model_finish(struct model *m, struct err *e);

/* ---- words ---- */

/* "7e9", "7B", "124M", "1.5T": whole, from 1 to MODEL_MAX_ELEMENTS. INVALID_ARGUMENT. */
int plan_parse_count(const char *text, uint64_t *count, struct err *e);
/* "80GB", "80GiB", "500MB", "1.5TB", "80e9": bytes, from 1. INVALID_ARGUMENT. */
int plan_parse_bytes(const char *text, uint64_t *bytes, struct err *e);

enum { PLAN_NUMBER = 32 };
const char *plan_count_text(uint64_t n, char text[static PLAN_NUMBER]); /* "124,439,808" */

#endif
