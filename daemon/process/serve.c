#include "process/serve.h"

enum { GRACE_NS = 100000000 };

int serve_start(uv_loop_t *loop, const struct serve_options *o, struct serve *s, struct err *e) {
    *s = (struct serve){.loop = loop, .health = rpc_health_new()};
    s->reflection = (struct rpc_reflection){s->services, SERVE_SERVICES};
    rpc_health_set(s->health, "", true);
    rpc_health_set(s->health, "zerod.v1.Admin", true);
    rpc_health_set(s->health, o->own_name, o->own_ready);
    s->services[0] = *o->own;
    s->services[1] = *o->admin;
    s->services[2] = rpc_health_service(s->health);
    s->services[3] = rpc_reflection_service(&s->reflection);
    int code = rpc_server_listen(loop, o->listen, s->services, SERVE_SERVICES, &s->server, e);
    if (code) {
        return code;
    }
    code = o->observed ? rpc_server_observers(s->server, o->observers, e) : 0;
    if (code) {
        serve_undo(s);
    }
    return code;
}

void serve_undo(struct serve *s) {
    rpc_server_close(s->server, NULL, NULL);
    (void)uv_run(s->loop, UV_RUN_NOWAIT); /* a server closes in the loop's next turn */
}

void serve_end(struct serve *s) {
    rpc_health_set_all(s->health, false);
    rpc_server_drain(s->server, GRACE_NS, NULL, NULL);
}

void serve_free(struct serve *s) {
    rpc_health_free(s->health);
}
