/* The control page: one memfd a rank, written by its daemon only, mapped read-only by the peers
 * (design §6). It says what the rank's memory holds and how far the rank has read the others'.
 *
 *   header   what job, rank and layout this is; fixed once published
 *   changes  a counter and futex word, raised after each publication
 *   tags     one record a gradient slot: the last reduce with that number (mod slots)
 *   marks    one record a (peer, slot): which of the peer's reduces this rank has finished reading
 *   units    per unit: the parameters' version; fences of complete and of reduced gradients
 *   reads    per peer: bytes and elements read from its memory, by kind of collective
 *
 * Records have one writer and are read whole or not at all: a counter is odd while they are
 * written. All fields are atomic, so that a reader that comes in between reads garbage but breaks
 * nothing. Nothing in a peer's page is used as an address or a length; offsets and slot numbers are
 * checked against what is mapped.
 */
#ifndef ZD_COMM_CONTROL_H
#define ZD_COMM_CONTROL_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/err.h"
#include "comm/comm.h"

enum {
    CONTROL_MAGIC = 0x5A44434F, /* "OCDZ" in memory: a control page */
    CONTROL_VERSION = 2,
    CONTROL_WORDS = 7,
};

struct control_record {
    alignas(64) _Atomic uint32_t turn; /* odd: being written */
    _Atomic uint64_t word[CONTROL_WORDS];
};

struct control_unit {
    alignas(64) _Atomic uint64_t version;
    struct control_record kept, reduced; /* fences */
};

struct control_reads {
    alignas(64) _Atomic uint64_t bytes[COMM_KINDS];
    _Atomic uint64_t elements[COMM_KINDS];
};

struct control_header {
    uint32_t magic, version;
    uint32_t rank, world;
    uint64_t layout; /* fingerprint of model, strategy and world size */
    uint32_t grad_slots, units;
    uint64_t offsets[COMM_MEMORIES]; /* bytes: where each starts in the descriptor that it is in */
    alignas(64) _Atomic uint32_t changes;
};

/* One value that differs when anything differs that a peer's (or successor's) arithmetic on a
 * rank's memory relies on. */
uint64_t control_fingerprint(const struct layout *l);

/* The page's size, and where things are in it. |marks| and |reads| are of the peer |rank|. */
uint64_t control_bytes(const struct layout *l, uint32_t grad_slots);
struct control_record *control_tag(void *page, uint32_t slot);
struct control_record *control_mark(void *page, unsigned rank, uint32_t slot);
struct control_unit *control_unit(void *page, size_t unit);
struct control_reads *control_reads(void *page, unsigned rank);

/* Fills in a fresh page of zeros. */
void control_init(void *page, const struct layout *l, unsigned rank, uint32_t grad_slots,
                  const uint64_t offsets[COMM_MEMORIES]);
/* Is this |rank|'s page of the same job and layout as |own|? DATA_LOSS: no control page.
 * INVALID_ARGUMENT: another rank's, job's or version's. At least control_bytes are mapped. */
int control_check(const void *page, const void *own, unsigned rank, struct err *e);

void control_write(struct control_record *r, const uint64_t *words, size_t count);
/* Reads all CONTROL_WORDS; false: it is being written, and |changes| will rise when that is done.
 */
bool control_read(struct control_record *r, uint64_t words[CONTROL_WORDS]);

/* Raises |changes| and wakes whoever waits for it, in any process. */
void control_publish(void *page);

#endif
