/* Between the wire's messages (proto/zerod.proto) and the structs that job/ and layout/ speak.
 * Checks every size and count that a peer sent; copies nothing that the caller can borrow. */
#ifndef ZD_PROCESS_CONVERT_H
#define ZD_PROCESS_CONVERT_H

#include "job/coordinator.h"
#include "layout/model.h"
#include "zerod.pb-c.h"

/* What a daemon was started with fills in what a trainer left open. What is 0 here was left open
 * too: then the trainer's word counts, and without one fp32 and all ranks. */
struct model_defaults {
    enum strategy strategy; /* never open */
    uint32_t shard_size;
    enum dtype param_dtype, wire_dtype, kept_dtype;
};

/* Builds and checks |m| (the caller's, to free also on failure); fields of 0 mean what the proto
 * says. INVALID_ARGUMENT and the rest of model_check; FAILED_PRECONDITION when the trainer asks for
 * another strategy, shard size or dtype than the daemon was started with (both are named). |d|
 * NULL: nothing is filled in or compared. */
int model_from_message(const Zerod__V1__Model *from, const struct model_defaults *d,
                       struct model *m, struct err *e);
/* Writes what was filled in back into the message that |m| came from. */
void model_fill_message(const struct model *m, Zerod__V1__Model *to);

struct fence fence_from_message(const Zerod__V1__Fence *from); /* NULL: all zero */
Zerod__V1__Fence fence_to_message(const struct fence *f);

/* |out| borrows cursors and checksums from |from|. INVALID_ARGUMENT: more than JOB_USER doubles or
 * JOB_CURSOR bytes, weights or numbers that are not finite, no fence, a NO without status or
 * reason.
 */
int vote_from_message(const Zerod__V1__Vote *from, struct vote *out, struct err *e);
int decision_from_message(const Zerod__V1__Decision *from, struct decision *out, struct err *e);
/* A grant's report. At most two votes and decisions, each of its own step parity. */
int report_from_message(const Zerod__V1__Grant *from, struct job_report *out, struct err *e);

/* A message and the parts that it points to; fill, send, forget: it borrows from the struct. */
struct vote_message {
    Zerod__V1__Vote vote;
    Zerod__V1__Fence fence;
    Zerod__V1__Scalars scalars;
};
void vote_to_message(const struct vote *from, bool with_shared_cursor, struct vote_message *to);

struct decision_message {
    Zerod__V1__Decision decision;
    Zerod__V1__Fence fence;
};
void decision_to_message(const struct decision *from, struct decision_message *to);

#endif
