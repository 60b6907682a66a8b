/* What a rank must remember from one step to the next, committed with the step by the store: 48
 * bytes, little endian, at these offsets: 0  magic "GPTCURSR"     8  version (u32)   12  rank (u32)
 * 16  step that it was committed with 24  seed                32  sequences that this rank has
 * trained on    40  bytes of the text Batches and the sample are functions of seed and step, so
 * there is no other generator's state.
 */
#ifndef GPT_CURSOR_H
#define GPT_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { CURSOR_BYTES = 48, CURSOR_VERSION = 1 };

struct cursor {
    uint32_t rank;
    uint64_t step, seed, sequences, text_bytes;
};

void cursor_encode(const struct cursor *c, uint8_t out[static CURSOR_BYTES]);

/* Fills c->sequences from the bytes committed with the step before |next_step|, after comparing all
 * else with |c|. No bytes are right only before step 1 (sequences is 0 then). FAILED_PRECONDITION
 * with both values: another program's, version's, rank's, step's, seed's or text's cursor. */
int cursor_restore(struct cursor *c, uint64_t next_step, const void *bytes, size_t count,
                   struct err *e);

#endif
