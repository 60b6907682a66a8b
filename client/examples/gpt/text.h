/* The training text: a file of bytes held in memory, and where each sequence is read.
 *
 * A sequence is seq + 1 bytes: tokens are the first seq, targets the last. Where it starts is a
 * pure function of (seed, step, micro-batch, rank, sequence), so a redone step reads the same
 * bytes.
 */
#ifndef GPT_TEXT_H
#define GPT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct text {
    uint8_t *bytes; /* owned */
    size_t count;
};

/* Reads a regular file. NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE (cannot be read; the text has the
 * cause), INVALID_ARGUMENT (no regular file, or fewer than |least| bytes), RESOURCE_EXHAUSTED. */
int text_load(struct text *t, const char *path, size_t least, struct err *e);
void text_free(struct text *t);

struct text_place {
    uint64_t seed, step, micro_batch, rank, sequence;
};

/* mix64 chained over the five numbers in the order above (h = mix64(seed), then h = mix64(h ^
 * number) for each that follows), modulo |starts|, the number of possible starts (> 0): count -
 * seq. */
uint64_t text_offset(const struct text_place *p, uint64_t starts);

#endif
