/* The calls of a server connection: what handlers do with them, and how that becomes frames.
 * Handlers only change the call and mark it; call_settle submits. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/server_core.h"

/* A text that was cut may end inside a UTF-8 character; stock clients choke on half ones. */
static void drop_half_character(char *text) {
    size_t n = strlen(text), back = 1;
    while (back < 4 && back < n && ((unsigned char)text[n - back] & 0xc0) == 0x80) {
        back++;
    }
    unsigned char lead = back <= n ? (unsigned char)text[n - back] : 0;
    size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (lead >= 0xc0 && want > back) {
        text[n - back] = 0;
    }
}

static void finish(struct grpc_call *call, int code, const char *text) {
    if (call->s.ended) {
        return;
    }
    call->s.ended = true;
    call->code = code;
    (void)snprintf(call->text, sizeof call->text, "%s", text ? text : "");
    drop_half_character(call->text);
    if (!call->closed) {
        h2_stream_mark(&call->s);
        h2_deadline(call->s.h2, call->s.h2->now + GRPC_IDLE_CAP_NS);
    }
}

void call_tell(struct grpc_call *call) {
    if (call->told || !call->heard) {
        call->told = true;
        return;
    }
    call->told = true;
    if (call->method->on_done) {
        call->method->on_done(call);
    }
}

void call_end(struct grpc_call *call, int code, const char *text) {
    finish(call, code, text);
    h2_stream_drop_input(&call->s);
    call_tell(call);
}

void call_free(struct grpc_call *call) {
    struct grpc_conn *c = call_conn(call);
    call->closed = true;
    finish(call, ST_CANCELLED, "the peer went away");
    call_tell(call);
    c->h2.held -= buf_unread(&call->request);
    buf_free(&call->request);
    h2_stream_gone(&call->s);
    c->calls--;
    h2_deadline(&c->h2, c->h2.now + GRPC_IDLE_CAP_NS);
    free(call);
}

/* ---- frames ---- */

struct status_fields {
    char code[4];
    char text[GRPC_TEXT_ENCODED];
    size_t code_len, text_len;
};

static void status_fields(const struct grpc_call *call, struct status_fields *f) {
    unsigned code = (unsigned)call->code;
    f->code_len = code > 9 ? 2 : 1;
    if (code > 9) {
        f->code[0] = (char)('0' + code / 10 % 10);
    }
    f->code[f->code_len - 1] = (char)('0' + code % 10);
    f->text_len = grpc_text_encode(call->text, sizeof f->text, f->text);
}

void call_trailers(struct h2_stream *s) {
    const struct grpc_call *call = (const struct grpc_call *)s;
    struct status_fields f;
    status_fields(call, &f);
    const nghttp2_nv nv[] = {H2_NV("grpc-status", f.code, f.code_len),
                             H2_NV("grpc-message", f.text, f.text_len)};
    nghttp2_submit_trailer(s->h2->session, s->id, nv, f.text_len ? 2 : 1);
}

/* A status without any message is one HEADERS frame ("Trailers-Only"). */
static void submit_status(const struct grpc_call *call) {
    struct status_fields f;
    status_fields(call, &f);
    const nghttp2_nv nv[] = {
        H2_NV_TEXT(":status", "200"), H2_NV_TEXT("content-type", "application/grpc"),
        H2_NV("grpc-status", f.code, f.code_len), H2_NV("grpc-message", f.text, f.text_len)};
    nghttp2_submit_response(call->s.h2->session, call->s.id, nv, f.text_len ? 4 : 3, NULL);
}

static void submit_headers(const struct grpc_call *call) {
    const nghttp2_nv nv[] = {H2_NV_TEXT(":status", "200"),
                             H2_NV_TEXT("content-type", "application/grpc"),
                             H2_NV_TEXT("grpc-accept-encoding", "identity")};
    nghttp2_data_provider provider = h2_stream_provider();
    nghttp2_submit_response(call->s.h2->session, call->s.id, nv, 3, &provider);
}

static void submit_answer(struct grpc_call *call) {
    const nghttp2_nv not_grpc = H2_NV_TEXT(":status", "415");
    call->answered = true;
    if (call->not_grpc) {
        nghttp2_submit_response(call->s.h2->session, call->s.id, &not_grpc, 1, NULL);
    } else if (buf_unread(&call->s.out) == 0) {
        submit_status(call);
    } else {
        submit_headers(call);
    }
}

void call_settle(struct h2_stream *s) {
    struct grpc_call *call = (struct grpc_call *)s;
    if (call->closed) {
        return;
    }
    if (call->reset_due) { /* only now: queued earlier it would overtake the answer */
        call->reset_due = false;
        nghttp2_submit_rst_stream(s->h2->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
        return;
    }
    if (h2_stream_writable(s) && !s->ended && !call->told && call->method->on_writable) {
        call->method->on_writable(call);
    }
    if (!call->answered && (s->ended || buf_unread(&s->out) > 0)) {
        submit_answer(call);
    } else {
        h2_stream_resume(s);
    }
}

/* ---- for handlers ---- */

int grpc_call_send(struct grpc_call *call, const ProtobufCMessage *message) {
    if (call->s.ended || call->closed) {
        return -ST_CANCELLED;
    }
    return h2_stream_send(&call->s, message);
}

void grpc_call_finish(struct grpc_call *call, int code, const char *text) {
    assert(code >= ST_OK && code <= ST_UNAUTHENTICATED);
    finish(call, code, text);
}

void grpc_call_fail(struct grpc_call *call, const struct err *e) {
    grpc_call_finish(call, e->code, e->text);
}

void grpc_call_reply(struct grpc_call *call, const ProtobufCMessage *message) {
    int rv = grpc_call_send(call, message);
    grpc_call_finish(call, -rv, rv ? "the reply is larger than may be queued" : NULL);
}

size_t grpc_call_queued(const struct grpc_call *call) {
    return buf_unread(&call->s.out);
}

bool grpc_call_full(const struct grpc_call *call) {
    return grpc_call_queued(call) >= GRPC_HIGH_MARK;
}

bool grpc_call_open(const struct grpc_call *call) {
    return !call->s.ended && !call->closed;
}

int grpc_call_status(const struct grpc_call *call) {
    return call->code;
}

void *grpc_call_context(const struct grpc_call *call) {
    return call->context;
}

const struct grpc_method *grpc_call_method(const struct grpc_call *call) {
    return call->method;
}

const struct grpc_peer *grpc_call_peer(const struct grpc_call *call) {
    return &call_conn(call)->options.peer;
}

int64_t grpc_call_deadline(const struct grpc_call *call) {
    return call->deadline;
}

void grpc_call_set_data(struct grpc_call *call, void *data) {
    call->data = data;
}

void *grpc_call_data(const struct grpc_call *call) {
    return call->data;
}
