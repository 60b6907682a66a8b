/* The table as JSON. */
#include <inttypes.h>
#include <math.h>

#include "plan_inner.h"

static void put(cJSON *to, const char *name, uint64_t n) {
    if (n <= UINT64_C(1) << 53) {
        cJSON_AddNumberToObject(to, name, (double)n);
    } else {
        char text[24];
        (void)snprintf(text, sizeof text, "%" PRIu64, n);
        cJSON_AddStringToObject(to, name, text);
    }
}

static void put_factor(cJSON *to, const char *name, double x) {
    if (isnan(x)) {
        cJSON_AddNullToObject(to, name);
    } else {
        cJSON_AddNumberToObject(to, name, x);
    }
}

static void put_memory(cJSON *to, const struct memory *m) {
    put(to, "params", m->params);
    put(to, "grads", m->grads);
    put(to, "optimizer", m->optimizer);
    put(to, "gather_slots", m->gather_slots);
    put(to, "grad_slots", m->grad_slots);
    put(to, "padding", m->padding);
}

static void put_traffic(cJSON *to, const char *name, const struct traffic *t) {
    cJSON *o = cJSON_AddObjectToObject(to, name);
    put(o, "bytes", traffic_bytes(t));
    put(o, "elements", traffic_elements(t));
    put(o, "all_gather_bytes", t->all_gather_bytes);
    put(o, "all_gather_elements", t->all_gather_elements);
    put(o, "reduce_scatter_bytes", t->reduce_scatter_bytes);
    put(o, "reduce_scatter_elements", t->reduce_scatter_elements);
    put(o, "all_reduce_bytes", t->all_reduce_bytes);
    put(o, "all_reduce_elements", t->all_reduce_elements);
}

static void put_lines(cJSON *to, const char *name, const struct plan_lines *l) {
    cJSON *list = cJSON_AddArrayToObject(to, name);
    for (size_t i = 0; l && i < l->count; i++) {
        cJSON_AddItemToArray(list, cJSON_CreateString(l->text[i]));
    }
}

/* What every rank holds: their lines differ, not their sums. */
static void put_ranks(cJSON *to, const struct plan_request *r, enum strategy s) {
    struct model m = *r->model;
    struct layout l;
    m.strategy = s;
    m.shard_size = r->shard_size;
    if (r->world > LAYOUT_MAX_RANKS || layout_init(&l, &m, r->world, NULL)) {
        return;
    }
    cJSON *list = cJSON_AddArrayToObject(to, "ranks");
    for (unsigned rank = 0; rank < r->world; rank++) {
        const struct memory memory = layout_memory(&l, rank, &r->slots);
        cJSON *o = cJSON_CreateObject();
        put_memory(o, &memory);
        cJSON_AddItemToArray(list, o);
    }
    layout_free(&l);
}

static cJSON *row_json(const struct plan_table *t, const struct plan_row *row) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "strategy", strategy_name(row->strategy));
    cJSON_AddBoolToObject(o, "chosen", row->chosen);
    put_memory(cJSON_AddObjectToObject(o, "memory"), &row->memory);
    put(o, "states", row->states);
    put(o, "peak", row->peak);
    if (t->request.device_memory) {
        cJSON_AddBoolToObject(o, "fits", row->fits);
    } else {
        cJSON_AddNullToObject(o, "fits");
    }
    cJSON *sent = cJSON_AddObjectToObject(o, "sent");
    put_traffic(sent, "within", &row->within);
    put_traffic(sent, "between", &row->between);
    put_factor(o, "bytes_factor", row->bytes_factor);
    put_factor(o, "elements_factor", row->elements_factor);
    put_ranks(o, &t->request, row->strategy);
    return o;
}

static void put_model(cJSON *to, const struct plan_table *t) {
    const struct model *m = t->request.model;
    cJSON *o = cJSON_AddObjectToObject(to, "model");
    put(o, "parameters", t->elements);
    put(o, "trained", t->trainable);
    put(o, "units", m->unit_count);
    cJSON_AddStringToObject(o, "largest_unit", m->units[t->largest].name);
    put(o, "largest_unit_parameters", t->largest_elements);
    cJSON_AddStringToObject(o, "optimizer", optimizer_name(m->optimizer.kind));
    put(o, "micro_batches", m->micro_batches);
    cJSON *b = cJSON_AddObjectToObject(to, "bytes_per_element");
    put(b, "parameters", dtype_bytes(m->param_dtype));
    put(b, "kept_gradients", dtype_bytes(m->kept_dtype));
    put(b, "optimizer", 4 * (1 + optimizer_states(&m->optimizer)));
    put(b, "wire", dtype_bytes(m->wire_dtype));
}

cJSON *plan_json(const struct plan_table *t, const struct plan_lines *notes) {
    const struct plan_request *r = &t->request;
    cJSON *o = cJSON_CreateObject();
    put_model(o, t);
    put(o, "world_size", r->world);
    put(o, "shard_size", r->shard_size ? r->shard_size : r->world);
    put(o, "gather_slots", r->slots.gather);
    put(o, "grad_slots", r->slots.grad);
    if (r->device_memory) {
        put(o, "device_memory", r->device_memory);
    } else {
        cJSON_AddNullToObject(o, "device_memory");
    }
    cJSON *list = cJSON_AddArrayToObject(o, "strategies");
    for (size_t i = 0; i < t->row_count; i++) {
        cJSON_AddItemToArray(list, row_json(t, &t->rows[i]));
    }
    put_lines(o, "warnings", &t->warnings);
    put_lines(o, "notes", notes);
    put_lines(o, "advice", &t->advice);
    return o;
}
