/* The model's arithmetic: one unit's forward or backward pass at a time, on that unit's flat range.
 *
 * Activations live here, allocated once. A micro-batch is: fill tokens and targets; forward of
 * every unit in order (the head's leaves the loss); backward of every unit in reverse order.
 * Parameters are borrowed for one call only, gradients are written whole (no tensor's element is
 * left out; padding is left alone). With |recompute| all blocks share one set of activations and
 * only their inputs are kept; a block's backward runs its forward again first. Compiles for float
 * and double.
 */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "rows.h"
#include "spec.h"

/* What one block keeps for its backward pass; n = batch * seq, c = channels. */
struct gpt_block {
    real *mean1, *rstd1; /* [n] */
    real *ln1;           /* [n,c] */
    real *qkv;           /* [n,3c] */
    real *prob;          /* [batch,heads,seq,seq] */
    real *att;           /* [n,c] */
    real *mid;           /* [n,c] residual stream after attention */
    real *mean2, *rstd2; /* [n] */
    real *ln2;           /* [n,c] */
    real *pre;           /* [n,4c] before GELU */
    real *act;           /* [n,4c] after GELU */
};

struct gpt {
    struct gpt_shape shape;
    const struct rows *rows;
    uint8_t *tokens, *targets; /* [n], the caller fills them in */
    double loss;               /* mean over the n tokens, after the head's forward */
    real gradient_scale;       /* of the loss, in backward: 1 / micro-batches */

    real **residual;          /* layers + 1 of [n,c]: input of block i, then of the head */
    struct gpt_block *blocks; /* layers */
    real *mean, *rstd, *ln;   /* head: [n], [n], [n,c] */
    real *logits;             /* [n,vocab]; after the forward pass, their gradient */

    real *d_residual; /* [n,c] gradient of the residual stream */
    real *d_channels; /* [n,c] */
    real *d_wide;     /* [n,4c] */
    real *d_qkv;      /* [n,3c] */
    real *d_tile;     /* [seq,seq] */
    const real *tied; /* of a tied model, while its head runs: embed.wte ... */
    real *d_tied;     /* ... and, in backward, its gradient */
    real *arena;      /* owned: all of the above but these two, 64-byte aligned */
    size_t arena_elements;
};

/* RESOURCE_EXHAUSTED: no memory, or more than a size_t counts. INVALID_ARGUMENT: sizes that do not
 * fit (channels not a multiple of heads, a dimension of 0, batch * seq over 2^24). */
int gpt_init(struct gpt *g, const struct gpt_shape *s, const struct rows *rows, struct err *e);
void gpt_free(struct gpt *g);

/* |params|: the unit's values; tensor i of gpt_describe lies at params + offset[i]. */
void gpt_forward(struct gpt *g, size_t unit, const real *params, const uint64_t *offset);

/* The head without the loss: logits[n,vocab] stay logits. For sampling. */
void gpt_forward_logits(struct gpt *g, const real *params, const uint64_t *offset);

/* Tensor i's gradient goes to grad + to[i]; every tensor's elements are overwritten. */
void gpt_backward(struct gpt *g, size_t unit, const real *params, const uint64_t *offset,
                  real *grad, const uint64_t *to);

#endif
