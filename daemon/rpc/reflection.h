/* grpc.reflection.v1 and v1alpha (the same on the wire): lists a server's services and gives their
 * .proto files as descriptors, so that grpcurl and the like need no files of ours. Extensions are
 * NOT_FOUND: there are none. */
#ifndef ZD_RPC_REFLECTION_H
#define ZD_RPC_REFLECTION_H

#include <stddef.h>

#include "proto/grpc_server.h"

/* The caller's storage, as long as the server; services from all of |services|, which may hold
 * reflection's own and are looked at with each request. */
struct rpc_reflection {
    const struct grpc_service *services;
    size_t service_count;
};

/* For the list of services of a server. */
struct grpc_service rpc_reflection_service(struct rpc_reflection *r);

#endif
