/* After the last step: the dump, the sample and the JSON file that the options ask for. */
#ifndef GPT_FINISH_H
#define GPT_FINISH_H

#include "train.h"

/* Inside an open try. All ranks take the same eval pass, rank 0 writes. ABORTED: to be called again
 * after begin; files are replaced whole, so twice does no harm. */
int finish(struct train *t, struct err *e);

#endif
