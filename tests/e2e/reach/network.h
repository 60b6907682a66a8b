/* The tiny network of reach_trainer, numpy_trainer.py's twin: y = W2 relu(W1 x + b1) + b2 on
 * squared error. All sums are in double and in the order written here, gradients are rounded to
 * fp32 once, so that any language gets the same bits. */
#ifndef ZD_TESTS_REACH_NETWORK_H
#define ZD_TESTS_REACH_NETWORK_H

#include <stdint.h>

enum { IN = 4, HIDDEN = 8, OUT = 3, BATCH = 5, FIRST = 0, SECOND = 1, UNITS = 2 };

struct batch {
    double x[BATCH][IN], target[BATCH][OUT];
};

/* A unit: weight of rows x columns, bias of rows. */
struct layer {
    double weight[HIDDEN][HIDDEN], bias[HIDDEN];
};

void make_batch(uint64_t step, unsigned rank, struct batch *b);
/* The weights that training starts with. */
void make_layer(uint32_t unit, struct layer *l);

/* From and to a unit's two tensors, row major. */
void read_layer(uint32_t unit, const float *weight, const float *bias, struct layer *l);
void write_layer(uint32_t unit, const struct layer *l, float *weight, float *bias);

/* Writes the gradients of a batch; returns its loss. */
double network(const struct layer l[UNITS], const struct batch *b, struct layer gradient[UNITS]);

#endif
