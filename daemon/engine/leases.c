#include "engine/leases.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"

void leases_init(struct leases *l, uint32_t slot_count, uint32_t ahead) {
    *l = (struct leases){.slot_count = slot_count, .ahead = ahead};
    l->slots = mem_zeroed(slot_count, sizeof *l->slots);
}

void leases_free(struct leases *l) {
    free(l->slots);
    *l = (struct leases){0};
}

static void drop(struct lease_slot *s) {
    bool runs = s->state == LEASE_FILLING || s->state == LEASE_DROPPED;
    s->state = runs ? LEASE_DROPPED : LEASE_FREE;
}

void leases_start(struct leases *l, const struct course *course, bool eval) {
    for (uint32_t i = 0; i < l->slot_count; i++) {
        drop(&l->slots[i]);
    }
    l->course = course;
    l->eval = eval;
    l->expected = false;
    l->launched = l->reported = l->asked = l->held = 0;
}

static struct lease_slot *free_slot(const struct leases *l) {
    for (uint32_t i = 0; i < l->slot_count; i++) {
        if (l->slots[i].state == LEASE_FREE) {
            return &l->slots[i];
        }
    }
    return NULL;
}

bool leases_next(const struct leases *l, uint32_t *unit) {
    if (!l->course || !(l->asked || l->expected) || l->launched == course_total(l->course) ||
        l->launched >= (uint64_t)l->asked + l->ahead || !free_slot(l)) {
        return false;
    }
    *unit = course_unit(l->course, l->launched);
    return true;
}

void leases_expect(struct leases *l) {
    l->expected = true;
}

uint32_t leases_launch(struct leases *l) {
    struct lease_slot *s = free_slot(l);
    assert(s);
    *s = (struct lease_slot){LEASE_FILLING, l->launched, course_unit(l->course, l->launched)};
    l->launched++;
    return (uint32_t)(s - l->slots);
}

void leases_filled(struct leases *l, uint32_t slot) {
    struct lease_slot *s = &l->slots[slot];
    assert(s->state == LEASE_FILLING || s->state == LEASE_DROPPED);
    s->state = s->state == LEASE_FILLING ? LEASE_READY : LEASE_FREE;
}

static struct lease_slot *ready_at(const struct leases *l, uint32_t position) {
    for (uint32_t i = 0; i < l->slot_count; i++) {
        if (l->slots[i].state == LEASE_READY && l->slots[i].position == position) {
            return &l->slots[i];
        }
    }
    return NULL;
}

const struct lease_slot *leases_to_report(const struct leases *l) {
    return l->reported < l->launched ? ready_at(l, l->reported) : NULL;
}

void leases_reported(struct leases *l) {
    l->reported++;
}

bool leases_full(const struct leases *l) {
    return l->held == l->slot_count;
}

void leases_skip(struct leases *l, uint32_t n) {
    uint32_t next = l->asked + n;
    for (uint32_t i = 0; i < l->slot_count; i++) {
        struct lease_slot *s = &l->slots[i];
        if (s->state != LEASE_FREE && s->position >= l->asked && s->position < next) {
            drop(s);
        }
    }
    l->asked = next;
    l->launched = l->launched < next ? next : l->launched;
    l->reported = l->reported < next ? next : l->reported;
}

void leases_ask(struct leases *l, bool *ahead) {
    assert(!leases_full(l));
    *ahead = l->asked < l->launched && ready_at(l, l->asked);
    l->asked++;
    l->held++;
}

/* Is the slot lent to the trainer, and known to it? */
static bool is_lent(const struct leases *l, const struct lease_slot *s) {
    return s->state == LEASE_READY && s->position < l->asked && s->position < l->reported;
}

bool leases_release(struct leases *l, uint64_t unit) {
    struct lease_slot *oldest = NULL;
    for (uint32_t i = 0; i < l->slot_count; i++) {
        struct lease_slot *s = &l->slots[i];
        if (is_lent(l, s) && s->unit == unit && !(oldest && oldest->position < s->position)) {
            oldest = s;
        }
    }
    if (!oldest) {
        return false;
    }
    oldest->state = LEASE_FREE;
    l->held--;
    return true;
}

bool leases_any(const struct leases *l, uint32_t *unit) {
    for (uint32_t i = 0; i < l->slot_count && l->held; i++) {
        if (l->slots[i].state != LEASE_FREE && l->slots[i].state != LEASE_DROPPED &&
            l->slots[i].position < l->asked) {
            *unit = l->slots[i].unit;
            return true;
        }
    }
    if (l->held) { /* asked for, and not begun */
        *unit = course_unit(l->course, l->launched);
    }
    return l->held;
}

void leases_list(const struct leases *l, char *text, size_t cap) {
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < l->slot_count && at < cap; i++) {
        if (l->slots[i].state != LEASE_FREE && l->slots[i].position < l->asked) {
            const char *name = l->course->model->units[l->slots[i].unit].name;
            at += (size_t)snprintf(text + at, cap - at, "%s\"%s\"", at ? ", " : "", name);
        }
    }
}
