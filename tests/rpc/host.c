#include "tests/rpc/host.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void on_wake(uv_async_t *wake) {
    struct host *h = wake->data;
    if (h->stop) {
        if (h->server) { /* a test may have closed it */
            rpc_server_drain(h->server, h->grace_ns, NULL, NULL);
        }
        handover_close(h->handover, NULL, NULL);
        uv_close((uv_handle_t *)wake, NULL);
        uv_barrier_wait(&h->ready);
    } else if (h->job) {
        h->job(h, h->arg);
        h->job = NULL;
        uv_barrier_wait(&h->ready);
    }
}

static void *run(void *arg) {
    struct host *h = arg;
    struct err e = {0};
    uv_loop_init(&h->loop);
    uv_async_init(&h->loop, &h->wake, on_wake);
    h->wake.data = h;
    h->health = rpc_health_new();
    h->services[0] = echo_service(&h->echo);
    h->services[1] = rpc_health_service(h->health);
    int rv = rpc_server_listen(&h->loop, h->path, h->services, 2, &h->server, &e);
    if (rv == 0) {
        rv = handover_listen(&h->loop, h->fd_path, &h->handover_options, &h->handover, &e);
    }
    if (rv) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
    uv_barrier_wait(&h->ready);
    uv_run(&h->loop, UV_RUN_DEFAULT);
    rv = uv_loop_close(&h->loop);
    assert(rv == 0);
    rpc_health_free(h->health);
    return NULL;
}

void host_start(struct host *h) {
    (void)snprintf(h->folder, sizeof h->folder, "/tmp/zd-rpc-XXXXXX");
    char *made = mkdtemp(h->folder);
    assert(made);
    (void)snprintf(h->path, sizeof h->path, "%s/rpc", h->folder);
    (void)snprintf(h->fd_path, sizeof h->fd_path, "%s/fd", h->folder);
    h->stop = false;
    h->job = NULL;
    h->echo = (struct echo){0};
    uv_barrier_init(&h->ready, 2);
    int rv = pthread_create(&h->thread, NULL, run, h);
    assert(rv == 0);
    uv_barrier_wait(&h->ready);
}

void host_do(struct host *h, void (*job)(struct host *h, void *arg), void *arg) {
    h->job = job;
    h->arg = arg;
    uv_async_send(&h->wake);
    uv_barrier_wait(&h->ready);
}

void host_stop(struct host *h) {
    h->stop = true;
    uv_async_send(&h->wake);
    uv_barrier_wait(&h->ready);
    pthread_join(h->thread, NULL);
    uv_barrier_destroy(&h->ready);
    int rv = rmdir(h->folder); /* fails if a socket stayed */
    assert(rv == 0);
}
