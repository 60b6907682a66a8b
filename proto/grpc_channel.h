/* A blocking gRPC client connection over a unix socket: grpc_client.h driven by poll(2). No
 * threads, no signals (MSG_NOSIGNAL), the descriptor is close-on-exec. One thread at a time. */
#ifndef ZD_PROTO_GRPC_CHANNEL_H
#define ZD_PROTO_GRPC_CHANNEL_H

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/grpc_client.h"

struct grpc_channel;

/* Connects to the socket at |path|. With |timeout_ns| > 0 it tries again until then while the
 * socket is not there or refuses; 0: one try. 0; -ST_INVALID_ARGUMENT (path too long);
 * -ST_UNAVAILABLE (nobody there in time); -ST_PERMISSION_DENIED. */
int grpc_channel_connect(const char *path, int64_t timeout_ns, struct grpc_channel **channel,
                         struct err *e);

/* Its client: start, send and cancel with grpc_client.h, then pump. */
struct grpc_client *grpc_channel_client(struct grpc_channel *ch);
int grpc_channel_fd(const struct grpc_channel *ch); /* for the caller's own poll: POLLIN */

/* Writes what is queued, reads what is there, calls handlers. Returns 1 as soon as a handler was
 * called, 0 when |timeout_ns| (< 0: none) passed without, -ST_UNAVAILABLE when the connection is
 * lost and no handler was called (all streams have ended by then). */
int grpc_channel_pump(struct grpc_channel *ch, int64_t timeout_ns, struct err *e);
/* Takes in what has come, writing nothing. As grpc_channel_pump otherwise. */
int grpc_channel_look(struct grpc_channel *ch, struct err *e);
/* Writes what is queued without waiting for anything to read. 0 or -ST_UNAVAILABLE. */
int grpc_channel_flush(struct grpc_channel *ch, struct err *e);

/* One unary call, start to end; handlers of other streams may run meanwhile. 0 and |*reply| (free
 * with protobuf_c_message_free_unpacked) or the negative status with the server's text in |e|. */
int grpc_channel_unary(struct grpc_channel *ch, const char *method, const ProtobufCMessage *request,
                       const ProtobufCMessageDescriptor *reply_type, int64_t timeout_ns,
                       ProtobufCMessage **reply, struct err *e);

/* Ends every stream (CANCELLED), closes and frees. NULL is fine. */
void grpc_channel_close(struct grpc_channel *ch);
/* In a forked child: closes the descriptor and frees without a byte to the server or a handler. */
void grpc_channel_forget(struct grpc_channel *ch);

#endif
