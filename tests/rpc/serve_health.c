/* A server for test_grpcio.py: health, reflection and the echo methods at the path given, until
 * SIGTERM. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc/health.h"
#include "rpc/reflection.h"
#include "rpc/server.h"
#include "tests/proto/echo.h"

enum { SERVICES = 3 };

static struct rpc_server *server;

static void on_term(uv_signal_t *signal, int number) {
    (void)number;
    rpc_server_drain(server, INT64_C(2000000000), NULL, NULL);
    uv_close((uv_handle_t *)signal, NULL);
}

int main(int argc, char **argv) {
    uv_loop_t loop;
    uv_signal_t term;
    struct err e;
    static struct echo echo;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: serve_health SOCKET\n");
        return 2;
    }
    struct rpc_health *health = rpc_health_new();
    static struct rpc_reflection reflection;
    const struct grpc_service services[] = {rpc_health_service(health), echo_service(&echo),
                                            rpc_reflection_service(&reflection)};
    reflection = (struct rpc_reflection){services, SERVICES};
    rpc_health_set(health, "", true);
    uv_loop_init(&loop);
    if (rpc_server_listen(&loop, argv[1], services, SERVICES, &server, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    uv_signal_init(&loop, &term);
    uv_signal_start(&term, on_term, SIGTERM);
    uv_run(&loop, UV_RUN_DEFAULT);
    int rv = uv_loop_close(&loop);
    rpc_health_free(health);
    return rv ? 1 : 0;
}
