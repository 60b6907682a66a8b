/* Inside libzerod: one attachment, and what its files offer each other.
 *
 * model.c packs the trainer's model; attach.c opens and ends an attachment; registered.c keeps what
 * the daemon answered; memory.c maps what the ticket gives; stream.c sends requests and takes in
 * what the daemon says; lending.c keeps count; calls.c and step.c are the rest of zerod.h. All
 * waiting happens in stream_wait.
 *
 * The daemon speaks at any time; stream.c turns each of its messages into state at once, and the
 * calls look at that state. So a call never parses an answer, and a try that became void is noticed
 * by whatever call comes next. */
#ifndef ZD_CLIENT_CLIENT_H
#define ZD_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fence.h"
#include "client/lending.h"
#include "client/zerod.h"
#include "proto/grpc_channel.h"
#include "zerod.pb-c.h"

enum {
    ADDRESS_MAX = 108, /* bytes with NUL, as sun_path */
    MICRO_BATCHES_DEFAULT = 1,
};
#define TIMEOUT_DEFAULT_S 600.0
#define TIMEOUT_MAX_S 1e9             /* longer means for ever */
#define DETACH_NS INT64_C(2000000000) /* for the daemon's word at the end */

enum state {
    STATE_VOID, /* no try is entered: zerod_begin; |why| is what calls answer */
    STATE_OPEN,
    STATE_DEAD, /* the attachment is over: zerod_detach; |why| likewise */
};

/* A request whose answer is awaited; it outlives a call that ran into its deadline. */
enum asked_kind {
    ASKED_NOTHING,
    ASKED_REGISTER,
    ASKED_BEGIN,
    ASKED_GATHER,
    ASKED_STEP,
    ASKED_BEGIN_EVAL,
    ASKED_END_EVAL,
    ASKED_DETACH,
};

struct asked {
    enum asked_kind kind;
    uint32_t unit; /* of a gather */
    uint64_t id;
};

struct mapping {
    void *address; /* NULL: nothing is mapped */
    size_t bytes;
};

struct cursors {
    struct buf rank, shared; /* owned */
};

struct zerod {
    char address[ADDRESS_MAX];
    pid_t pid; /* that attached: a forked child is not this trainer */
    struct grpc_channel *channel;
    struct grpc_stream *stream; /* NULL once it has ended */
    int64_t timeout_ns;
    uint64_t last_id;

    uint32_t rank, world_size;
    uint64_t attachment;
    int strategy; /* enum strategy */
    enum zerod_dtype param_dtype, wire_dtype;
    uint32_t micro_batches;
    struct mapping params, grads;
    struct lending lending;

    enum state state;
    struct err why; /* of VOID and DEAD */
    struct fence fence;
    bool loading;
    bool fresh;             /* nothing was done in the open try yet */
    double loss_scale;      /* of the open try */
    struct cursors current; /* what zerod_begin showed */
    struct cursors given;   /* by the step under way or just committed */
    bool given_is_next;     /* zerod_begin shows |given| */
    char void_reason[ERR_TEXT];

    struct asked asked;
    bool answered;                     /* by Done */
    struct err refusal;                /* of |asked|; code 0: none */
    struct err pending;                /* of a one-way message; the next call tells */
    Zerod__V1__Registered *registered; /* owned; during zerod_attach */
    struct zerod_outcome outcome;      /* of the step, once |have_outcome| */
    bool have_outcome;
    bool put; /* a message waits for the next call to send it */
    struct zerod_error last;
};

/* ---- model.c ---- */

/* The checked model as a request that points into one block, to be freed by the caller, and into
 * the trainer's own model. NULL: INVALID_ARGUMENT or RESOURCE_EXHAUSTED is in |e|. */
struct packed_model {
    Zerod__V1__Model model;
    Zerod__V1__Unit *units;
    Zerod__V1__Unit **unit_list;
    Zerod__V1__Tensor *tensors;
    Zerod__V1__Tensor **tensor_list;
    Zerod__V1__Initializer *inits; /* one a tensor */
    Zerod__V1__LossScaling scaling;
    Zerod__V1__Plan *plans;
    Zerod__V1__Plan **plan_list;
    Zerod__V1__PlanOp *ops;
    Zerod__V1__PlanOp **op_list;
};
/* 0 or -ST_INVALID_ARGUMENT, -ST_RESOURCE_EXHAUSTED: the text names unit, tensor, value and limit.
 * The result points into |m| and is freed with packed_model_free, also after a failure. */
int packed_model_make(const struct zerod_model *m, struct packed_model *p, struct err *e);
void packed_model_free(struct packed_model *p);
/* Elements of a checked tensor: the product of its shape, UINT64_MAX when that is more. */
uint64_t tensor_elements(const struct zerod_tensor *t);

/* ---- registered.c ---- */

/* -ST_INTERNAL: the daemon's answer cannot be true of |m|. */
int registered_check(const struct zerod_model *m, const Zerod__V1__Registered *r, struct err *e);
/* Copies z->registered and what later calls need of the model into |z|. */
void registered_keep(struct zerod *z, const struct zerod_model *m);

/* ---- memory.c ---- */

/* Fetches both descriptors of the ticket, checks sizes and seals, maps; closes them. On failure
 * nothing is mapped. -ST_INTERNAL: not what was promised; else as take_descriptors. */
int memory_map(const Zerod__V1__Registered *r, int64_t timeout_ns, struct mapping *params,
               struct mapping *grads, struct err *e);
void memory_unmap(struct mapping *m);

/* ---- stream.c ---- */

/* Opens Trainer/Attach on z->channel. */
void stream_open(struct zerod *z);
/* Sends a request with a new id, whose answer is then awaited. 0 or the negative status (dead). */
int stream_ask(struct zerod *z, enum asked_kind kind, uint32_t unit,
               Zerod__V1__TrainerRequest *request);
/* Waits until a one-way message may be queued; calls that change something here wait first. 0, or
 * negative with z->last set. */
int stream_room(struct zerod *z);
/* Sends a one-way message at once, with the fence of the try. 0, or negative with z->last set. */
int stream_tell(struct zerod *z, Zerod__V1__TrainerRequest *request);
/* The same, but it goes out with what the next call sends: for what another call follows soon. */
int stream_put(struct zerod *z, Zerod__V1__TrainerRequest *request);
/* Writes what is queued and takes in what is there, without waiting. */
void stream_drain(struct zerod *z);
/* Takes in what is there; writes only when stream_put left something to be written. */
void stream_look(struct zerod *z);
/* Waits until the daemon said something. 0, or -ST_DEADLINE_EXCEEDED; nothing is set. */
int stream_wait(struct zerod *z, int64_t deadline);
int64_t stream_deadline(const struct zerod *z); /* of a call that begins now */

/* The try is over, or the whole attachment; the first reason stays. */
void state_void(struct zerod *z, int code, const char *text);
void state_dead(struct zerod *z, int code, const char *text);
/* Enters a try. */
void state_enter(struct zerod *z, const Zerod__V1__Fence *fence, bool loading);

/* ---- calls.c ---- */

/* Sets zerod_last_error and returns -code. */
int client_fail(struct zerod *z, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int client_fail_with(struct zerod *z, const struct err *e);
/* What every call starts with: not a forked child, not dead. */
int client_check(struct zerod *z);
/* The same for calls inside a try: it is open, no other call's answer is awaited (|kind|, |unit|
 * are this call's), no one-way message was refused. |call| is its name. */
int client_enter(struct zerod *z, const char *call, enum asked_kind kind, uint32_t unit);
/* What ends the waiting for |asked|: void, dead, or refused; 0: none of it. */
int client_interrupted(struct zerod *z);

/* ---- attach.c ---- */

/* zerod_attach with a limit, seconds: what tests use. */
int attach_within(const char *address, const struct zerod_model *model, double seconds,
                  struct zerod **z, struct zerod_error *e);
int64_t seconds_to_ns(double seconds);

#endif
