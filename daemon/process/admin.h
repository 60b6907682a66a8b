/* The Admin service as both daemon processes serve it: its methods, who may call them and what they
 * take. Each process brings its answers, also those that say where else to ask. */
#ifndef ZD_PROCESS_ADMIN_H
#define ZD_PROCESS_ADMIN_H

#include "proto/grpc_server.h"

enum { ADMIN_METHODS = 4 };

struct admin_answer {
    /* |request| has no fields worth reading; freed after the return. Finishes the call, now or
     * later. */
    void (*on_request)(struct grpc_call *call, const ProtobufCMessage *request);
    void (*on_done)(struct grpc_call *call); /* NULL: nothing to clean up */
};

struct admin_answers {
    struct admin_answer status, describe, hash, watch;
};

/* |methods| is the caller's and outlives the service; |context| is what grpc_call_context gives to
 * the answers. */
struct grpc_service admin_service_of(const struct admin_answers *answers,
                                     struct grpc_method methods[ADMIN_METHODS], void *context);

#endif
