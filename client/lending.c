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
        free(l->units[i].tensor_offsets);
    }
    free(l->units);
    free(l->open);
    free(l->gathers.ring);
    free(l->grants.ring);
    *l = (struct lending){0};
}

/* ---- pushes ---- */

static void pushes_clear(struct pushes *p) {
    p->first = 0;
    p->count = 0;
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
    uint64_t expected = p->taken + p->count;
    if (index != expected) {
        return err_set(e, ST_INTERNAL, "the daemon sent %s %" PRIu64 " where %" PRIu64 " was next",
                       what, index, expected);
    }
    if (p->count == LENDING_AHEAD_MAX) {
        return err_set(e, ST_INTERNAL, "the daemon is %d %ss ahead, the limit", LENDING_AHEAD_MAX,
                       what);
    }
    if (p->count == p->capacity) {
        pushes_grow(p);
    }
    p->ring[(p->first + p->count) % p->capacity] = (struct push){(uint32_t)unit, offset};
    p->count++;
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
    uint64_t bytes = l->units[unit].elements * l->param_element;
    int rc = check_range(offset, bytes, l->param_bytes, "a gather", e);
    if (rc) {
        return rc;
    }
    return pushes_add(&l->gathers, position, unit, offset, "gather", e);
}

int lending_granted(struct lending *l, uint64_t sequence, uint64_t offset, struct err *e) {
    /* The unit is known only when the trainer asks: lending_open checks the rest. */
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
    }
    l->eval = false;
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

int lending_may_open(const struct lending *l, uint32_t unit, bool loading, uint64_t micro_batches,
                     struct err *e) {
    const struct lent_unit *u = &l->units[unit];
    uint64_t next = l->grants.taken; /* the sequence that would be asked for */
    uint64_t all = loading ? l->unit_count : l->reduces * micro_batches;
    if (u->open) {
        return err_set(e, ST_FAILED_PRECONDITION, "unit '%s' has a gradient slot already", u->name);
    }
    if (next >= all) {
        return err_set(e, ST_FAILED_PRECONDITION, "unit '%s': all %" PRIu64 " %s of the try %s",
                       u->name, all, loading ? "loads" : "reduces", "have had their slots");
    }
    /* A plan reduces each unit once, so more reduces than micro-batches begun is twice in one. */
    uint64_t micro_batch = loading ? 0 : next / l->reduces;
    if (u->reduced > micro_batch) {
        return err_set(e, ST_ALREADY_EXISTS, "unit '%s' is %s already in %s %" PRIu64, u->name,
                       loading ? "loaded" : "reduced", loading ? "try" : "micro-batch",
                       micro_batch);
    }
    if (l->open_count >= l->grad_slots) {
        char list[ERR_TEXT / 2];
        lending_list(l, list, sizeof list);
        return err_set(e, ST_RESOURCE_EXHAUSTED,
                       "no gradient slot for unit '%s': this trainer "
                       "holds %s",
                       u->name, list);
    }
    return 0;
}

int lending_open(struct lending *l, uint32_t unit, struct err *e) {
    struct pushes *p = &l->grants;
    if (p->count == 0) {
        return 0;
    }
    struct lent_unit *u = &l->units[unit];
    uint64_t offset = p->ring[p->first].offset;
    int rc = check_range(offset, u->elements * sizeof(float), l->grad_bytes, "a gradient slot", e);
    if (rc) {
        return rc;
    }
    u->grad_offset = offset;
    u->open = true;
    l->open[(l->open_first + l->open_count) % l->unit_count] = unit;
    l->open_count++;
    pushes_drop_first(p);
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
    u->reduced++;
    l->open_first = (l->open_first + 1) % l->unit_count;
    l->open_count--;
    return 0;
}
