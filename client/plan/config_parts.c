/* What the architectures of config.json are put together from. */
#include "model_file.h"

int config_tensor(struct model *m, const char *prefix, const char *name, size_t dims,
                  const uint64_t *shape, struct err *e) {
    char whole[MODEL_NAME];
    (void)snprintf(whole, sizeof whole, "%s%s", prefix, name);
    const struct tensor t = model_tensor(whole, dims, shape);
    return model_add_tensor(m, &t, e);
}

int config_head(struct model *m, const char *embedding, bool tied, const uint64_t shape[2],
                struct err *e) {
    struct tensor t = model_tensor("lm_head.weight", 2, shape);
    if (tied) {
        (void)snprintf(t.alias, sizeof t.alias, "%s", embedding);
    }
    int rc = model_add_unit(m, "lm_head", 1, e);
    return rc ? rc : model_add_tensor(m, &t, e);
}
