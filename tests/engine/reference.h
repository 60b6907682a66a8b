/* What parameters must be: the whole model in plain arrays by element of the model, computed
 * without ranks' memory, slots, ranges or threads; and the models that the tests train. */
#ifndef TEST_ENGINE_REFERENCE_H
#define TEST_ENGINE_REFERENCE_H

#include "kernels/kernels.h"
#include "kernels/scalars.h"
#include "layout/layout.h"

enum shape {
    SHAPE_SMALL,  /* a few hundred elements, of awkward sizes: 0, 1, S-1, S, S+1 */
    SHAPE_LARGE,  /* the same with tensors of 100003 and 70001 */
    SHAPE_RICH,   /* all that a tensor may be: frozen, ignored, aliases, own dtypes, initialisers,
                     multipliers; a unit with two contributions, one that may be absent, one that is
                     all frozen */
    SHAPE_MADE,   /* every tensor has an initialiser */
    SHAPE_FROZEN, /* nothing is trained */
};

/* What a test varies in the model. Zeros: fp32 and AdamW. */
struct variant {
    enum shape shape;
    enum strategy strategy;
    uint32_t shard_size;
    enum dtype param, wire, kept;
    enum optimizer optimizer;
    double momentum; /* SGD's */
    double clip_value;
    uint32_t micro_batches;
};

struct reference {
    const struct layout *l;
    float *p, *s1, *s2, *g; /* by element of the model; owned */
    uint64_t t;
    bool (*absent)(uint64_t step, uint32_t batch, unsigned rank, uint32_t unit); /* NULL: never */
};

/* Plans "train": forward through all units, then backward; and "eval". */
void reference_model(struct model *m, unsigned ranks, const struct variant *v);

void reference_init(struct reference *r, const struct layout *l);
void reference_free(struct reference *r);

float reference_initial(uint64_t index);
/* A rank's gradient of an element of the model, as its trainer computes it. */
float reference_gradient(uint64_t step, uint32_t batch, uint32_t contribution, unsigned rank,
                         uint64_t index);
/* To bf16 and back. */
float reference_bf16(float x);

/* One step, committed. |clip| as in step_scalars; returns the scalars. */
struct step_scalars reference_step(struct reference *r, uint64_t step, double clip);
uint64_t reference_hash(const struct reference *r);

/* Is |params| the unit as it must be gathered, padding included? */
bool reference_equal(const struct reference *r, size_t unit, const void *params);

/* A unit of which a trainer leaves out some reduces. */
bool reference_absent(uint64_t step, uint32_t batch, unsigned rank, uint32_t unit);

#endif
