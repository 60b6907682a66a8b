/* zerod.h: what the daemon answered to a registration: checked against the model, kept, told. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"

static const char *const strategies[] = {
    "", "ddp", "zero1", "zero2", "zero3", "hybrid_shard", "hybrid_zero2",
};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

/* ---- checking ---- */

static uint64_t dtype_size(int dtype) {
    return dtype == ZEROD_FP32 ? 4 : 2;
}

/* Of what an alias stands for; else of |t| itself. False: the model has no such tensor. */
static bool find_place(const struct zerod_model *m, const struct zerod_tensor **t, size_t *unit) {
    const char *name = (*t)->alias;
    for (size_t u = 0; name && u < m->unit_count; u++) {
        for (size_t i = 0; i < m->units[u].tensor_count; i++) {
            const struct zerod_tensor *other = &m->units[u].tensors[i];
            if (!other->alias && strcmp(other->name, name) == 0) {
                *t = other;
                *unit = u;
                return true;
            }
        }
    }
    return !name;
}

static int check_offset(const char *name, uint64_t offset, uint64_t bytes, uint64_t limit,
                        const char *what, struct err *e) {
    if (offset == ZEROD_NOWHERE ||
        (offset % LENDING_ALIGN == 0 && offset <= limit && bytes <= limit - offset)) {
        return 0;
    }
    return err_set(e, ST_INTERNAL,
                   "the daemon placed tensor '%.64s' of %" PRIu64 " bytes at %" PRIu64 ", outside "
                   "its unit's %s of %" PRIu64,
                   name, bytes, offset, what, limit);
}

static int check_tensor(const struct zerod_model *m, const Zerod__V1__Registered *r, size_t unit,
                        size_t index, struct err *e) {
    const struct zerod_tensor *t = &m->units[unit].tensors[index];
    const char *name = t->name;
    const Zerod__V1__UnitPlace *p = r->places[unit];
    uint64_t param = p->param_offsets[index], grad = p->grad_offsets[index],
             initial = p->load_offsets[index];
    if (!find_place(m, &t, &unit)) {
        return err_set(e, ST_INTERNAL, "the daemon took tensor '%s', the alias of nothing", name);
    }
    p = r->places[unit];
    uint64_t n = tensor_elements(t);
    uint64_t element = dtype_size(t->dtype ? (int)t->dtype : (int)r->param_dtype);
    int rc = check_offset(name, param, n * element, p->param_bytes, "parameters", e);
    rc = rc ? rc
            : check_offset(name, grad, n * dtype_size((int)r->wire_dtype), p->grad_bytes,
                           "gradients", e);
    return rc ? rc
              : check_offset(name, initial, n * sizeof(float), p->load_bytes, "initial values", e);
}

static int check_place(const struct zerod_model *m, const Zerod__V1__Registered *r, size_t unit,
                       struct err *e) {
    const struct zerod_unit *u = &m->units[unit];
    const Zerod__V1__UnitPlace *p = r->places[unit];
    if (p->n_param_offsets != u->tensor_count || p->n_grad_offsets != u->tensor_count ||
        p->n_load_offsets != u->tensor_count) {
        return err_set(
            e, ST_INTERNAL, "the daemon placed %zu, %zu and %zu tensors of unit '%s', it has %zu",
            p->n_param_offsets, p->n_grad_offsets, p->n_load_offsets, u->name, u->tensor_count);
    }
    if (p->param_bytes > r->param_bytes || p->grad_bytes > r->grad_bytes ||
        p->load_bytes > r->grad_bytes) {
        return err_set(e, ST_INTERNAL,
                       "unit '%s' has %" PRIu64 ", %" PRIu64 " and %" PRIu64
                       " bytes, the daemon lends %" PRIu64 " and %" PRIu64,
                       u->name, p->param_bytes, p->grad_bytes, p->load_bytes, r->param_bytes,
                       r->grad_bytes);
    }
    return 0;
}

static bool is_dtype(int dtype, int asked, int most) {
    return dtype >= ZEROD_FP32 && dtype <= most && (!asked || asked == dtype);
}

int registered_check(const struct zerod_model *m, const Zerod__V1__Registered *r, struct err *e) {
    if (r->world_size == 0 || r->rank >= r->world_size) {
        return err_set(e, ST_INTERNAL, "the daemon is rank %" PRIu32 " of %" PRIu32, r->rank,
                       r->world_size);
    }
    if (r->strategy < ZEROD__V1__STRATEGY__STRATEGY_DDP || (int)r->strategy >= STRATEGIES ||
        !is_dtype((int)r->param_dtype, (int)m->param_dtype, ZEROD_FP16) ||
        !is_dtype((int)r->wire_dtype, (int)m->wire_dtype, ZEROD_BF16)) {
        return err_set(e, ST_INTERNAL, "the daemon answered with strategy %d, dtypes %d and %d",
                       (int)r->strategy, (int)r->param_dtype, (int)r->wire_dtype);
    }
    if (r->n_places != m->unit_count) {
        return err_set(e, ST_INTERNAL, "the daemon placed %zu units of %zu", r->n_places,
                       m->unit_count);
    }
    int rc = 0;
    for (size_t i = 0; !rc && i < m->unit_count; i++) {
        rc = check_place(m, r, i, e);
    }
    for (size_t i = 0; i < m->unit_count; i++) { /* an alias is checked against another unit */
        for (size_t t = 0; !rc && t < m->units[i].tensor_count; t++) {
            rc = check_tensor(m, r, i, t, e);
        }
    }
    return rc;
}

/* ---- keeping ---- */

static void keep_plans(struct lending *l, const struct zerod_model *m) {
    for (size_t i = 0; i < m->plan_count; i++) {
        const struct zerod_plan *p = &m->plans[i];
        l->has_eval |= strcmp(p->name, "eval") == 0;
        if (strcmp(p->name, "train") != 0 || l->reduce_units) {
            continue;
        }
        l->reduce_units = mem_zeroed(p->op_count, sizeof *l->reduce_units);
        for (size_t o = 0; o < p->op_count; o++) {
            if (p->ops[o].kind == ZEROD_REDUCE) {
                l->reduce_units[l->reduces++] = p->ops[o].unit;
            }
        }
    }
}

/* Is every tensor with a gradient allowed to have none in a micro-batch? */
static bool may_be_absent(const struct zerod_unit *u) {
    bool any = false;
    for (size_t i = 0; i < u->tensor_count; i++) {
        const struct zerod_tensor *t = &u->tensors[i];
        if (t->frozen || t->ignored || t->alias) {
            continue;
        }
        if (!t->absent_ok) {
            return false;
        }
        any = true;
    }
    return any;
}

static void keep_unit(struct lent_unit *to, const struct zerod_unit *u,
                      const Zerod__V1__UnitPlace *p) {
    (void)snprintf(to->name, sizeof to->name, "%s", u->name);
    to->param_bytes = p->param_bytes;
    to->grad_bytes = p->grad_bytes;
    to->initial_bytes = p->load_bytes;
    to->contributions = u->contributions ? u->contributions : 1;
    to->may_be_absent = may_be_absent(u);
    to->tensor_count = u->tensor_count;
    to->tensors = mem_zeroed(u->tensor_count, sizeof *to->tensors);
    for (size_t t = 0; t < u->tensor_count; t++) {
        to->tensors[t] =
            (struct lent_tensor){p->param_offsets[t], p->grad_offsets[t], p->load_offsets[t]};
    }
}

void registered_keep(struct zerod *z, const struct zerod_model *m) {
    const Zerod__V1__Registered *r = z->registered;
    struct lending *l = &z->lending;
    z->rank = r->rank;
    z->world_size = r->world_size;
    z->attachment = r->attachment;
    z->strategy = (int)r->strategy;
    z->param_dtype = (enum zerod_dtype)r->param_dtype;
    z->wire_dtype = (enum zerod_dtype)r->wire_dtype;
    z->micro_batches = m->micro_batches ? m->micro_batches : MICRO_BATCHES_DEFAULT;
    lending_init(l, m->unit_count);
    keep_plans(l, m);
    l->micro_batches = z->micro_batches;
    l->param_bytes = r->param_bytes;
    l->grad_bytes = r->grad_bytes;
    l->grad_slots = r->grad_slots ? r->grad_slots : 1;
    for (size_t i = 0; i < m->unit_count; i++) {
        keep_unit(&l->units[i], &m->units[i], r->places[i]);
        l->may_leave_out |= l->units[i].may_be_absent;
    }
}

/* ---- what is known ---- */

unsigned zerod_rank(const struct zerod *z) {
    return z->rank;
}

unsigned zerod_world_size(const struct zerod *z) {
    return z->world_size;
}

const char *zerod_strategy(const struct zerod *z) {
    return strategies[z->strategy];
}

enum zerod_dtype zerod_param_dtype(const struct zerod *z) {
    return z->param_dtype;
}

uint64_t zerod_attachment(const struct zerod *z) {
    return z->attachment;
}

enum zerod_dtype zerod_wire_dtype(const struct zerod *z) {
    return z->wire_dtype;
}

static struct lent_tensor tensor_of(const struct zerod *z, uint32_t unit, uint32_t tensor) {
    static const struct lent_tensor nowhere = {ZEROD_NOWHERE, ZEROD_NOWHERE, ZEROD_NOWHERE};
    const struct lending *l = &z->lending;
    return unit < l->unit_count && tensor < l->units[unit].tensor_count
               ? l->units[unit].tensors[tensor]
               : nowhere;
}

uint64_t zerod_param_offset(const struct zerod *z, uint32_t unit, uint32_t tensor) {
    return tensor_of(z, unit, tensor).param;
}

uint64_t zerod_grad_offset(const struct zerod *z, uint32_t unit, uint32_t tensor) {
    return tensor_of(z, unit, tensor).grad;
}

uint64_t zerod_initial_offset(const struct zerod *z, uint32_t unit, uint32_t tensor) {
    return tensor_of(z, unit, tensor).initial;
}

uint64_t zerod_param_bytes(const struct zerod *z, uint32_t unit) {
    return unit < z->lending.unit_count ? z->lending.units[unit].param_bytes : 0;
}

uint64_t zerod_grad_bytes(const struct zerod *z, uint32_t unit) {
    return unit < z->lending.unit_count ? z->lending.units[unit].grad_bytes : 0;
}

uint64_t zerod_initial_bytes(const struct zerod *z, uint32_t unit) {
    return unit < z->lending.unit_count ? z->lending.units[unit].initial_bytes : 0;
}
