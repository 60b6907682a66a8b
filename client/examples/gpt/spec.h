/* What the model is made of: its shape, its units, their tensors and initial values. No buffers of
 * activations, no arithmetic of layers; the same for float and double.
 *
 * Units in order: "embed", "block0" .. "block<L-1>", "head". A unit's values lie in one flat range,
 * a tensor at an offset that the store says (store.h).
 */
#ifndef GPT_SPEC_H
#define GPT_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPT_NAME = 48, GPT_UNIT_TENSORS = 12, GPT_VOCABULARY = 256, GPT_MAX_LAYERS = 1024 };

struct gpt_shape {
    size_t layers, heads, channels; /* channels is a multiple of heads */
    size_t seq;                     /* tokens of a sequence, T */
    size_t batch;                   /* sequences at once, B */
    size_t vocab;                   /* V; the program uses bytes, 256 */
    bool tied;                      /* the head's matrix is embed.wte itself */
    bool recompute; /* blocks keep no activations: their forward runs again before backward */
};

/* Places of a unit's tensors in its list. */
enum { EMBED_WTE, EMBED_WPE };
enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, UP_W, UP_B, DOWN_W, DOWN_B };
enum { HEAD_LN_W, HEAD_LN_B, HEAD_W };

struct gpt_tensor {
    char name[GPT_NAME]; /* "block0.qkv.weight" */
    uint32_t dims;       /* 1 or 2 */
    uint64_t shape[2];
    uint64_t elements;
    float decay;    /* weight decay multiplier: 1 for matrices and embeddings, else 0 */
    float constant; /* initial values are constant + deviation * noise */
    float deviation;
    bool tied; /* has no values of its own: it is embed.wte */
};

struct gpt_unit {
    char name[GPT_NAME];
    size_t count;
    struct gpt_tensor tensors[GPT_UNIT_TENSORS];
};

static inline size_t gpt_units(const struct gpt_shape *s) {
    return s->layers + 2;
}

/* unit < gpt_units(s) */
void gpt_describe(const struct gpt_shape *s, size_t unit, struct gpt_unit *u);

/* Fills to[0, t->elements). |first|: index of the tensor's first element in the whole model, so
 * that the values do not depend on ranks. Noise: the sum of four uniform 16-bit numbers made to
 * mean 0 and variance 1; close to normal, and without libm, so that every machine gets the same
 * bits. */
void gpt_initial(const struct gpt_tensor *t, uint64_t seed, uint64_t first, float *to);

#endif
