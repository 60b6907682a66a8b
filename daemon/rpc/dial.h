/* A gRPC client connection on libuv: moves the bytes of proto/grpc_client.h over a unix socket. */
#ifndef ZD_RPC_DIAL_H
#define ZD_RPC_DIAL_H

#include <uv.h>

#include "base/err.h"
#include "proto/grpc_client.h"

struct rpc_dial;

/* Called once, last, from the loop: after a loss (|reason| says which) and after rpc_dial_close
 * (code ST_CANCELLED). All streams have had their on_done. The rpc_dial is freed after it returns;
 * dialling again is up to the caller. */
typedef void (*rpc_dial_closed)(struct rpc_dial *d, const struct err *reason, void *user);

/* Connects (at once: it is a unix socket). 0; -ST_INVALID_ARGUMENT (path too long);
 * -ST_UNAVAILABLE (nobody there: the caller may try again later); |on_closed| only after 0. */
int rpc_dial(uv_loop_t *loop, const char *path, rpc_dial_closed on_closed, void *user,
             struct rpc_dial **dial, struct err *e);

struct grpc_client *rpc_dial_client(struct rpc_dial *d);
void rpc_dial_close(struct rpc_dial *d); /* may be called from a handler; a second time: nothing */

#endif
