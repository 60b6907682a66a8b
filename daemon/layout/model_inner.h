/* What the files of model.h share among themselves. */
#ifndef ZD_LAYOUT_MODEL_INNER_H
#define ZD_LAYOUT_MODEL_INNER_H

#include "layout/model.h"

enum { SHAPE_TEXT = MODEL_DIMS * 22 + 3 }; /* "[18446744073709551615, ...]" */

/* "[768, 3072]" into |text|, which it returns. */
const char *shape_text(const struct tensor *t, char text[static SHAPE_TEXT]);

static inline bool tensor_is_trainable(const struct tensor *t) {
    return tensor_has_place(t) && !t->frozen;
}

/* Its dtype when gathered. */
static inline enum dtype tensor_dtype(const struct model *m, const struct tensor *t) {
    return t->dtype == DTYPE_NONE ? m->param_dtype : t->dtype;
}

/* The tensors that are no aliases, by name. */
struct name_index {
    size_t count;
    const struct tensor **tensors; /* owned */
};
void name_index_init(struct name_index *x, const struct model *m);
void name_index_free(struct name_index *x);
const struct tensor *name_index_find(const struct name_index *x, const char *name); /* or NULL */

/* Parts of model_check. Names: units and tensors are unique, aliases name a tensor of their kind;
 * element counts must stand. */
int model_check_numbers(struct model *m, struct err *e);
int model_check_names(const struct model *m, struct err *e);
int model_check_plans(const struct model *m, struct err *e);

#endif
