#include "rpc/health.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "health.pb-c.h"

enum { NAME_LONGEST = 256 }; /* bytes, of a service that is watched */

struct watcher {
    struct rpc_health *health;
    struct grpc_call *call;
    char *service;
    int last; /* what it was told */
    struct watcher *prev, *next;
};

struct entry {
    char *service;
    bool serving;
    struct entry *next;
};

struct rpc_health {
    struct entry *entries;
    struct watcher *watchers;
};

static struct entry *find(const struct rpc_health *h, const char *service) {
    struct entry *n = h->entries;
    while (n && strcmp(n->service, service) != 0) {
        n = n->next;
    }
    return n;
}

static int state(const struct rpc_health *h, const char *service) {
    const struct entry *n = find(h, service);
    if (!n) {
        return GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    }
    return n->serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                      : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
}

static Grpc__Health__V1__HealthCheckResponse response(int status) {
    Grpc__Health__V1__HealthCheckResponse r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    r.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
    return r;
}

static const char *asked_for(const ProtobufCMessage *request) {
    return ((const Grpc__Health__V1__HealthCheckRequest *)request)->service;
}

static void on_check(struct grpc_call *call, const ProtobufCMessage *request) {
    const struct rpc_health *h = grpc_call_context(call);
    if (!find(h, asked_for(request))) {
        struct err e;
        err_set(&e, ST_NOT_FOUND, "no service %.200s here", asked_for(request));
        grpc_call_fail(call, &e);
        return;
    }
    Grpc__Health__V1__HealthCheckResponse r = response(state(h, asked_for(request)));
    grpc_call_reply(call, &r.base);
}

/* Only the latest state matters: a watcher that does not read is told when it has room. */
static void tell(struct watcher *w) {
    int now = state(w->health, w->service);
    if (now == w->last || grpc_call_full(w->call)) {
        return;
    }
    Grpc__Health__V1__HealthCheckResponse r = response(now);
    if (grpc_call_send(w->call, &r.base) == 0) {
        w->last = now;
    }
}

static void on_watch(struct grpc_call *call, const ProtobufCMessage *request) {
    struct rpc_health *h = grpc_call_context(call);
    if (strlen(asked_for(request)) > NAME_LONGEST) {
        grpc_call_finish(call, ST_INVALID_ARGUMENT, "a service name has at most 256 bytes");
        return;
    }
    struct watcher *w = mem_zeroed(1, sizeof *w);
    w->health = h;
    w->call = call;
    w->service = mem_text(asked_for(request));
    w->last = -1;
    w->next = h->watchers;
    if (h->watchers) {
        h->watchers->prev = w;
    }
    h->watchers = w;
    grpc_call_set_data(call, w);
    tell(w);
}

static void on_watch_writable(struct grpc_call *call) {
    if (grpc_call_data(call)) {
        tell(grpc_call_data(call));
    }
}

static void on_watch_done(struct grpc_call *call) {
    struct watcher *w = grpc_call_data(call);
    if (!w) {
        return; /* ended before its request came, or refused */
    }
    *(w->prev ? &w->prev->next : &w->health->watchers) = w->next;
    if (w->next) {
        w->next->prev = w->prev;
    }
    free(w->service);
    free(w);
}

static const struct grpc_method methods[] = {
    {.path = "/grpc.health.v1.Health/Check",
     .role = GRPC_OBSERVE,
     .kind = GRPC_UNARY,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .on_request = on_check},
    {.path = "/grpc.health.v1.Health/Watch",
     .role = GRPC_OBSERVE,
     .kind = GRPC_SERVER_STREAM,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .on_request = on_watch,
     .on_writable = on_watch_writable,
     .on_done = on_watch_done},
};

struct rpc_health *rpc_health_new(void) {
    struct rpc_health *h = mem_zeroed(1, sizeof *h);
    rpc_health_set(h, "", false);
    return h;
}

static void tell_all(struct rpc_health *h) {
    for (struct watcher *w = h->watchers; w; w = w->next) {
        tell(w);
    }
}

void rpc_health_set(struct rpc_health *h, const char *service, bool serving) {
    struct entry *n = find(h, service);
    if (!n) {
        n = mem_zeroed(1, sizeof *n);
        n->service = mem_text(service);
        n->next = h->entries;
        h->entries = n;
    }
    n->serving = serving;
    tell_all(h);
}

void rpc_health_set_all(struct rpc_health *h, bool serving) {
    for (struct entry *n = h->entries; n; n = n->next) {
        n->serving = serving;
    }
    tell_all(h);
}

struct grpc_service rpc_health_service(struct rpc_health *h) {
    return (struct grpc_service){
        .methods = methods, .method_count = sizeof methods / sizeof methods[0], .context = h};
}

void rpc_health_free(struct rpc_health *h) {
    struct entry *next;
    for (struct entry *n = h->entries; n; n = next) {
        next = n->next;
        free(n->service);
        free(n);
    }
    free(h);
}
