/* comm.h on one host: ranks read each other's mapped memory. Each publishes what it has in its
 * control page (control.h); a sum reads the peers' slots directly, in rank order; nothing is sent.
 * Only what this rank reads is mapped: nothing of ranks that are in neither of its groups.
 */
#ifndef ZD_COMM_SHM_H
#define ZD_COMM_SHM_H

#include "comm/comm.h"
#include "device/device.h"
#include "kernels/kernels.h"

/* Memory of this rank's that peers read; the same length on every rank of a job. */
struct shm_memory {
    uint8_t *base;   /* NULL: this strategy has none */
    uint64_t offset; /* bytes: its place in the descriptor that peers get */
    uint64_t bytes;
};

struct shm_options {
    const struct layout *layout; /* borrowed, like all pointers here */
    unsigned rank;
    uint32_t grad_slots;
    const struct kernels *kernels;
    struct device *device;
    void *page; /* control_bytes of zeros, for the control page */
    struct shm_memory memory[COMM_MEMORIES];
};

/* What a peer hands over beside its gradient slots. */
enum { SHM_PAGE, SHM_STATE, SHM_PARAMS, SHM_FDS }; /* all but the replica are in the state */

struct comm *shm_new(const struct shm_options *o);

/* This rank's own gradient slots; NULL: none. Nothing may be running. */
void shm_own_grads(struct comm *c, const uint8_t *base);

/* Maps of what peer |rank| handed over that which this rank reads, in place of what was mapped;
 * takes the descriptors. Nothing may be running. INVALID_ARGUMENT, DATA_LOSS: the old mapping
 * stays. */
int shm_peer_state(struct comm *c, unsigned rank, const int fds[SHM_FDS], struct err *e);
int shm_peer_grads(struct comm *c, unsigned rank, uint64_t attachment, int fd, struct err *e);

#endif
