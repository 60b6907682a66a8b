/* The gRPC server of a daemon process: its own service beside Admin, health and reflection, and who
 * may observe. */
#ifndef ZD_PROCESS_SERVE_H
#define ZD_PROCESS_SERVE_H

#include <sys/types.h>

#include "rpc/health.h"
#include "rpc/reflection.h"
#include "rpc/server.h"

enum { SERVE_SERVICES = 4 };

struct serve {
    uv_loop_t *loop;
    struct rpc_server *server;
    struct rpc_health *health; /* "", Admin and the own service are known to it */
    struct grpc_service services[SERVE_SERVICES];
    struct rpc_reflection reflection;
};

struct serve_options {
    const char *listen;             /* the socket's path */
    const struct grpc_service *own; /* copied, like |admin| */
    const char *own_name;           /* "zerod.v1.Trainer" */
    bool own_ready;                 /* its health until somebody says otherwise */
    const struct grpc_service *admin;
    bool observed;
    gid_t observers; /* the group, if |observed| */
};

/* |s| stays where it is until the loop has run out. Errors are rpc_server_listen's and
 * rpc_server_observers'; nothing is left behind then. */
int serve_start(uv_loop_t *loop, const struct serve_options *o, struct serve *s, struct err *e);
/* For a start that fails later: the socket's file goes at once. The process ends then. */
void serve_undo(struct serve *s);
/* The process ends: NOT_SERVING, no new calls; open ones have 100 ms. */
void serve_end(struct serve *s);
void serve_free(struct serve *s); /* after the loop */

#endif
