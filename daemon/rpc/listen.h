/* Listening unix sockets that never exist wider than 0600, unless opened to a group. Internal to
 * rpc/. */
#ifndef ZD_RPC_LISTEN_H
#define ZD_RPC_LISTEN_H

#include <sys/stat.h>
#include <sys/un.h>

#include "base/err.h"

struct listen_path {
    char path[sizeof((struct sockaddr_un){0}.sun_path)];
    dev_t device; /* of the file that we made */
    ino_t inode;
};

/* Binds and listens (non-blocking, close-on-exec); |type| is SOCK_STREAM or SOCK_SEQPACKET. A
 * socket file that nobody listens on is replaced. 0; -ST_INVALID_ARGUMENT; -ST_ALREADY_EXISTS;
 * -ST_PERMISSION_DENIED (also: others own the folder, or one above it, or may write there);
 * -ST_UNAVAILABLE. */
int listen_unix(const char *path, int type, struct listen_path *where, int *fd, struct err *e);

/* Removes the file if it is still ours. */
void listen_unlink(const struct listen_path *where);

/* Lets |group| connect too (0660). 0; -ST_PERMISSION_DENIED (we are no member), -ST_UNAVAILABLE. */
int listen_open_to(const struct listen_path *where, gid_t group, struct err *e);

#endif
