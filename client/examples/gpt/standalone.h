/* Inside the stand-alone store: its memory and how it begins (standalone.c); what is done with it
 * is store_standalone.c's. */
#ifndef GPT_STANDALONE_H
#define GPT_STANDALONE_H

#include "kernels/kernels.h"
#include "kernels/scalars.h"
#include "layout/layout.h"
#include "store.h"

enum { CURSOR_MAX = 65536, GRADIENT_SLOTS = 2 };

struct unit_state {
    uint32_t leases;
    uint32_t reduced; /* slots summed in this try */
    int slot;         /* that is lent to it, from 1; 0: none */
    bool loaded;
};

struct standalone {
    struct store store;
    const struct kernels *k;
    struct model model;
    struct layout layout;
    uint64_t *start;              /* [units + 1]: a unit's one range in the next five */
    float *master, *m, *v, *kept; /* [layout.padded], units whole, in order */
    uint16_t *replica;            /* [layout.padded] when parameters are not fp32, else NULL */
    float *slots[GRADIENT_SLOTS]; /* each holds the largest unit */
    bool slot_used[GRADIENT_SLOTS];
    struct unit_state *units;
    struct segment segments[GPT_UNIT_TENSORS]; /* scratch */
    uint64_t step;                             /* the open try's; 0: loading */
    uint64_t attempt, t;                       /* t: updates made */
    struct scale_state scale;
    unsigned char cursor[CURSOR_MAX];
    size_t cursor_bytes;
};

/* Errors: model_check's, layout_init's; RESOURCE_EXHAUSTED: no memory. */
int standalone_new(const struct store_config *c, const struct store_ops *ops, struct standalone **a,
                   struct err *e);
void standalone_free(struct standalone *a);

/* The unit's tensors in a->segments: what is outside of them is padding, 0 and never written. */
size_t standalone_segments(struct standalone *a, size_t unit);

#endif
