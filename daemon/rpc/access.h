/* Who may do what on a unix socket: observe < train < admin (proto/grpc_server.h).
 *
 * Our own user and root have all roles: either could read our memory anyway. Members of the
 * observers' group, if there is one, may observe. All others have no role; that they can connect at
 * all takes a file or folder that somebody opened by hand. The kernel says who it is (SO_PEERCRED,
 * SO_PEERGROUPS), as of the connect; a pid is never a proof, as pids are used again. */
#ifndef ZD_RPC_ACCESS_H
#define ZD_RPC_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/grpc_server.h"

struct access {
    bool observed; /* |observers| counts */
    gid_t observers;
};

/* The peer of the connected unix socket |fd|; not known on any other socket. */
struct grpc_peer access_peer(int fd);
enum grpc_role access_role(const struct access *a, const struct grpc_peer *peer, int fd);
/* "user 1000 and root have all, group 44 may observe". */
void access_rule(const struct access *a, size_t cap, char *text);

#endif
