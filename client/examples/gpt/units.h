/* The model's units as the store lays them out: borrowing one as fp32 values, whatever dtype the
 * store gathers in, and where its tensors are.
 */
#ifndef GPT_UNITS_H
#define GPT_UNITS_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "spec.h"
#include "store.h"

/* Elements into each of a unit's parts. */
struct offsets {
    uint64_t at[STORE_PARTS][GPT_UNIT_TENSORS];
};

struct units {
    struct store *store;     /* borrowed */
    const struct kernels *k; /* casts */
    const struct gpt_shape *shape;
    size_t count;
    struct offsets *offset; /* owned, [count] */
    /* Owned; values of borrowed units when the store gathers 2-byte elements: of any unit, and of a
     * tied model's embed, which is borrowed beside the head. */
    float *wide, *wide_embed;
};

/* RESOURCE_EXHAUSTED. After an error units_free is allowed. */
int units_init(struct units *u, struct store *s, const struct kernels *k,
               const struct gpt_shape *shape, struct err *e);
void units_free(struct units *u);

/* Gathers; *params are the unit's values, valid until units_release. One unit at a time, and a tied
 * model's embed beside the head. */
int units_borrow(struct units *u, size_t unit, const float **params, struct err *e);
int units_release(struct units *u, size_t unit, struct err *e);

/* A private fp32 copy of all units: an eval pass of the store, taken by every rank; |keep| is false
 * on ranks that only take part. */
struct copy {
    size_t count;
    float **params; /* owned, [count], each a unit's values; NULL when not kept */
};

int units_copy(struct units *u, bool keep, struct copy *c, struct err *e);
void copy_free(struct copy *c);

#endif
