/* The server side of one gRPC connection, without I/O: bytes in, bytes out, time as an argument.
 *
 * The transport feeds what it read (grpc_server_receive), asks what to write (grpc_server_output,
 * grpc_server_sent) after each receive and tick, and calls grpc_server_tick at
 * grpc_server_next_deadline. Handlers are called
 * from inside those functions; they only queue, so they may use any call of any connection, but
 * must not feed, drain or free a connection. One thread at a time.
 *
 * Life of a call: on_open (if set) when the headers are here; then on_request (unary and server
 * stream: the one request, unpacked) or on_message and on_half_close; the handlers send and finish
 * once, now or later; on_done exactly once, last: after a finish when the peer has everything, or
 * at once when the peer cancelled, the connection was lost, the deadline passed or the peer broke
 * the rules (the server then answers by itself). A call may be used until its on_done returns, also
 * when the peer is gone already (sending is then refused quietly). on_done is never called from
 * inside grpc_call_*. A call that no handler heard of gets no on_done.
 *
 * Limits: GRPC_MESSAGE_MAX a message; 8 KiB of headers; 128 calls; 32 MiB buffered in each
 * direction; unary calls without a shorter deadline end after their method's cap; 10 s from
 * connecting to the peer's SETTINGS and for the headers of a call, then GRPC_IDLE_CAP_NS without a
 * call. */
#ifndef ZD_PROTO_GRPC_SERVER_H
#define ZD_PROTO_GRPC_SERVER_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum {
    GRPC_CALLS_MAX = 128,               /* open calls of a connection */
    GRPC_HEADERS_MAX = 8 * 1024,        /* bytes, 32 a field added as HTTP/2 counts */
    GRPC_HIGH_MARK = 256 * 1024,        /* bytes queued: a producer should stop */
    GRPC_LOW_MARK = 64 * 1024,          /* then on_writable is called at or below this */
    GRPC_BUFFER_MAX = 32 * 1024 * 1024, /* bytes queued, all calls of a connection */
};
#define GRPC_UNARY_CAP_NS INT64_C(60000000000) /* of a unary call whose method names no cap */
#define GRPC_NEVER INT64_MAX                   /* "no deadline", ns */
/* A connection without a call for this long (at most twice as long) is told GOAWAY and closed; its
 * client, as any of gRPC's, connects again with its next call. So is, without the GOAWAY, one whose
 * peer leaves the answer of a finished call unread for this long. */
#define GRPC_IDLE_CAP_NS INT64_C(300000000000)

struct grpc_call;
struct grpc_conn;

/* What a peer may do, each includes the ones before it. A method names the one that it needs, a
 * connection the one that its peer has; whoever forgets to is refused everything. */
enum grpc_role { GRPC_NO_ROLE, GRPC_OBSERVE, GRPC_TRAIN, GRPC_ADMIN };

enum grpc_kind { GRPC_UNARY, GRPC_SERVER_STREAM, GRPC_CLIENT_STREAM, GRPC_BIDI };

struct grpc_method {
    const char *path; /* "/zerod.v1.Admin/Status" */
    enum grpc_kind kind;
    enum grpc_role role;                       /* that its callers need */
    const ProtobufCMessageDescriptor *request; /* unary and server stream */
    int64_t
        cap_ns; /* longest life of a call; 0: GRPC_UNARY_CAP_NS for unary, else none; < 0: none */
    /* unary and server stream; |request| is freed after the handler returns */
    void (*on_request)(struct grpc_call *call, const ProtobufCMessage *request);
    /* client stream and bidi; |bytes| are valid during the call */
    void (*on_message)(struct grpc_call *call, const uint8_t *bytes, size_t len);
    void (*on_half_close)(struct grpc_call *call); /* NULL: answered with OK by itself */
    void (*on_open)(struct grpc_call *call);       /* may be NULL, like the next two */
    void (*on_writable)(struct grpc_call *call);
    void (*on_done)(struct grpc_call *call);
};

struct grpc_service {
    const struct grpc_method *methods; /* borrowed */
    size_t method_count;
    void *context; /* grpc_call_context() of its calls */
};

struct grpc_peer {
    bool known; /* of a unix socket; else the numbers mean nothing */
    pid_t pid;
    uid_t uid;
    gid_t gid;
};

struct grpc_server_options {
    const struct grpc_service *services; /* borrowed for the life of the connection */
    size_t service_count;
    bool unix_socket;      /* any :authority is taken, as clients of unix sockets differ */
    struct grpc_peer peer; /* what grpc_call_peer() says */
    enum grpc_role role;   /* of the peer: other methods are answered with PERMISSION_DENIED */
    char rule[160];        /* the end of that answer's text: who has which role */
    /* Called when output appears outside of grpc_server_receive/output/tick; once until the next
     * grpc_server_output. May be NULL. Must only take a note: it runs inside grpc_call_send. */
    void (*on_output)(void *user);
    void *user;
};

struct grpc_conn *grpc_server_new(const struct grpc_server_options *options, int64_t now);

/* Feeds |n| bytes. 0, or negative: the connection is broken; write what grpc_server_output still
 * gives (it may hold a GOAWAY), then free it. */
int grpc_server_receive(struct grpc_conn *c, const uint8_t *bytes, size_t n, int64_t now,
                        struct err *e);

/* What to write next: sets |bytes| and returns how many (0: nothing now). They stay valid and in
 * place until grpc_server_sent or the next grpc_server_output. */
size_t grpc_server_output(struct grpc_conn *c, const uint8_t **bytes);
void grpc_server_sent(struct grpc_conn *c, size_t n); /* the first |n| of them are written */

/* True when nothing is left to read or write (drained, or broken): close the transport. */
bool grpc_server_over(const struct grpc_conn *c);

int64_t grpc_server_next_deadline(const struct grpc_conn *c); /* ns; GRPC_NEVER: none */
void grpc_server_tick(struct grpc_conn *c, int64_t now);

/* No new calls: GOAWAY now; open calls go on. */
void grpc_server_drain(struct grpc_conn *c);
size_t grpc_server_calls(const struct grpc_conn *c); /* open ones */

/* Every open call gets its on_done (status CANCELLED unless it had finished). */
void grpc_server_free(struct grpc_conn *c);

/* ---- calls ---- */

/* Queues a message. 0; -ST_CANCELLED when the call is over (nothing happens);
 * -ST_RESOURCE_EXHAUSTED: larger than GRPC_MESSAGE_MAX or GRPC_BUFFER_MAX is reached (not queued).
 */
int grpc_call_send(struct grpc_call *call, const ProtobufCMessage *message);

/* Ends the call after what is queued. |text| may be NULL; it is cut at GRPC_TEXT_MAX. A second
 * finish, or one after the peer went, does nothing. */
void grpc_call_finish(struct grpc_call *call, int code, const char *text);
void grpc_call_fail(struct grpc_call *call, const struct err *e);
/* Send and finish with OK; a reply that cannot be queued becomes the status. */
void grpc_call_reply(struct grpc_call *call, const ProtobufCMessage *message);

size_t grpc_call_queued(const struct grpc_call *call); /* bytes not yet taken by the wire */
bool grpc_call_full(const struct grpc_call *call);     /* at or above GRPC_HIGH_MARK */
bool grpc_call_open(const struct grpc_call *call);     /* neither finished nor over */
/* In on_done: how it ended, ST_CANCELLED when the peer went. */
int grpc_call_status(const struct grpc_call *call);
void *grpc_call_context(const struct grpc_call *call); /* its service's */
const struct grpc_method *grpc_call_method(const struct grpc_call *call);
const struct grpc_peer *grpc_call_peer(const struct grpc_call *call);
int64_t grpc_call_deadline(const struct grpc_call *call); /* ns; GRPC_NEVER: none */
void grpc_call_set_data(struct grpc_call *call, void *data);
void *grpc_call_data(const struct grpc_call *call); /* NULL at first */

#endif
