/* The whole update of a rank's shard as the engine does it (engine/update.h, one unit of one
 * tensor, bf16 parameters): norm of the gradients; then in one pass unscale, clip, AdamW and the
 * bf16 copy, through the scratch tiles that let it survive its process. 34 bytes an element must be
 * moved: 4 for the norm, 30 for the rest. */
#ifndef ZD_TESTS_BENCH_WHOLE_H
#define ZD_TESTS_BENCH_WHOLE_H

#include <stdint.h>

#define WHOLE_API __attribute__((visibility("default"))) /* for peers_update.py */

enum { WHOLE_BYTES = 34, WHOLE_ADAMW_BYTES = 28, WHOLE_MAX_THREADS = 16 };

struct whole;

/* |elements|: a multiple of 65,536. Ends the program with a message when it cannot. */
WHOLE_API struct whole *whole_new(uint64_t elements, unsigned threads);
WHOLE_API void whole_del(struct whole *w);
WHOLE_API double whole_update(struct whole *w); /* does a step; seconds */
WHOLE_API double whole_adamw(struct whole *w);  /* the bare kernel on the same memory; seconds */
WHOLE_API float *whole_gradients(struct whole *w);

#endif
