/* Adding up: lines of memory, kinds of traffic. A model's sizes are a trainer's choice, so sums
 * stop at the top instead of wrapping round. */
#include "layout/layout.h"
#include "base/saturate.h"

uint64_t memory_total(const struct memory *m) {
    uint64_t sum = plus(plus(m->params, m->grads), plus(m->optimizer, m->gather_slots));
    return plus(plus(sum, plus(m->grad_slots, m->padding)), plus(m->rounding, m->fixed));
}

void memory_add(struct memory *to, const struct memory *m) {
    to->params = plus(to->params, m->params);
    to->grads = plus(to->grads, m->grads);
    to->optimizer = plus(to->optimizer, m->optimizer);
    to->gather_slots = plus(to->gather_slots, m->gather_slots);
    to->grad_slots = plus(to->grad_slots, m->grad_slots);
    to->padding = plus(to->padding, m->padding);
    to->rounding = plus(to->rounding, m->rounding);
    to->fixed = plus(to->fixed, m->fixed);
}

void traffic_add(struct traffic *to, const struct traffic *t) {
    to->all_gather_elements = plus(to->all_gather_elements, t->all_gather_elements);
    to->all_gather_bytes = plus(to->all_gather_bytes, t->all_gather_bytes);
    to->reduce_scatter_elements = plus(to->reduce_scatter_elements, t->reduce_scatter_elements);
    to->reduce_scatter_bytes = plus(to->reduce_scatter_bytes, t->reduce_scatter_bytes);
    to->all_reduce_elements = plus(to->all_reduce_elements, t->all_reduce_elements);
    to->all_reduce_bytes = plus(to->all_reduce_bytes, t->all_reduce_bytes);
}

struct traffic traffic_since(const struct traffic *now, const struct traffic *before) {
    return (struct traffic){
        .all_gather_elements = now->all_gather_elements - before->all_gather_elements,
        .all_gather_bytes = now->all_gather_bytes - before->all_gather_bytes,
        .reduce_scatter_elements = now->reduce_scatter_elements - before->reduce_scatter_elements,
        .reduce_scatter_bytes = now->reduce_scatter_bytes - before->reduce_scatter_bytes,
        .all_reduce_elements = now->all_reduce_elements - before->all_reduce_elements,
        .all_reduce_bytes = now->all_reduce_bytes - before->all_reduce_bytes,
    };
}

uint64_t traffic_bytes(const struct traffic *t) {
    return plus(plus(t->all_gather_bytes, t->reduce_scatter_bytes), t->all_reduce_bytes);
}

uint64_t traffic_elements(const struct traffic *t) {
    return plus(plus(t->all_gather_elements, t->reduce_scatter_elements), t->all_reduce_elements);
}
