/* What the files of model.h share among themselves. */
#ifndef ZD_LAYOUT_MODEL_INNER_H
#define ZD_LAYOUT_MODEL_INNER_H

#include "layout/model.h"

enum { SHAPE_TEXT = MODEL_DIMS * 22 + 3 }; /* "[18446744073709551615, ...]" */

/* "[768, 3072]" into |text|, which it returns. */
const char *shape_text(const struct tensor *t, char text[static SHAPE_TEXT]);

int model_check_plans(const struct model *m, struct err *e);

#endif
