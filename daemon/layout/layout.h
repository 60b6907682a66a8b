/* Where everything lies (design §4, §5): pure arithmetic on a model, a strategy and a world size.
 *
 * A unit's tensors that have a place are laid out in ranges: one for the trainable tensors of each
 * dtype and one for the frozen ones of each dtype; within a range tensors follow each other in
 * registration order, each at a multiple of 64 elements, and the range is padded to a multiple of
 * 64 * N. Padding is zero and stays zero. A gathered unit is its ranges one after another, each at
 * a multiple of 64 bytes; a unit's gradient slot is its trainable ranges one after another.
 *
 * One engine serves every strategy by two groups of ranks and three placements:
 *
 *   inner: gradient slots are summed here, every micro-batch, into kept gradients of 1/|inner|
 *   outer: kept gradients are summed here once, after the last micro-batch
 *
 *                 inner  outer  kept   updated (master, states)  gathered from  re-gathered from
 *   ddp               1      N  whole  whole                     own replica    -
 *   zero1             1      N  whole  1/N                       own replica    outer
 *   zero2             N      1  1/N    1/N                       own replica    inner
 *   zero3             N      1  1/N    1/N                       inner          -
 *   hybrid_shard      S      R  1/S    1/S, the same on R        inner          -
 *   hybrid_zero2      S      R  1/S    1/S, the same on R        own replica    inner
 *
 * (zero1's outer sum is a reduce-scatter, the others' an all-reduce.) The inner group of rank r is
 * the S ranks from r - r % S on (one machine), the outer group is every S-th rank. So ddp = zero1's
 * gradients = hybrid with S = 1, and so on: degenerate groups are like any other.
 *
 * A rank's *piece* is 1/N of each range: within its kept gradients, the part that it sums in the
 * outer group and takes the norm of ("virtual shard"). Every element of the model is in one rank's
 * piece.
 *
 * Everything that memory and traffic depend on is computed here; the allocator carves what
 * layout_memory says and `zeroctl plan` and `status` print it.
 */
#ifndef ZD_LAYOUT_H
#define ZD_LAYOUT_H

#include "layout/model.h"

enum { LAYOUT_ALIGN = 64, LAYOUT_MAX_RANKS = 64, LAYOUT_PLAN_RANKS = 1048576 };

struct range {
    size_t unit;
    enum dtype dtype; /* when gathered */
    bool frozen;
    uint64_t elements;     /* of its tensors, without padding */
    uint64_t padded;       /* a multiple of 64 * N */
    uint64_t param_offset; /* bytes from the start of the unit's gathered parameters */
    uint64_t grad_offset;  /* elements from the start of the unit's gradient slot; 0 when frozen */
    uint64_t load_offset;  /* elements from the start of the unit's initial values */
};

struct unit_place {
    size_t first, ranges;   /* layout->ranges[first .. first + ranges); trainable ones first */
    size_t trainable;       /* how many of them are trainable */
    uint64_t param_bytes;   /* of the gathered unit, a multiple of 64 */
    uint64_t grad_elements; /* of its gradient slot; 0: it has none */
    uint64_t load_elements; /* its ranges' padded lengths: where fp32 initial values are written */
    uint64_t model_start;   /* index of its first element in the model, without padding */
};

struct tensor_place {
    size_t range;    /* in layout->ranges; SIZE_MAX: ignored. An alias has its tensor's place */
    uint64_t offset; /* elements from the start of the range */
    uint64_t model_start; /* index of its first element in the model, without padding */
};

/* One tensor's part of one stretch of a range. */
struct segment {
    size_t tensor;          /* index in the model; never an alias */
    uint64_t tensor_offset; /* elements into the tensor */
    uint64_t range_offset;  /* elements from the stretch's start */
    uint64_t count;
};

/* Members first, first + stride, ... */
struct group {
    unsigned first, stride, count;
};

struct layout {
    const struct model *model;    /* borrowed */
    unsigned world, inner, outer; /* sizes: N = inner * outer */
    bool params_sharded;          /* gathered from the inner group; else every rank has a replica */
    bool optimizer_split;         /* zero1: a rank updates its piece only, not all that it keeps */
    uint64_t elements;  /* that have a place, without padding: Psi, frozen ones included */
    uint64_t trainable; /* of them */
    uint64_t padded;    /* all ranges' padded lengths */
    uint64_t largest_param_bytes, largest_grad_elements; /* of the largest units */
    uint64_t largest_load_bytes; /* fp32 values of the largest unit the trainer loads; 0: none */
    size_t range_count;
    struct range *ranges;         /* owned, grouped by unit */
    struct unit_place *units;     /* owned, one a unit */
    struct tensor_place *tensors; /* owned, one a tensor */
};

/* |model| must have passed model_check. INVALID_ARGUMENT: world 0 or over LAYOUT_PLAN_RANKS
 * (daemons take LAYOUT_MAX_RANKS); a shard size that does not divide the world (both named).
 * RESOURCE_EXHAUSTED: more elements than MODEL_MAX_ELEMENTS. */
int layout_init(struct layout *l, const struct model *m, unsigned world, struct err *e);
void layout_free(struct layout *l);

struct group layout_inner(const struct layout *l, unsigned rank);
struct group layout_outer(const struct layout *l, unsigned rank);
unsigned group_index(const struct group *g, unsigned rank); /* rank must be a member */
unsigned group_at(const struct group *g, unsigned index);

/* Stretches of a range, in elements from its start. Frozen ranges have no gradients and no states:
 * kept and updated are empty there; piece and held are not. */
struct stretch {
    uint64_t from, count;
};
struct stretch layout_kept(const struct layout *l, size_t range, unsigned rank); /* gradients */
struct stretch layout_updated(const struct layout *l, size_t range,
                              unsigned rank); /* master, states */
struct stretch layout_piece(const struct layout *l, size_t range, unsigned rank);
/* What of the range's parameters the rank holds: its share of the inner group when params_sharded,
 * else the whole replica. */
struct stretch layout_held(const struct layout *l, size_t range, unsigned rank);

/* The part of |tensor| (an index in the model) that lies in a stretch of a range; false: none. */
bool layout_segment_of(const struct layout *l, size_t range, struct stretch s, size_t tensor,
                       struct segment *out);

/* The segments of elements [from, from + count) of a range, in order. Writes at most |cap| and
 * returns how many there are (call with cap 0 to size). Tensors of no element have no segment. */
size_t layout_segments(const struct layout *l, size_t range, struct stretch s, struct segment *out,
                       size_t cap);

/* Bytes of one rank, exact. Lines are of real elements; their padding is a line of its own. */
struct memory {
    uint64_t params; /* replica, or shard; a sharded trainable fp32 range: 0, its master is read */
    uint64_t grads;  /* kept gradients, kept_dtype */
    uint64_t optimizer;    /* fp32 master and optimizer_states; of trainable ranges */
    uint64_t gather_slots; /* gather_slots * largest unit's bytes; 0 where the replica is lent */
    uint64_t grad_slots;   /* grad_slots * largest unit's gradients, wire_dtype; at least
                              largest_load_bytes: first values go that way, one unit at a time */
    uint64_t padding;      /* of params, grads and optimizer */
    uint64_t rounding;     /* memfds are whole huge pages; filled in by the allocator */
    uint64_t fixed;        /* records, scratch tiles, control page; filled in by the allocator */
};

struct slots {
    uint32_t gather; /* number of gather slots, from 1; each holds the largest unit */
    uint32_t grad;   /* number of gradient slots, from 1 */
};

/* rounding and fixed are left 0. */
struct memory layout_memory(const struct layout *l, unsigned rank, const struct slots *s);

/* All lines together. */
uint64_t memory_total(const struct memory *m);
void memory_add(struct memory *to, const struct memory *m);

/* The unit with the most elements (without padding), and how many they are. */
size_t layout_largest_unit(const struct layout *l, uint64_t *elements);

/* Does one unit hold most of the model (nobody told how to cut it into units)? Then one sentence
 * for a person: unit, share, slots, predicted peak of rank 0, what to split. Models of less than
 * SMALL_MODEL elements may be as they like. */
enum { SMALL_MODEL = 10000000 };
bool layout_lopsided(const struct layout *l, const struct slots *s, char *text, size_t size);

/* What one rank sends in a step: bytes of its memory that other ranks copy or sum (design §5). */
struct traffic {
    uint64_t all_gather_elements, all_gather_bytes;
    uint64_t reduce_scatter_elements, reduce_scatter_bytes;
    uint64_t all_reduce_elements, all_reduce_bytes;
};

void traffic_add(struct traffic *to, const struct traffic *t);
/* Of counts that only grow: |before| was read earlier. */
struct traffic traffic_since(const struct traffic *now, const struct traffic *before);
/* All kinds together. */
uint64_t traffic_bytes(const struct traffic *t);
uint64_t traffic_elements(const struct traffic *t);

/* The sum over the train plan, K micro-batches, padding included; every unit present. By group: [0]
 * within the inner group, [1] in the outer group. all_gather: gathers of sharded parameters, and
 * re-gathers (each trainable range once a step); reduce_scatter: slots into kept, and zero1's outer
 * sum; all_reduce: the others' outer sum, 2 * stretch * (count - 1) / count. */
void layout_traffic_by_group(const struct layout *l, struct traffic by[2]);
struct traffic layout_traffic(const struct layout *l); /* both groups together */

/* The same for ddp with this model, N and K, to print beside it. */
struct traffic layout_traffic_ddp(const struct layout *l);

#endif
