/* Text of the model's own, from a private copy of the parameters. */
#ifndef GPT_SAMPLE_H
#define GPT_SAMPLE_H

#include <stdio.h>

#include "rows.h"
#include "units.h"

/* Prints |prompt| and |count| bytes after it to |out|, each drawn from the softmax of the logits at
 * temperature 0.8, the same for the same seed. Bytes that are not printable ASCII or a newline are
 * shown as \xNN. RESOURCE_EXHAUSTED. */
int sample_print(const struct units *u, const struct copy *c, const struct rows *rows,
                 const char *prompt, uint64_t count, uint64_t seed, FILE *out, struct err *e);

#endif
