/* The model's units as the store lays them out: borrowing one as fp32 values, whatever dtype the
 * store gathers in, and where its tensors are.
 */
#ifndef GPT_UNITS_H
#define GPT_UNITS_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "spec.h"
#include "store.h"

struct units {
    struct store *store;     /* borrowed */
    const struct kernels *k; /* casts */
    const struct gpt_shape *shape;
    size_t count;
    uint64_t (*offset)[GPT_UNIT_TENSORS]; /* owned, [count]: elements into the unit's flat range */
    uint64_t largest;                     /* elements of the largest unit */
    float *wide; /* owned, [largest]: the borrowed unit's values when the store gathers bf16 */
};

/* RESOURCE_EXHAUSTED. After an error units_free is allowed. */
int units_init(struct units *u, struct store *s, const struct kernels *k,
               const struct gpt_shape *shape, struct err *e);
void units_free(struct units *u);

/* Gathers; *params are the unit's flat range, valid until units_release, and one unit at a time. */
int units_borrow(struct units *u, size_t unit, const float **params, struct err *e);
int units_release(struct units *u, size_t unit, struct err *e);

/* A private fp32 copy of all units: an eval pass of the store, taken by every rank; |keep| is false
 * on ranks that only take part. */
struct copy {
    size_t count;
    float **params; /* owned, [count], each a unit's flat range; NULL when not kept */
};

int units_copy(struct units *u, bool keep, struct copy *c, struct err *e);
void copy_free(struct copy *c);

#endif
