/* Gradient slots. Reduces are numbered as the plan has them, on every rank alike; a trainer may
 * leave some out (absent_ok), so its own reduces, and the slots that it is granted for them, have
 * numbers of their own: call n uses slot n mod grad_slots, and |sequences| says of which reduce it
 * is. A tag tells the peers, in a ring by sequence, in which slot a reduce's gradients are, or that
 * there are none. */
#include "engine/inner.h"

uint32_t slots_total(const struct engine *e) {
    return e->t.fence.step == 0 ? e->load_count : course_total(&e->reduces);
}

/* Has everyone who reads the |sequence|th reduce of this try done so? */
static bool is_read(struct engine *e, uint32_t sequence) {
    return sequence < e->t.done && e->comm->ops->is_read(e->comm, &e->t.fence, sequence);
}

/* Is the slot of the next grant free? Initial values have one slot in all. */
static bool is_free(struct engine *e) {
    const struct attempt *t = &e->t;
    uint32_t slots = e->o.slots.grad;
    if (t->fence.step == 0) {
        return t->granted == t->done;
    }
    return t->granted < slots ||
           (t->granted - slots < t->calls && is_read(e, e->sequences[t->granted % slots]));
}

bool slots_grant(struct engine *e) {
    struct attempt *t = &e->t;
    uint32_t before = t->granted;
    while (t->open && e->attached && t->granted - t->calls < slots_total(e) - t->asked &&
           is_free(e)) {
        t->granted++;
    }
    return t->granted != before;
}

struct comm_tag slots_tag(const struct engine *e, uint32_t sequence, uint32_t call) {
    uint32_t unit = course_unit(&e->reduces, sequence), slot = call % e->o.slots.grad;
    bool present = call < e->t.calls && e->sequences[slot] == sequence;
    return (struct comm_tag){.fence = e->t.fence,
                             .attachment = e->attachment,
                             .sequence = sequence,
                             .unit = unit,
                             .elements = e->l->units[unit].grad_elements,
                             .slot = present ? slot : COMM_ABSENT};
}

void slots_publish(struct engine *e) {
    struct attempt *t = &e->t;
    uint32_t slots = e->o.slots.grad;
    while (t->open && t->fence.step && t->published < t->asked &&
           (t->published < slots || is_read(e, t->published - slots))) {
        const struct comm_tag tag = slots_tag(e, t->published, t->tagged);
        e->comm->ops->put_tag(e->comm, &tag);
        t->tagged += tag.slot != COMM_ABSENT;
        t->published++;
    }
}

void slots_skip(struct engine *e, uint32_t n) {
    e->t.asked += n;
    slots_publish(e);
}

void slots_say(struct engine *e) {
    struct attempt *t = &e->t;
    e->sequences[t->calls % e->o.slots.grad] = t->asked;
    t->calls++;
    t->asked++;
    slots_publish(e);
}
