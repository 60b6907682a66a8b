/* The headers of a server's requests: which method, until when, and whether the peer's role is
 * enough. Nothing of them is kept but that. */
#include <stdio.h>
#include <string.h>

#include "proto/server_core.h"

enum { SAW_METHOD = 1, SAW_PATH = 2, SAW_TYPE = 4, SAW_ALL = 7 };

int headers_begin(nghttp2_session *session, const nghttp2_frame *f, void *user) {
    struct grpc_conn *c = user;
    c->owed_by = c->h2.now + OWED_CAP_NS;
    h2_deadline(&c->h2, c->owed_by);
    if (f->hd.type != NGHTTP2_HEADERS || f->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    struct grpc_call *call = mem_zeroed(1, sizeof *call);
    call->s.id = f->hd.stream_id;
    call->deadline = GRPC_NEVER;
    h2_stream_init(&c->h2, &call->s);
    c->calls++;
    c->idle_by = GRPC_NEVER;
    call->taken_by = GRPC_NEVER;
    nghttp2_session_set_stream_user_data(session, f->hd.stream_id, call);
    return 0;
}

static bool same(const uint8_t *bytes, size_t n, const char *text) {
    return n == strlen(text) && memcmp(bytes, text, n) == 0;
}

static void find_method(struct grpc_call *call, const uint8_t *path, size_t n) {
    const struct grpc_server_options *o = &call_conn(call)->options;
    for (size_t i = 0; i < o->service_count; i++) {
        for (size_t k = 0; k < o->services[i].method_count; k++) {
            if (same(path, n, o->services[i].methods[k].path)) {
                call->method = &o->services[i].methods[k];
                call->context = o->services[i].context;
                return;
            }
        }
    }
    int shown = n < 128 ? (int)n : 128;
    (void)snprintf(call->text, sizeof call->text, "no method %.*s", shown, (const char *)path);
}

static void read_timeout(struct grpc_call *call, const uint8_t *value, size_t n) {
    int64_t now = call->s.h2->now;
    int64_t ns = grpc_timeout_parse((const char *)value, n);
    call->malformed = call->malformed || ns < 0 || call->has_timeout;
    call->has_timeout = true;
    if (ns >= 0) {
        call->deadline = ns > GRPC_NEVER - now ? GRPC_NEVER : now + ns;
    }
}

static bool grpc_type(const uint8_t *value, size_t n) {
    static const char type[] = "application/grpc";
    size_t len = sizeof type - 1;
    return n >= len && memcmp(value, type, len) == 0 &&
           (n == len || value[len] == '+' || value[len] == ';');
}

/* A second :method, :path or content-type makes the request malformed. */
static void saw(struct grpc_call *call, unsigned what) {
    call->malformed = call->malformed || (call->pseudo & what);
    call->pseudo |= what;
}

int headers_field(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                  size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                  void *user) {
    (void)flags;
    (void)user;
    struct grpc_call *call = (struct grpc_call *)h2_stream_of(session, f->hd.stream_id);
    if (!call) {
        return 0;
    }
    if (!h2_stream_header(&call->s, name_len, value_len)) {
        call->too_many_headers = true;
    }
    if (call->too_many_headers || f->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    if (same(name, name_len, ":path")) {
        saw(call, SAW_PATH);
        find_method(call, value, value_len);
    } else if (same(name, name_len, ":method")) {
        saw(call, SAW_METHOD);
        call->not_grpc = call->not_grpc || !same(value, value_len, "POST");
    } else if (same(name, name_len, "content-type")) {
        saw(call, SAW_TYPE);
        call->not_grpc = call->not_grpc || !grpc_type(value, value_len);
    } else if (same(name, name_len, "grpc-timeout")) {
        read_timeout(call, value, value_len);
    }
    return 0;
}

static void set_deadline(struct grpc_call *call) {
    int64_t cap = call->method->cap_ns;
    if (cap == 0 && call->method->kind == GRPC_UNARY) {
        cap = GRPC_UNARY_CAP_NS;
    }
    if (cap > 0 && call->deadline > call->s.h2->now + cap) {
        call->deadline = call->s.h2->now + cap;
    }
    h2_deadline(call->s.h2, call->deadline);
}

/* Whoever may observe may hear that there is no such method; others hear of their role only. */
static bool may_call(const struct grpc_call *call) {
    enum grpc_role needed = call->method ? call->method->role : GRPC_OBSERVE;
    return call_conn(call)->options.role >= needed;
}

static void refuse_role(struct grpc_call *call) {
    static const char *const names[] = {"none", "observe", "train", "admin"};
    const struct grpc_server_options *o = &call_conn(call)->options;
    char text[GRPC_TEXT_MAX + 1];
    if (o->role == GRPC_NO_ROLE || !call->method) {
        (void)snprintf(text, sizeof text, "user %ld has no role here; %s",
                       o->peer.known ? (long)o->peer.uid : -1L, o->rule);
    } else {
        (void)snprintf(text, sizeof text, "%s needs the role %s, user %ld has %s; %s",
                       call->method->path, names[call->method->role], (long)o->peer.uid,
                       names[o->role], o->rule);
    }
    call_end(call, ST_PERMISSION_DENIED, text);
}

static void refuse_headers(struct grpc_call *call) {
    if (call->too_many_headers) {
        call_end(call, ST_RESOURCE_EXHAUSTED, "headers are larger than 8192 bytes");
    } else if (call->not_grpc || !(call->pseudo & SAW_TYPE)) {
        call->not_grpc = true;
        call_end(call, ST_UNKNOWN, "");
    } else if (call->malformed || call->pseudo != SAW_ALL) {
        call_end(call, ST_INTERNAL, "malformed request headers");
    } else if (!may_call(call)) {
        refuse_role(call);
    } else {
        char text[sizeof call->text];
        memcpy(text, call->text, sizeof text);
        call_end(call, ST_UNIMPLEMENTED, text);
    }
}

void headers_complete(struct grpc_call *call) {
    if (call->too_many_headers || call->not_grpc || call->malformed || call->pseudo != SAW_ALL ||
        !call->method || !may_call(call)) {
        refuse_headers(call);
        return;
    }
    set_deadline(call);
    call->heard = true;
    if (call->method->on_open) {
        call->method->on_open(call);
    }
}
