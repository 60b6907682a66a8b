/* See finish.h. */
#include "finish.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "sample.h"

static int dump(const struct train *t, const struct copy *c, struct err *e) {
    const size_t cap = t->units.count * GPT_UNIT_TENSORS;
    struct gpt_unit *unit = calloc(t->units.count, sizeof *unit);
    struct safetensors_tensor *list = calloc(cap, sizeof *list);
    size_t n = 0;
    int rc = 0;
    if (!unit || !list) {
        rc = err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the dump's list of tensors");
        goto out;
    }
    for (size_t u = 0; u < t->units.count; u++) {
        gpt_describe(&t->gpt.shape, u, &unit[u]);
        for (size_t i = 0; i < unit[u].count; i++) {
            const struct gpt_tensor *tensor = &unit[u].tensors[i];
            if (tensor->tied) {
                continue; /* embed.wte is in the file */
            }
            list[n++] =
                (struct safetensors_tensor){tensor->name, tensor->dims, tensor->shape,
                                            c->params[u] + t->units.offset[u].at[STORE_PARAMS][i]};
        }
    }
    assert(n <= cap);
    rc = safetensors_write(t->o->dump, n, list, e);
out:
    free(unit);
    free(list);
    return rc;
}

static int use_copy(struct train *t, const struct copy *c, struct err *e) {
    int rc = t->o->dump ? dump(t, c, e) : 0;
    if (rc == 0 && t->o->sample > 0) {
        rc = sample_print(&t->units, c, t->rows, t->o->prompt, t->o->sample, t->o->seed, stdout, e);
    }
    return rc;
}

int finish(struct train *t, struct err *e) {
    const bool first = t->store->rank == 0;
    int rc = 0;
    if (t->o->dump || t->o->sample > 0) {
        struct copy c;
        rc = units_copy(&t->units, first, &c, e);
        if (rc == 0 && first) {
            rc = use_copy(t, &c, e);
        }
        copy_free(&c);
    }
    if (rc == 0 && first && t->o->json) {
        t->report.hash_known = t->store->ops->hash(t->store, &t->report.hash);
        rc = report_write(&t->report, t->o->json, t->o->steps, e);
    }
    return rc;
}
