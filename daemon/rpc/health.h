/* grpc.health.v1.Health: Check and Watch, a status per service name ("" is the whole server). */
#ifndef ZD_RPC_HEALTH_H
#define ZD_RPC_HEALTH_H

#include <stdbool.h>

#include "proto/grpc_server.h"

struct rpc_health;

struct rpc_health *rpc_health_new(void); /* "" is known and not serving */
/* Adds or changes a service (name copied); watchers hear of it. */
void rpc_health_set(struct rpc_health *h, const char *service, bool serving);
void rpc_health_set_all(struct rpc_health *h, bool serving);
/* For the list of services of a server. */
struct grpc_service rpc_health_service(struct rpc_health *h);
/* After its servers are closed. */
void rpc_health_free(struct rpc_health *h);

#endif
