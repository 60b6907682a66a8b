/* One call to a process of the job, on a connection of its own: dial, ask, answer, close. */
#ifndef ZD_ZERORUN_ASK_H
#define ZD_ZERORUN_ASK_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"

struct ask;

struct ask_options {
    const char *path;   /* socket; copied */
    const char *method; /* "/zerod.v1.Admin/Status"; static storage */
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *reply;
    int64_t timeout_ns; /* 0: none */
    /* For streams: once, when the server has surely taken the request (a call behind it on the same
     * connection was answered). May be NULL. */
    void (*on_taken)(void *user);
    /* Each message of the answer, freed afterwards. */
    void (*on_reply)(void *user, const ProtobufCMessage *reply);
    /* Once, last: ST_OK or why not. May be NULL. The ask is freed after it. */
    void (*on_done)(void *user, int code, const char *text);
    void *user;
};

/* 0, and |on_done| will come from the loop, also when the loop's owner calls ask_cancel. Negative:
 * nobody is there (ST_UNAVAILABLE), nothing comes. |ask| may be NULL. */
int ask_start(uv_loop_t *loop, const struct ask_options *o, struct ask **ask, struct err *e);
void ask_cancel(struct ask *a); /* on_done says CANCELLED */

#endif
