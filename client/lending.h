/* What the daemon has lent to this trainer in the open try: gathered units (leases), gradient
 * slots, and what it pushed ahead of being asked. Plain bookkeeping: no I/O, no clock, no pointers
 * into mapped memory; offsets are checked here, before anyone turns them into addresses.
 *
 * The daemon pushes in plan order. A gather is known by its position in the running plan (counted
 * over micro-batches), a grant by its number: the n-th is for this trainer's n-th reduce (or load)
 * of the try. A trainer may leave out units that may be absent; what was gathered for them is
 * dropped when it goes on. */
#ifndef ZD_CLIENT_LENDING_H
#define ZD_CLIENT_LENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "layout/model.h"

enum {
    LENDING_ALIGN = 64,          /* bytes: of every offset that the daemon gives */
    LENDING_AHEAD_MAX = 1 << 20, /* pushes of one kind that were not asked for yet */
};

struct push {
    uint32_t unit; /* of a gather; 0 in a grant */
    uint64_t offset;
};

/* A ring of pushes that were not taken yet. */
struct pushes {
    struct push *ring; /* owned; grows to the most that ever waited */
    size_t capacity, first, count;
    uint64_t next;  /* least position or number of the next push in this try */
    uint64_t taken; /* or dropped, in this try */
};

/* Bytes from the start of what is lent; UINT64_MAX: no place there. */
struct lent_tensor {
    uint64_t param, grad, initial;
};

struct lent_unit {
    char name[MODEL_NAME];
    uint64_t param_bytes, grad_bytes, initial_bytes; /* padding included; 0: none */
    size_t tensor_count;
    struct lent_tensor *tensors; /* owned */
    uint32_t contributions;      /* reduces in a micro-batch */
    bool may_be_absent;          /* its reduces may be left out */
    uint32_t leases;
    uint64_t param_offset; /* bytes; while leases > 0 */
    bool open;             /* a gradient slot is lent */
    uint64_t grad_offset;  /* bytes; while open */
    uint64_t micro_batch;  /* that ... */
    uint32_t reduced;      /* ... so many reduces (loads) were asked for in */
};

struct lending {
    size_t unit_count;
    struct lent_unit *units;          /* owned */
    uint64_t param_bytes, grad_bytes; /* of the mapped memory */
    uint32_t grad_slots;
    uint64_t micro_batches;
    uint64_t reduces;       /* in the train plan, of one micro-batch */
    uint32_t *reduce_units; /* their units, in order; owned */
    bool has_eval;          /* a plan "eval" is registered */
    bool may_leave_out;     /* some unit may be absent */

    bool expected;                 /* the try's first gather is announced */
    bool eval;                     /* an eval pass runs */
    struct pushes gathers, grants; /* gathers: of the plan that runs */
    uint64_t position;             /* reduces of the plan that had their slot or were left out */
    uint32_t *open; /* ring of units with open slots, in the order of their grants; owned */
    size_t open_first, open_count;
};

/* Takes over the names of |unit_count| units; sizes are set later. */
void lending_init(struct lending *l, size_t unit_count);
void lending_free(struct lending *l);

/* Revokes all: a new try, or the end of one. Counts start at 0. */
void lending_revoke(struct lending *l);
/* Begins or ends an eval pass: no lease survives it and what was gathered ahead is dropped; the
 * daemon gathers along the plan that then runs from its start. */
void lending_eval(struct lending *l, bool eval);

/* The daemon's pushes; a gather of the plan that does not run is ignored. 0 or -ST_INTERNAL: out of
 * order, no such unit, misaligned, outside the memory; the text names value and limit. */
int lending_gathered(struct lending *l, bool eval, uint64_t position, uint64_t unit,
                     uint64_t offset, struct err *e);
int lending_granted(struct lending *l, uint64_t sequence, uint64_t offset, struct err *e);

/* True and a lease when the running plan's next gather, or the next behind those that may be left
 * out, is here and is of |unit|. */
bool lending_take(struct lending *l, uint32_t unit);

/* Gives one lease back. 1: it was the last one; 0; -ST_INVALID_ARGUMENT: not held. */
int lending_release(struct lending *l, uint32_t unit, struct err *e);

/* Whether |unit| may ask for a gradient slot. 0; -ST_FAILED_PRECONDITION: nothing of it is trained
 * (loaded), one is open, or all reduces of the try are done; -ST_ALREADY_EXISTS: reduced as often
 * as it may be in this micro-batch; -ST_RESOURCE_EXHAUSTED: the memory holds no more slots than
 * this trainer has open. |loading|: loads, each unit once and one at a time. */
int lending_may_open(const struct lending *l, uint32_t unit, bool loading, struct err *e);
/* 1: the slot is lent; 0: no grant is here yet; -ST_INTERNAL: it does not hold the unit. */
int lending_open(struct lending *l, uint32_t unit, bool loading, struct err *e);
/* Gives the unit's slot back. 0 or -ST_FAILED_PRECONDITION: not open, or another one comes first.
 */
int lending_close(struct lending *l, uint32_t unit, struct err *e);

/* "units 'a', 'b' (2 leases), ..." of what this trainer holds, or "nothing"; cut to |cap|. */
void lending_list(const struct lending *l, char *text, size_t cap);

#endif
