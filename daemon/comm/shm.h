/* comm.h on one host: ranks read each other's mapped memory. Each publishes what it has in its
 * control page (control.h); a sum reads the peers' slots directly, in rank order; nothing is sent.
 */
#ifndef ZD_COMM_SHM_H
#define ZD_COMM_SHM_H

#include "comm/comm.h"
#include "device/device.h"
#include "kernels/kernels.h"

struct shm_options {
    const struct layout *layout; /* borrowed, like all pointers here */
    unsigned rank;
    uint32_t grad_slots;
    const struct kernels *kernels;
    struct device *device;
    void *page;      /* control_bytes of zeros, for the control page */
    uint8_t *source; /* where this rank's parameters lie: zero3 its shard, zero2 the replica; ddp:
                        kept gradients */
    uint64_t source_offset; /* bytes: its place in the memory that peers map */
};

struct comm *shm_new(const struct shm_options *o);

/* This rank's own gradient slots; NULL: none. Nothing may be running. */
void shm_own_grads(struct comm *c, const uint8_t *base);

/* Maps peer |rank|'s control page and parameter memory, or its gradient slots, in place of what was
 * mapped; takes the descriptors. Nothing may be running. INVALID_ARGUMENT, DATA_LOSS: the old
 * mapping stays. */
int shm_peer_state(struct comm *c, unsigned rank, int page_fd, int source_fd, struct err *e);
int shm_peer_grads(struct comm *c, unsigned rank, uint64_t attachment, int fd, struct err *e);

#endif
