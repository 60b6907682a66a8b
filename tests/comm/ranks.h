/* Four ranks in one process, each with its memory, and a model of two units of one tensor each. */
#ifndef TEST_COMM_RANKS_H
#define TEST_COMM_RANKS_H

#include "comm/control.h"
#include "comm/shm.h"

enum { RANKS = 4, SLOTS = 2 };

/* At 64 bytes of |memory|: masters and kept gradients, one and the same here; at 0 of |replica|
 * what it says. */
struct rank {
    struct arena page, memory, replica, grads;
    struct comm *comm;
};

extern struct model model;
extern struct layout layout;
extern const struct kernels *kernels;
extern struct rank ranks[RANKS];

void ranks_up(enum strategy s, uint32_t shard_size, enum dtype wire, enum dtype kept);
void ranks_down(void);
void connect_ranks(void); /* all map all */

int readonly(const struct arena *a); /* a descriptor to hand over */
float *kept_of(unsigned rank);
uint64_t padded(void); /* unit 0's one range */
struct traffic sent_by(unsigned rank, enum comm_group group);
/* Of unit |unit|, in slot |sequence| mod SLOTS. */
struct comm_tag tag_of(struct fence f, uint32_t sequence, uint32_t unit);
void expect_none(uint64_t wrong); /* one assertion for many elements */

#endif
