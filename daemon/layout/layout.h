/* Where everything lies (design §4, §5): pure arithmetic on a model, a strategy and a world size.
 *
 * A unit's tensors follow each other in registration order, each at a multiple of 64 elements; the
 * unit is padded to a multiple of 64 * N, so that each of its N parts starts on 64 elements. Part r
 * is rank r's shard where a state is sharded, and the part that rank r reduces and takes the norm
 * of where it is replicated ("virtual shard"). Padding is zero and stays zero.
 *
 * Everything that memory and traffic depend on is computed here; the allocator carves what
 * layout_memory says and `zeroctl status` prints both.
 */
#ifndef ZD_LAYOUT_H
#define ZD_LAYOUT_H

#include "layout/model.h"

enum { LAYOUT_ALIGN = 64, LAYOUT_MAX_RANKS = 64 };

struct unit_place {
    uint64_t elements;    /* of its tensors, without padding */
    uint64_t padded;      /* length of the flat range, a multiple of 64 * N */
    uint64_t part;        /* padded / N */
    uint64_t flat_start;  /* first element in a buffer that holds all units whole, in order */
    uint64_t part_start;  /* first element in a buffer that holds one part of each unit */
    uint64_t model_start; /* index of its first element in the model, without padding */
};

struct tensor_place {
    uint64_t offset;      /* elements from the start of its unit's flat range */
    uint64_t model_start; /* index of its first element in the model, without padding */
};

/* One tensor's part of one range. */
struct segment {
    size_t tensor;          /* index in the model */
    uint64_t tensor_offset; /* elements into the tensor */
    uint64_t range_offset;  /* elements into the range */
    uint64_t count;
};

struct layout {
    const struct model *model; /* borrowed */
    unsigned world;            /* N */
    bool params_sharded, grads_sharded, optimizer_sharded;
    uint64_t elements;            /* of the model, without padding: Psi */
    uint64_t padded;              /* all units' padded lengths */
    uint64_t part;                /* padded / N */
    uint64_t largest;             /* padded length of the largest unit */
    struct unit_place *units;     /* owned, one a unit */
    struct tensor_place *tensors; /* owned, one a tensor */
};

/* |model| must have passed model_check. INVALID_ARGUMENT: world 0 or over LAYOUT_MAX_RANKS.
 * RESOURCE_EXHAUSTED: more elements than MODEL_MAX_ELEMENTS. */
int layout_init(struct layout *l, const struct model *m, unsigned world, struct err *e);
void layout_free(struct layout *l);

/* The segments of elements [from, to) of a unit's flat range, in order. Writes at most |cap| and
 * returns how many there are (call with cap 0 to size). Tensors of no element have no segment. */
size_t layout_segments(const struct layout *l, size_t unit, uint64_t from, uint64_t to,
                       struct segment *out, size_t cap);

/* Bytes of one rank, exact. Lines are of real elements; their padding is a line of its own. */
struct memory {
    uint64_t params;       /* replica (ddp, zero2) or bf16 shard (zero3 bf16); zero3 fp32: 0 */
    uint64_t grads;        /* kept gradients, fp32 */
    uint64_t optimizer;    /* fp32 master, m, v */
    uint64_t gather_slots; /* gather_slots * largest * bytes; 0 where the replica is lent */
    uint64_t grad_slots;
    uint64_t padding;  /* of params, grads and optimizer */
    uint64_t rounding; /* memfds are whole huge pages; filled in by the allocator */
    uint64_t fixed;    /* records, scratch tiles, control page; filled in by the allocator */
};

struct slots {
    uint32_t gather; /* number of gather slots, from 1; each holds the largest unit */
    uint32_t grad;   /* number of gradient slots, from 1 */
};

/* rounding and fixed are left 0. */
struct memory layout_memory(const struct layout *l, unsigned rank, const struct slots *s);

/* What one rank sends in a step: bytes of its memory that other ranks copy or sum (design §5). */
struct traffic {
    uint64_t all_gather_elements, all_gather_bytes;
    uint64_t reduce_scatter_elements, reduce_scatter_bytes;
    uint64_t all_reduce_elements, all_reduce_bytes;
};

/* The sum over the train plan, K micro-batches: zero3 gathers and zero2's re-gather after the
 * update are all_gather, zero2 and zero3 reduce_scatter every micro-batch, ddp's all_reduce (2 n
 * (N-1)/N) once. Padding included. */
struct traffic layout_traffic(const struct layout *l);

/* The same for ddp with this model, N and K, to print beside it. */
struct traffic layout_traffic_ddp(const struct layout *l);

#endif
