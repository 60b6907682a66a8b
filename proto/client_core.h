/* Shared by grpc_client.c (the connection) and grpc_stream.c (its streams). Internal to proto/.
 *
 * A stream ends in one place, stream_end, which calls on_done and frees it; whoever must not do
 * that at once uses stream_leave, which marks: on_done comes with the next settling. */
#ifndef ZD_PROTO_CLIENT_CORE_H
#define ZD_PROTO_CLIENT_CORE_H

#include "proto/grpc_client.h"
#include "proto/grpc_server.h"
#include "proto/h2.h"

struct grpc_client {
    struct h2 h2; /* first: nghttp2's user data points here */
    uint64_t events;
    bool usable;
    int lost_code; /* of new streams once not usable */
    char lost_text[GRPC_TEXT_MAX + 1];
};

struct grpc_stream {
    struct h2_stream s; /* first */
    const struct grpc_stream_handlers *handlers;
    void *data;
    char *path; /* until submitted; owned */
    int64_t deadline;
    int http_status;
    int code; /* from grpc-status, or ours when |leaving| */
    char text[GRPC_TEXT_MAX + 1];
    bool has_status;
    bool leaving; /* ended here: on_done at the next settling */
};

static inline struct grpc_client *client_of(const struct grpc_stream *g) {
    return (struct grpc_client *)g->s.h2;
}

void stream_end(struct grpc_stream *g, int code, const char *text);
void stream_leave(struct grpc_stream *g, int code, const char *text);
void stream_end_by_server(struct grpc_stream *g); /* with the status that it sent */
void stream_settle(struct h2_stream *s);

#endif
