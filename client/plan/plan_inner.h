/* What the files of plan.h share. */
#ifndef ZD_PLAN_INNER_H
#define ZD_PLAN_INNER_H

#include "plan.h"

/* Fills t->advice from its rows. */
void plan_advise(struct plan_table *t);

/* Ends the text at what does not fit; returns |text|. "14.000 GB", with |gib| "14.000 GB (13.039
 * GiB)". */
const char *plan_size_text(uint64_t bytes, bool gib, char text[static 2 * PLAN_NUMBER]);

#endif
