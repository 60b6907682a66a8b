/* Methods that tests serve; each takes and gives zerod.v1.Ticket. */
#ifndef ZD_TESTS_ECHO_H
#define ZD_TESTS_ECHO_H

#include "proto/grpc_server.h"
#include "zerod.pb-c.h"

#define ECHO_UNARY                                                                                 \
    "/test.Echo/Unary" /* gives back what it got; this and those without a word: observe */
#define ECHO_FAIL "/test.Echo/Fail"   /* ends in ABORTED with socket_path as text */
#define ECHO_HOLD "/test.Echo/Hold"   /* unary, kept in |held|; admin */
#define ECHO_BIDI "/test.Echo/Bidi"   /* every message back, OK after the half-close */
#define ECHO_FLOOD "/test.Echo/Flood" /* token.len messages of FLOOD_BYTES while there is room */
#define ECHO_SINK "/test.Echo/Sink"   /* client stream, counted; train */

enum { FLOOD_BYTES = 4096 };

struct echo {
    struct grpc_call *held; /* the last call of Hold or Bidi */
    unsigned opened, done, messages, writable;
    int last_status; /* in on_done */
    size_t flood_left, most_queued;
};

struct grpc_service echo_service(struct echo *e);

#endif
