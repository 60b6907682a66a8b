/* Gather slots and leases of one try: gathers run strictly in the order of the plan, each into a
 * slot of its own, ahead of the trainer as far as slots are free; a slot belongs to its place in
 * the plan until the trainer gives it back. Where parameters are replicated a slot is only this
 * bookkeeping. Pure: no lock, no memory of parameters. */
#ifndef ZD_ENGINE_LEASES_H
#define ZD_ENGINE_LEASES_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/plan.h"

enum lease_state {
    LEASE_FREE,
    LEASE_FILLING, /* a gather into it runs */
    LEASE_DROPPED, /* one runs whose result nobody wants */
    LEASE_READY,
};

struct lease_slot {
    enum lease_state state;
    uint32_t position; /* number of the gather in the course */
    uint32_t unit;
};

struct leases {
    struct lease_slot *slots; /* owned */
    uint32_t slot_count;
    uint32_t ahead;              /* gathers at most that the trainer has not asked for yet */
    const struct course *course; /* that runs; borrowed; NULL: no try */
    bool eval;
    bool expected;                      /* the trainer says that it will ask */
    uint32_t launched, reported, asked; /* next number of the course each */
    uint32_t held;                      /* asked for and not released */
};

void leases_init(struct leases *l, uint32_t slot_count, uint32_t ahead);
void leases_free(struct leases *l);

/* Revokes all and starts |course| (NULL: none) at its beginning. */
void leases_start(struct leases *l, const struct course *course, bool eval);

/* Is there a gather to run next, and a slot for it? Not before the first is asked for or
 * announced: an eval pass finds its slots free, and a job that ends gathers nothing for a step that
 * never comes. leases_launch takes it. */
bool leases_next(const struct leases *l, uint32_t *unit);
void leases_expect(struct leases *l);     /* the first will be asked for */
uint32_t leases_launch(struct leases *l); /* the slot */
void leases_filled(struct leases *l, uint32_t slot);

/* The next finished gather that was not reported; leases_reported: it was. NULL: none. */
const struct lease_slot *leases_to_report(const struct leases *l);
void leases_reported(struct leases *l);

/* Only a release of the trainer's own could make room for what it asks for. */
bool leases_full(const struct leases *l);
/* The trainer leaves the course's next |n| gathers out: their slots are given back. */
void leases_skip(struct leases *l, uint32_t n);
/* The trainer asks for the course's next gather; |*ahead|: it is complete. Not when full. */
void leases_ask(struct leases *l, bool *ahead);
bool leases_release(struct leases *l, uint64_t unit); /* false: not held */

/* A unit that is held; false: none. */
bool leases_any(const struct leases *l, uint32_t *unit);
/* "a", "b" of what is held, cut to |cap|. */
void leases_list(const struct leases *l, char *text, size_t cap);

#endif
