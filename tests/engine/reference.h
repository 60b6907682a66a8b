/* What parameters must be: the whole model in plain arrays, one element after another. */
#ifndef TEST_ENGINE_REFERENCE_H
#define TEST_ENGINE_REFERENCE_H

#include "kernels/kernels.h"
#include "kernels/scalars.h"
#include "layout/layout.h"

struct reference {
    const struct layout *l;
    float *p, *m, *v, *g; /* layout.padded each, at flat_start */
    uint64_t t;
};

/* A small or a larger model with awkward sizes: 0, 1, S-1, S, S+1, 100003. |eval|: a plan of that
 * name. */
void reference_model(struct model *m, unsigned ranks, bool small, enum strategy s, enum dtype param,
                     uint32_t micro_batches);

void reference_init(struct reference *r, const struct layout *l);
void reference_free(struct reference *r);

float reference_initial(uint64_t index);
/* A rank's gradient of an element of the model. */
float reference_gradient(uint64_t step, uint32_t batch, unsigned rank, uint64_t index);

/* Walks a unit's flat range: the element's index in the model, or UINT64_MAX for padding. Fills
 * index[0, padded). */
void reference_indices(const struct layout *l, size_t unit, uint64_t *index);

/* One step, committed. |clip| as in step_scalars; returns the scalars. */
struct step_scalars reference_step(struct reference *r, uint64_t step, double clip);
uint64_t reference_hash(const struct reference *r);

/* fp32 parameters as the param dtype holds them. */
bool reference_equal(const struct reference *r, size_t unit, const void *params);

#endif
