/* A synthetic trainer: a model of tensors of chosen sizes and kinds, whose gradients are a counter
 * hash of (seed, step, micro-batch, rank, unit, reduce, element) plus a part of the gathered
 * parameter, so that a wrong sum, a wrong gather or a wrong update changes param_hash. No training
 * happens; everything that libzerod offers does.
 *
 *   options.c  the command line      shape.c  the model of it      synth.c  attach, load, steps
 */
#ifndef ZD_TESTS_SYNTH_H
#define ZD_TESTS_SYNTH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "client/zerod.h"

enum { MAX_SIZES = 12, MAX_TENSORS = MAX_SIZES + 2, MAX_LAYERS = 16, MAX_UNITS = MAX_LAYERS + 2 };

struct options {
    uint64_t layers, steps, micro_batches, seed, overflow;
    const char *sizes_text, *dtype_text, *optimizer_text;
    uint64_t sizes[MAX_SIZES];
    size_t size_count;
    double lr, clip, clip_value, divisor, momentum, weight_decay;
    bool nesterov, frozen, mixed, ignored, tied, absent, multipliers, init, weights, help;
};

/* INVALID_ARGUMENT, OUT_OF_RANGE in words. */
int options_parse(struct options *o, int argc, char *const *argv, struct err *e);
void options_help(FILE *to);

/* The model in zerod's words; one of it. Units: [backbone, all frozen], layer0 ..., [expert, may be
 * absent]. With --tied the last layer ends with an alias of layer0's largest tensor. */
struct shape {
    struct zerod_model model;
    struct zerod_unit units[MAX_UNITS];
    struct zerod_tensor tensors[MAX_UNITS][MAX_TENSORS];
    uint64_t elements[MAX_UNITS][MAX_TENSORS];
    char names[MAX_UNITS][MAX_TENSORS][32], unit_names[MAX_UNITS][32];
    struct zerod_plan plan;
    struct zerod_op ops[3 * MAX_UNITS + 4];
    size_t count;                  /* units */
    int backbone, expert, tied_to; /* units; -1: none */
    size_t tied_tensor;            /* in tied_to, and the alias's ... */
    size_t alias;                  /* ... place in the last layer's unit */
    int last;                      /* that unit */
};

void shape_init(struct shape *s, const struct options *o);

/* Is anything of the unit reduced? */
bool shape_is_trained(const struct shape *s, size_t unit);
/* Does this rank leave the expert out of this micro-batch? */
bool shape_is_absent(const struct options *o, unsigned rank, uint64_t step, uint64_t micro_batch);

#endif
