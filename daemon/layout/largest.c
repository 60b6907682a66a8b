/* The largest unit, and what it costs that there is one: whatever the strategy, a slot holds all of
 * it. */
#include <inttypes.h>
#include <stdio.h>

#include "layout/layout.h"
#include "base/saturate.h"

static uint64_t unit_elements(const struct layout *l, size_t unit) {
    const struct unit_place *p = &l->units[unit];
    uint64_t n = 0;
    for (size_t i = p->first; i < p->first + p->ranges; i++) {
        n += l->ranges[i].elements;
    }
    return n;
}

size_t layout_largest_unit(const struct layout *l, uint64_t *elements) {
    size_t largest = 0;
    *elements = unit_elements(l, 0);
    for (size_t u = 1; u < l->model->unit_count; u++) {
        const uint64_t n = unit_elements(l, u);
        if (n > *elements) {
            *elements = n;
            largest = u;
        }
    }
    return largest;
}

static const struct tensor *largest_tensor(const struct model *m, const struct unit *u) {
    const struct tensor *largest = NULL;
    for (size_t i = u->first; i < u->first + u->tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (tensor_has_place(t) && (!largest || t->elements > largest->elements)) {
            largest = t;
        }
    }
    return largest;
}

bool layout_lopsided(const struct layout *l, const struct slots *s, char *text, size_t size) {
    uint64_t elements;
    const size_t unit = layout_largest_unit(l, &elements);
    if (elements < SMALL_MODEL || elements <= l->elements / 2) {
        return false;
    }
    const struct unit *u = &l->model->units[unit];
    const struct memory m = layout_memory(l, 0, s);
    const struct tensor *t = largest_tensor(l->model, u);
    (void)snprintf(text, size,
                   "unit \"%.50s\" holds %.1f %% of the model, so slots of %.3f GB hold all of it "
                   "at once and sharding saves little: predicted peak of a rank %.3f GB. Make each "
                   "layer a unit of its own; its largest tensor of %zu is \"%.60s\", %" PRIu64
                   " elements",
                   u->name, 100 * (double)elements / (double)l->elements,
                   (double)plus(m.gather_slots, m.grad_slots) / 1e9, (double)memory_total(&m) / 1e9,
                   u->tensors, t->name, t->elements);
    return true;
}
