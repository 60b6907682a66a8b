#include "client/lending.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

enum { SMALLEST_RING = 16 };

void lending_init(struct lending *l, size_t unit_count) {
    *l = (struct lending){.unit_count = unit_count};
    l->units = mem_zeroed(unit_count, sizeof *l->units);
    l->open = mem_zeroed(unit_count, sizeof *l->open);
}

void lending_free(struct lending *l) {
    for (size_t i = 0; i < l->unit_count; i++) {
        free(l->units[i].tensors);
    }
    free(l->units);
    free(l->reduce_units);
    free(l->open);
    free(l->gathers.ring);
    free(l->grants.ring);
    *l = (struct lending){0};
}

/* ---- pushes ---- */

static void pushes_clear(struct pushes *p) {
    p->first = 0;
    p->count = 0;
    p->next = 0;
    p->taken = 0;
}

static void pushes_grow(struct pushes *p) {
    size_t capacity = p->capacity ? 2 * p->capacity : SMALLEST_RING;
    struct push *ring = mem_zeroed(capacity, sizeof *ring);
    for (size_t i = 0; i < p->count; i++) {
        ring[i] = p->ring[(p->first + i) % p->capacity];
    }
    free(p->ring);
    p->ring = ring;
    p->capacity = capacity;
    p->first = 0;
}

static int pushes_add(struct pushes *p, uint64_t index, uint64_t unit, uint64_t offset,
                      const char *what, struct err *e) {
    if (p->count == LENDING_AHEAD_MAX) {
        return err_set(e, ST_INTERNAL, "the daemon is %d %ss ahead, the limit", LENDING_AHEAD_MAX,
                       what);
    }
    if (p->count == p->capacity) {
        pushes_grow(p);
    }
    p->ring[(p->first + p->count) % p->capacity] = (struct push){(uint32_t)unit, offset};
    p->count++;
    p->next = index + 1;
    return 0;
}

static void pushes_drop_first(struct pushes *p) {
    p->first = (p->first + 1) % p->capacity;
    p->count--;
    p->taken++;
}

static int check_range(uint64_t offset, uint64_t bytes, uint64_t limit, const char *what,
                       struct err *e) {
    if (offset % LENDING_ALIGN) {
        return err_set(e, ST_INTERNAL,
                       "the daemon sent %s at offset %" PRIu64 ", no multiple of %d", what, offset,
                       LENDING_ALIGN);
    }
    if (offset > limit || bytes > limit - offset) {
        return err_set(e, ST_INTERNAL,
                       "the daemon sent %s at offset %" PRIu64 " with %" PRIu64
                       " bytes, outside its memory of %" PRIu64,
                       what, offset, bytes, limit);
    }
    return 0;
}

int lending_gathered(struct lending *l, bool eval, uint64_t position, uint64_t unit,
                     uint64_t offset, struct err *e) {
    if (eval != l->eval) { /* under way when the pass began or ended */
        return 0;
    }
    if (unit >= l->unit_count) {
        return err_set(e, ST_INTERNAL, "the daemon gathered unit %" PRIu64 " of %zu", unit,
                       l->unit_count);
    }
    if (position < l->gathers.next || (position > l->gathers.next && !l->may_leave_out)) {
        return err_set(e, ST_INTERNAL,
                       "the daemon sent gather %" PRIu64 " where %" PRIu64 " was next", position,
                       l->gathers.next);
    }
    int rc = check_range(offset, l->units[unit].param_bytes, l->param_bytes, "a gather", e);
    if (rc) {
        return rc;
    }
    return pushes_add(&l->gathers, position, unit, offset, "gather", e);
}

int lending_granted(struct lending *l, uint64_t sequence, uint64_t offset, struct err *e) {
    /* The unit is known only when the trainer asks: lending_open checks the rest. */
    if (sequence != l->grants.next) {
        return err_set(e, ST_INTERNAL,
                       "the daemon sent gradient slot %" PRIu64 " where %" PRIu64 " was next",
                       sequence, l->grants.next);
    }
    int rc = check_range(offset, 0, l->grad_bytes, "a gradient slot", e);
    return rc ? rc : pushes_add(&l->grants, sequence, 0, offset, "gradient slot", e);
}

/* ---- the try ---- */

static void drop_leases(struct lending *l) {
    for (size_t i = 0; i < l->unit_count; i++) {
        l->units[i].leases = 0;
    }
}

void lending_revoke(struct lending *l) {
    drop_leases(l);
    for (size_t i = 0; i < l->unit_count; i++) {
        l->units[i].open = false;
        l->units[i].reduced = 0;
        l->units[i].micro_batch = 0;
    }
    l->position = 0;
    l->eval = false;
    l->expected = false;
    pushes_clear(&l->gathers);
    pushes_clear(&l->grants);
    l->open_first = 0;
    l->open_count = 0;
}

void lending_eval(struct lending *l, bool eval) {
    drop_leases(l);
    pushes_clear(&l->gathers);
    l->eval = eval;
}

/* ---- parameters ---- */

bool lending_take(struct lending *l, uint32_t unit) {
    struct pushes *p = &l->gathers;
    while (p->count && p->ring[p->first].unit != unit &&
           l->units[p->ring[p->first].unit].may_be_absent) {
        pushes_drop_first(p);
    }
    if (p->count == 0 || p->ring[p->first].unit != unit) {
        return false;
    }
    l->units[unit].param_offset = p->ring[p->first].offset;
    l->units[unit].leases = 1;
    pushes_drop_first(p);
    return true;
}

int lending_release(struct lending *l, uint32_t unit, struct err *e) {
    struct lent_unit *u = &l->units[unit];
    if (u->leases == 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "release of unit '%s', which is not held", u->name);
    }
    return --u->leases == 0;
}

void lending_list(const struct lending *l, char *text, size_t cap) {
    size_t at = 0;
    (void)snprintf(text, cap, "nothing");
    for (size_t i = 0; i < l->unit_count && at < cap; i++) {
        const struct lent_unit *u = &l->units[i];
        if (!u->leases && !u->open) {
            continue;
        }
        at += (size_t)snprintf(text + at, cap - at, "%s'%s' (", at ? ", " : "", u->name);
        if (u->leases && at < cap) {
            at += (size_t)snprintf(text + at, cap - at, "%" PRIu32 " lease%s%s", u->leases,
                                   u->leases > 1 ? "s" : "", u->open ? ", " : ")");
        }
        if (u->open && at < cap) {
            at += (size_t)snprintf(text + at, cap - at, "a gradient slot)");
        }
    }
}

/* ---- gradients ---- */

static uint64_t all_reduces(const struct lending *l) {
    return l->reduces * l->micro_batches;
}

static const struct lent_unit *planned(const struct lending *l, uint64_t position) {
    return &l->units[l->reduce_units[position % l->reduces]];
}

/* Where |unit|'s next reduce is in the plan, counted over micro-batches: the next one, or behind
 * some that may be left out. The next one too where the plan has no such way: the daemon judges. */
static uint64_t next_reduce(const struct lending *l, uint32_t unit) {
    for (uint64_t at = l->position; at < all_reduces(l); at++) {
        const struct lent_unit *next = planned(l, at);
        if (next == &l->units[unit]) {
            return at;
        }
        if (!next->may_be_absent) {
            break;
        }
    }
    return l->position;
}

/* As often as |unit| may be reduced in the micro-batch that is under way? */
static bool is_complete(const struct lent_unit *u, uint64_t micro_batch) {
    return u->micro_batch == micro_batch && u->reduced >= u->contributions;
}

static int check_load(const struct lending *l, const struct lent_unit *u, struct err *e) {
    if (!u->initial_bytes) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "unit '%s' has nothing to load: the daemon makes its initial values",
                       u->name);
    }
    if (u->reduced) {
        return err_set(e, ST_ALREADY_EXISTS, "unit '%s' is loaded already", u->name);
    }
    if (l->open_count) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "unit '%s' is loaded after '%s', which is not handed back yet", u->name,
                       l->units[l->open[l->open_first]].name);
    }
    return 0;
}

static int check_reduce(const struct lending *l, const struct lent_unit *u, uint64_t next,
                        struct err *e) {
    if (!u->grad_bytes) {
        return err_set(e, ST_FAILED_PRECONDITION, "unit '%s' has no gradient: nothing is trained",
                       u->name);
    }
    if (next >= all_reduces(l)) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "unit '%s': all %" PRIu64 " reduces of the try have had their slots",
                       u->name, all_reduces(l));
    }
    if (is_complete(u, next / l->reduces)) {
        return err_set(e, ST_ALREADY_EXISTS, "unit '%s' is reduced already in micro-batch %" PRIu64,
                       u->name, next / l->reduces);
    }
    return 0;
}

int lending_may_open(const struct lending *l, uint32_t unit, bool loading, struct err *e) {
    const struct lent_unit *u = &l->units[unit];
    if (u->open) {
        return err_set(e, ST_FAILED_PRECONDITION, "unit '%s' has a gradient slot already", u->name);
    }
    int rc = loading ? check_load(l, u, e) : check_reduce(l, u, next_reduce(l, unit), e);
    if (rc || l->open_count < l->grad_slots) {
        return rc;
    }
    char list[ERR_TEXT / 2];
    lending_list(l, list, sizeof list);
    return err_set(e, ST_RESOURCE_EXHAUSTED,
                   "no gradient slot for unit '%s': this trainer "
                   "holds %s",
                   u->name, list);
}

static void count_reduce(struct lending *l, uint32_t unit, bool loading) {
    struct lent_unit *u = &l->units[unit];
    uint64_t at = loading ? 0 : next_reduce(l, unit);
    uint64_t micro_batch = loading || !l->reduces ? 0 : at / l->reduces;
    if (u->micro_batch != micro_batch) {
        u->micro_batch = micro_batch;
        u->reduced = 0;
    }
    u->reduced++;
    l->position = at + 1;
}

int lending_open(struct lending *l, uint32_t unit, bool loading, struct err *e) {
    struct pushes *p = &l->grants;
    if (p->count == 0) {
        return 0;
    }
    struct lent_unit *u = &l->units[unit];
    uint64_t offset = p->ring[p->first].offset;
    int rc = check_range(offset, loading ? u->initial_bytes : u->grad_bytes, l->grad_bytes,
                         "a gradient slot", e);
    if (rc) {
        return rc;
    }
    u->grad_offset = offset;
    u->open = true;
    l->open[(l->open_first + l->open_count) % l->unit_count] = unit;
    l->open_count++;
    pushes_drop_first(p);
    count_reduce(l, unit, loading);
    return 1;
}

int lending_close(struct lending *l, uint32_t unit, struct err *e) {
    struct lent_unit *u = &l->units[unit];
    if (!u->open) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "unit '%s' has no gradient slot: zerod_grad "
                       "comes first",
                       u->name);
    }
    uint32_t first = l->open[l->open_first];
    if (first != unit) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the slot of unit '%s' was taken before that of "
                       "'%s' and is handed back before it",
                       l->units[first].name, u->name);
    }
    u->open = false;
    l->open_first = (l->open_first + 1) % l->unit_count;
    l->open_count--;
    return 0;
}
