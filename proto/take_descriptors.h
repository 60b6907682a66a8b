/* The receiving side of the descriptor socket (rpc/handover.h): a token goes out on a SEQPACKET
 * socket, descriptors come back by SCM_RIGHTS.
 *
 * On the wire: the 16 bytes of the token as one packet. The answer is one packet: a byte 0 with the
 * descriptors attached, or a status (1 to 16) followed by a text without NUL. Then the server
 * closes. */
#ifndef ZD_PROTO_TAKE_DESCRIPTORS_H
#define ZD_PROTO_TAKE_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    HANDOVER_TOKEN = 16,      /* bytes */
    HANDOVER_DESCRIPTORS = 4, /* most of one ticket */
    HANDOVER_ANSWER = 256,    /* bytes of the longest answer */
};

/* Takes exactly |n| descriptors (close-on-exec, the caller's), waiting at most |timeout_ns|. 0;
 * what the server answered (-ST_NOT_FOUND: no such ticket); -ST_UNAVAILABLE: nobody there, or it
 * hung up; -ST_DEADLINE_EXCEEDED; -ST_DATA_LOSS: another number of descriptors, or cut. On failure
 * no descriptor stays open. */
int take_descriptors(const char *path, const uint8_t token[HANDOVER_TOKEN], int64_t timeout_ns,
                     size_t n, int *fds, struct err *e);

/* The two halves, for an event loop: start connects and sends, never waits; |*socket| is then to be
 * watched for reading and closed by the caller. finish returns 1 when nothing is there yet. */
int take_descriptors_start(const char *path, const uint8_t token[HANDOVER_TOKEN], int *socket_fd,
                           struct err *e);
int take_descriptors_finish(int socket_fd, size_t n, int *fds, struct err *e);

#endif
