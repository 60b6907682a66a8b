/* The descriptor socket: gives memory to whoever shows a ticket. Wire and receiving side are in
 * proto/take_descriptors.h.
 *
 * A ticket is 16 random bytes, good once, for 30 s, for processes of our own user or root. Whoever
 * sends anything else gets a short error text; whoever is silent for 5 s, or comes as one too many,
 * is hung up on. Nothing of it harms the daemon. All on the loop's thread. */
#ifndef ZD_RPC_HANDOVER_H
#define ZD_RPC_HANDOVER_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "proto/take_descriptors.h"

enum {
    HANDOVER_TICKETS = 4096, /* outstanding at a time */
    HANDOVER_PENDING = 64,   /* connections that have not sent their token yet */
};

struct handover;

struct handover_options {
    int64_t ticket_ns;  /* life of a ticket; 0: 30 s */
    int64_t silence_ns; /* a connection without a token; 0: 5 s */
};

/* Listens at |path|; rights, stale files and errors as rpc_server_listen. |options| may be NULL. */
int handover_listen(uv_loop_t *loop, const char *path, const struct handover_options *options,
                    struct handover **h, struct err *e);
const char *handover_path(const struct handover *h);

/* A ticket for |n| (1 to HANDOVER_DESCRIPTORS) descriptors, which are duplicated: the caller keeps
 * its own. 0; -ST_INVALID_ARGUMENT; -ST_RESOURCE_EXHAUSTED (too many tickets, or descriptors). */
int handover_ticket(struct handover *h, const int *fds, size_t n, uint8_t token[HANDOVER_TOKEN],
                    struct err *e);
size_t handover_tickets(const struct handover *h); /* outstanding */

/* Removes the socket file, drops tickets and connections; frees; then |on_closed| (may be NULL). */
void handover_close(struct handover *h, void (*on_closed)(void *user), void *user);

/* Taking on the loop: take_descriptors that does not block it. |on_taken| comes once, from the
 * loop, also after a failure to start: code 0 and |n| descriptors that are then the callee's, or
 * the negative status and |e|. Closing the loop before is the caller's mistake. */
typedef void (*handover_taken)(void *user, int code, size_t n, const int *fds, const struct err *e);
void handover_take(uv_loop_t *loop, const char *path, const uint8_t token[HANDOVER_TOKEN], size_t n,
                   int64_t timeout_ns, handover_taken on_taken, void *user);

#endif
