/* From tensors' names to units. A name's first part that is a number ends its unit's name:
 * model.layers.7.mlp.w and model.layers.7.norm.w are in model.layers.7, experts of a layer in the
 * layer. Without a number it is the module: model.norm.weight is in model.norm. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "model_file.h"

/* Bytes of the unit's name at the start of |name|. */
static size_t unit_length(const char *name) {
    const char *last = NULL;
    for (const char *part = name;;) {
        const size_t n = strcspn(part, "."), digits = strspn(part, "0123456789");
        if (n && digits == n) {
            return (size_t)(part - name) + n;
        }
        if (!part[n]) {
            return last && last > name ? (size_t)(last - name) : strlen(name);
        }
        last = part + n;
        part += n + 1;
    }
}

/* Numbers in names by value: layers.2 before layers.10. */
static int natural(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t i = 0, j = 0;
    while (i < a_length && j < b_length) {
        size_t x = strspn(a + i, "0123456789"), y = strspn(b + j, "0123456789");
        if (x && y) {
            x = x > a_length - i ? a_length - i : x;
            y = y > b_length - j ? b_length - j : y;
            const int order = memcmp(a + i, b + j, x < y ? x : y);
            if (x != y || order) {
                return x != y ? (x > y) - (x < y) : order;
            }
            i += x;
            j += y;
        } else if (a[i] != b[j]) {
            return (unsigned char)a[i] < (unsigned char)b[j] ? -1 : 1;
        } else {
            i++;
            j++;
        }
    }
    return (i < a_length) - (j < b_length);
}

static int by_unit(const void *a, const void *b) {
    const char *x = ((const struct entry *)a)->name, *y = ((const struct entry *)b)->name;
    const int order = natural(x, unit_length(x), y, unit_length(y));
    return order ? order : strcmp(x, y);
}

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Masks and tables that are stored with a model but are computed, not trained. */
static bool is_buffer(const struct entry *t) {
    return ends_with(t->name, ".masked_bias") || ends_with(t->name, ".rotary_emb.inv_freq") ||
           (ends_with(t->name, ".attn.bias") && t->dims == 4);
}

static bool is_integer(const struct entry *t) {
    return t->dtype[0] == 'I' || t->dtype[0] == 'U' || !strcmp(t->dtype, "BOOL");
}

struct left_out {
    size_t buffers, integers;
    const char *buffer, *integer; /* the first of each */
};

static bool leave_out(const struct entry *t, struct left_out *out) {
    if (is_integer(t)) {
        out->integer = out->integers++ ? out->integer : t->name;
        return true;
    }
    if (is_buffer(t)) {
        out->buffer = out->buffers++ ? out->buffer : t->name;
        return true;
    }
    return false;
}

static int add_tensor(struct model *m, const struct entry *t, struct err *e) {
    const size_t n = unit_length(t->name);
    const char *unit = m->unit_count ? m->units[m->unit_count - 1].name : "";
    if (strlen(unit) != n || memcmp(unit, t->name, n) != 0) {
        char name[MODEL_NAME];
        (void)snprintf(name, sizeof name, "%.*s", (int)n, t->name);
        int rc = model_add_unit(m, name, 1, e);
        if (rc) {
            return rc;
        }
    }
    const struct tensor added = model_tensor(t->name, t->dims, t->shape);
    return model_add_tensor(m, &added, e);
}

static void note_left_out(const struct left_out *out, struct plan_lines *notes) {
    if (out->buffers) {
        plan_line(notes,
                  "%zu tensor%s left out that a model computes and does not train, like \"%s\"",
                  out->buffers, out->buffers == 1 ? "" : "s", out->buffer);
    }
    if (out->integers) {
        plan_line(
            notes,
            "%zu tensor%s of integers left out, like \"%s\"; if they are packed weights, this "
            "is not the plan of the model",
            out->integers, out->integers == 1 ? "" : "s", out->integer);
    }
}

int entries_units(struct entries *x, struct model *m, struct plan_lines *notes, struct err *e) {
    struct left_out out = {0};
    int rc = 0;
    if (x->count) {
        qsort(x->list, x->count, sizeof *x->list, by_unit);
    }
    for (size_t i = 0; i < x->count && !rc; i++) {
        if (!leave_out(&x->list[i], &out)) {
            rc = add_tensor(m, &x->list[i], e);
        }
    }
    note_left_out(&out, notes);
    if (!rc && !m->unit_count) {
        rc = err_set(e, ST_INVALID_ARGUMENT, "no tensor in it can be trained");
    }
    return rc;
}
