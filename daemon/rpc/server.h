/* A gRPC server on a unix socket: libuv moves the bytes of proto/grpc_server.h.
 *
 * The socket never exists wider than 0600 and not below a folder where others may write; who
 * connects is asked once (rpc/access.h), and has calls beyond its role answered with
 * PERMISSION_DENIED. Peers that may not train have 64 connections between them, more are hung up
 * on. A socket file that nobody listens on is replaced; a live one is an error. All on the loop's
 * thread.
 */
#ifndef ZD_RPC_SERVER_H
#define ZD_RPC_SERVER_H

#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"
#include "proto/grpc_server.h"

struct rpc_server;

/* Listens at |path|; |services| and what they point to are borrowed until the server is closed. 0;
 * -ST_INVALID_ARGUMENT (path longer than 107 bytes: named with its length and the limit);
 * -ST_ALREADY_EXISTS (another process answers there); -ST_PERMISSION_DENIED (also: others may write
 * in the folder or in one above it, which is named with its mode); -ST_UNAVAILABLE. */
int rpc_server_listen(uv_loop_t *loop, const char *path, const struct grpc_service *services,
                      size_t service_count, struct rpc_server **server, struct err *e);

/* From now on members of |group| may connect and have the role observe. The folder must let them
 * through. 0; -ST_PERMISSION_DENIED (we are no member of it); -ST_UNAVAILABLE. */
int rpc_server_observers(struct rpc_server *s, gid_t group, struct err *e);

const char *rpc_server_path(const struct rpc_server *s);
size_t rpc_server_connections(const struct rpc_server *s);

/* No new connections (the socket file goes) and no new calls; open calls may end within |grace_ns|,
 * then they are cut; at the end everything is freed and |on_closed| is called, never from inside.
 * close is a drain without grace. A drain may be shortened by a close (the callback of the last one
 * counts). */
void rpc_server_drain(struct rpc_server *s, int64_t grace_ns, void (*on_closed)(void *user),
                      void *user);
void rpc_server_close(struct rpc_server *s, void (*on_closed)(void *user), void *user);

#endif
