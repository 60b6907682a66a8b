/* A gRPC server and a descriptor socket on a loop in a thread of their own, in a new folder. */
#ifndef ZD_TESTS_HOST_H
#define ZD_TESTS_HOST_H

#include <pthread.h>
#include <uv.h>

#include "rpc/handover.h"
#include "rpc/health.h"
#include "rpc/server.h"
#include "tests/proto/echo.h"

struct host {
    char folder[32], path[64], fd_path[64];
    struct echo echo;
    struct rpc_health *health;
    struct grpc_service services[2];
    struct handover_options handover_options;
    struct rpc_server *server;
    struct handover *handover;
    int64_t grace_ns; /* of host_stop */
    /* private */
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t wake;
    uv_barrier_t ready;
    void (*job)(struct host *h, void *arg);
    void *arg;
    bool stop;
};

/* |handover_options| and |grace_ns| are kept from before. */
void host_start(struct host *h);
/* Runs |job| on the loop's thread and waits for it. */
void host_do(struct host *h, void (*job)(struct host *h, void *arg), void *arg);
void host_stop(struct host *h); /* joins; the loop closed without a handle left */

#endif
