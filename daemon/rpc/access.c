#include "rpc/access.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"

struct grpc_peer access_peer(int fd) {
    struct ucred who;
    socklen_t len = sizeof who;
    int family = AF_UNSPEC;
    socklen_t family_len = sizeof family;
    /* On TCP SO_PEERCRED succeeds too, and says pid 0 and uid -1. */
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &family_len) || family != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len)) {
        return (struct grpc_peer){.known = false};
    }
    return (struct grpc_peer){.known = true, .pid = who.pid, .uid = who.uid, .gid = who.gid};
}

static bool contains(const gid_t *groups, size_t n, gid_t group) {
    for (size_t i = 0; i < n; i++) {
        if (groups[i] == group) {
            return true;
        }
    }
    return false;
}

static bool is_member(gid_t group, const struct grpc_peer *peer, int fd) {
    gid_t few[1]; /* asked for the length first: a user may have thousands */
    socklen_t bytes = 0;
    if (peer->gid == group) {
        return true;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, few, &bytes) == 0 || errno != ERANGE) {
        return false; /* none, or not told */
    }
    gid_t *groups = mem_zeroed(1, bytes);
    bool found = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0 &&
                 contains(groups, bytes / sizeof *groups, group);
    free(groups);
    return found;
}

enum grpc_role access_role(const struct access *a, const struct grpc_peer *peer, int fd) {
    if (!peer->known) {
        return GRPC_NO_ROLE;
    }
    if (peer->uid == 0 || peer->uid == geteuid()) {
        return GRPC_ADMIN;
    }
    return a->observed && is_member(a->observers, peer, fd) ? GRPC_OBSERVE : GRPC_NO_ROLE;
}

void access_rule(const struct access *a, size_t cap, char *text) {
    char observers[48] = "";
    if (a->observed) {
        (void)snprintf(observers, sizeof observers, ", group %ld may observe", (long)a->observers);
    }
    (void)snprintf(text, cap, "user %ld and root have all roles%s", (long)geteuid(), observers);
}
