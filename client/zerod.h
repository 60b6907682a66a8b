/* libzerod: a trainer's side of zerod. The manual is this header.
 *
 * A daemon (zerod) holds this rank's parameters, gradients and optimizer state. The trainer borrows
 * one unit at a time, hands back gradients, and may die at any moment: nothing is lost.
 *
 *     zerod_attach(NULL, &model, &z, &error);
 *     while (!done) {
 *         zerod_begin(z, &try);           // the only way into a try; restores the cursor
 *         if (try.loading) {              // step 0: once in a job's life
 *             for each unit to load: zerod_initial, fill in, zerod_load
 *         } else {
 *             for each micro-batch:
 *                 zerod_gather, compute, zerod_release, ..., zerod_grad, zerod_reduce
 *         }
 *         zerod_step(z, &step, &outcome); // COMMITTED or SKIPPED; then the next try is open
 *     }
 *     zerod_detach(z, true);
 *
 * Any call may answer ZEROD_ABORTED: the try is void (another rank's trainer died, say), all leases
 * are revoked, zerod_last_error() says why, and the next call must be zerod_begin(). After a
 * committed or skipped step zerod_begin() returns at once with the try that step() opened.
 *
 * What holds for every function, unless it says otherwise:
 *
 * Returns 0 or a negative `enum zerod_status`; out parameters are set only on 0. Texts for people:
 * zerod_last_error(). Each function lists what is its own; zerod_prefetch and all after return too
 *     ABORTED, FAILED_PRECONDITION: the try is void, and so says every call until zerod_begin;
 *         FAILED_PRECONDITION when a trainer broke a rule, on every rank alike (rank and rule are
 *         named), or when no try was entered yet; also while another call is not answered
 *     INVALID_ARGUMENT: an index outside of the model, NULL for an out parameter; nothing happened
 *     DEADLINE_EXCEEDED: the limit ran out
 *     UNAVAILABLE, INTERNAL: the attachment is over, zerod_detach is all that is left. A code that
 *         is not in the list below (a newer daemon's refusal) is passed on: treat it as INTERNAL.
 * One-way calls (prefetch, release, reduce, load) do not wait for the daemon's opinion: what it
 * refuses, a later call tells.
 *
 * Blocking: calls wait for the daemon until zerod_set_timeout's limit, one-way calls only for a
 * daemon that has 256 KiB of messages unread. A call that ran into its limit may be made again and
 * goes on waiting for the same answer; before that only zerod_release, zerod_abort and zerod_detach
 * are legal. A one-way call that did was not sent and changed nothing. What only tells (rank,
 * offsets, bytes, last error, status name) never waits and cannot fail.
 *
 * Ownership: what goes in is copied before the call returns. Pointers that come out are the
 * library's: those into lent memory are valid until it is given back, or the try is void; after
 * that the memory may change, but it stays mapped until zerod_detach, also when the daemon died (no
 * SIGBUS). |z| must be a live handle, NULL only where it says so. When memory for the library's own
 * tables runs out it says so on stderr and calls abort().
 *
 * Threads: a handle may go from thread to thread, one at a time; this holds for what only tells
 * too. Handles are independent of each other. No threads, signals (no SIGPIPE either) or global
 * state inside; zerod_attach reads the environment. Two handles in one process are two trainers and
 * need two daemons.
 *
 * Fork: the lent memory is not inherited. In a forked child calls are FAILED_PRECONDITION, naming
 * both processes; what only tells works, and zerod_detach frees the child's copy without ending the
 * attachment. A child may outlive its trainer and keeps no one out. Descriptors close on exec.
 */
#ifndef ZEROD_H
#define ZEROD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZEROD_API __attribute__((visibility("default")))

/* gRPC's codes. Those that calls below return, with what to do: */
enum zerod_status {
    ZEROD_OK = 0,
    ZEROD_INVALID_ARGUMENT = 3,    /* the call or model is wrong: fix the trainer */
    ZEROD_DEADLINE_EXCEEDED = 4,   /* the daemon did not answer in time */
    ZEROD_NOT_FOUND = 5,           /* zerod_attach: its memory's ticket ran out (5 s): once more */
    ZEROD_ALREADY_EXISTS = 6,      /* a live trainer is attached (its pid is named); a unit reduced
                                      twice in a micro-batch */
    ZEROD_PERMISSION_DENIED = 7,   /* another user's daemon */
    ZEROD_RESOURCE_EXHAUSTED = 8,  /* memory, or no slot that another's release could free */
    ZEROD_FAILED_PRECONDITION = 9, /* wrong state: out of plan, ranks differ, gather before load */
    ZEROD_ABORTED = 10,            /* the try is void: zerod_begin() */
    ZEROD_UNIMPLEMENTED = 12,      /* something that this version lacks */
    ZEROD_INTERNAL = 13,           /* a bug in zerod */
    ZEROD_UNAVAILABLE = 14,        /* the daemon is gone, or a step's outcome is unknown */
    ZEROD_DATA_LOSS = 15,          /* zerod_attach: its memory did not come whole: once more */
};

enum zerod_dtype { ZEROD_FP32 = 1, ZEROD_BF16 = 2, ZEROD_FP16 = 3 };
enum zerod_collective { ZEROD_GATHER = 1, ZEROD_REDUCE = 2 };

enum { ZEROD_TEXT = 320, ZEROD_USER = 16, ZEROD_CURSOR = 65536 };

struct zerod_error {
    int code; /* enum zerod_status */
    char text[ZEROD_TEXT];
};

/* First values that the daemons make themselves: element i is a pure function of seed, the tensor's
 * place in the model and i, so the same for every number of ranks and every strategy. */
enum zerod_init_kind {
    ZEROD_LOADED = 0, /* the trainer gives them: zerod_initial, zerod_load */
    ZEROD_ZEROS = 1,
    ZEROD_CONSTANT = 2, /* a */
    ZEROD_NORMAL = 3,   /* mean a, standard deviation b */
    ZEROD_UNIFORM = 4,  /* [a, b) */
};

struct zerod_init {
    enum zerod_init_kind kind;
    uint64_t seed;
    double a, b;
};

struct zerod_tensor {
    const char *name;              /* unique in the model, at most 127 bytes */
    uint32_t dims;                 /* 0 to 8; 0: one element */
    const uint64_t *shape;         /* row major */
    float weight_decay_multiplier; /* 1: decays, 0: does not */
    float lr_multiplier;           /* of the step's learning rate; 0 means 1 */
    bool frozen;                   /* gathered only: no gradient, optimizer state, reduce traffic */
    bool ignored;                  /* the trainer's own business: named, without memory here */
    bool absent_ok;                /* a micro-batch may leave its unit's reduce out: zeros */
    const char *alias;             /* the tensor whose memory this one is (tied); NULL: none */
    enum zerod_dtype dtype;        /* when gathered; 0: the model's */
    struct zerod_init init;
};

/* What is gathered together: FSDP's unit, a transformer block say. */
struct zerod_unit {
    const char *name;
    size_t tensor_count;
    const struct zerod_tensor *tensors;
    uint32_t contributions; /* reduces in a micro-batch, summed in call order; 0 means 1 */
};

enum zerod_optimizer {
    ZEROD_ADAMW = 1,
    ZEROD_ADAM = 2, /* weight decay added to the gradient (L2) */
    ZEROD_SGD = 3,
    ZEROD_LION = 4,
};

/* fp16: multiply the loss with zerod_try.loss_scale. Zeros mean 65536 (1 when not dynamic), 2, 1,
 * 1000, 2. */
struct zerod_scaling {
    bool dynamic;
    double start, factor, floor;
    uint32_t window, hysteresis;
};

struct zerod_op {
    enum zerod_collective kind;
    uint32_t unit; /* index in units */
};

/* The order of collectives of one micro-batch. "train" is required; "eval" (gathers only) is
 * what zerod_begin_eval() runs. Gathering a unit that is still held is no collective. */
struct zerod_plan {
    const char *name;
    size_t op_count;
    const struct zerod_op *ops;
};

struct zerod_model {
    size_t unit_count;
    const struct zerod_unit *units;
    size_t plan_count;
    const struct zerod_plan *plans;
    /* "ddp", "zero1", "zero2", "zero3" ("full_shard"), "hybrid_shard", "hybrid_zero2"; NULL: what
     * the daemon was started with, like 0 in the next four */
    const char *strategy;
    uint32_t shard_size;            /* of the hybrid strategies */
    enum zerod_dtype param_dtype;   /* of gathered parameters */
    enum zerod_dtype wire_dtype;    /* of gradient slots: fp32 or bf16 */
    enum zerod_dtype kept_dtype;    /* of gradients kept between micro-batches: fp32 or bf16 */
    uint32_t micro_batches;         /* K; 0 means 1 */
    enum zerod_optimizer optimizer; /* 0: AdamW; fp32 master weights and states */
    double beta1, beta2, epsilon;   /* AdamW, Adam, Lion */
    double weight_decay;
    double momentum; /* SGD */
    bool nesterov;
    double clip_value;       /* each averaged gradient is held within +- this; 0: not */
    double gradient_divisor; /* of the sum over ranks; 0: the sum of their weights, so a mean */
    struct zerod_scaling scaling;
};

struct zerod; /* one attachment */

/* Connects, registers the model (copied), maps the memory. Waits until all ranks have registered,
 * at most 600 s. |address|: path of the daemon's socket, NULL: $ZEROD_ADDRESS. On success *z is the
 * caller's until zerod_detach; else *e (NULL is allowed) has status and text. Returns
 * INVALID_ARGUMENT, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED (the model is over a
 * limit, or does not fit in the daemon's memory or ours), FAILED_PRECONDITION (ranks differ: rank,
 * tensor and both shapes are named; or the model is not the one whose state the daemon holds),
 * UNIMPLEMENTED, UNAVAILABLE (nobody listens there, or the daemon ends), DEADLINE_EXCEEDED,
 * INTERNAL (its answer cannot be true), NOT_FOUND, DATA_LOSS. */
ZEROD_API int zerod_attach(const char *address, const struct zerod_model *model, struct zerod **z,
                           struct zerod_error *e);

/* Ends the attachment and frees the handle (NULL is allowed), unmapping all; legal at any time.
 * Waits for the daemon's word, at most 2 s. |finished|: the training is over for this rank; false:
 * another trainer will come. */
ZEROD_API void zerod_detach(struct zerod *z, bool finished);

/* What is in effect, after the daemon filled in its own. They hold as long as the handle. */
ZEROD_API unsigned zerod_rank(const struct zerod *z);
ZEROD_API unsigned zerod_world_size(const struct zerod *z);
ZEROD_API const char *zerod_strategy(const struct zerod *z); /* "zero3", also for full_shard */
ZEROD_API enum zerod_dtype zerod_param_dtype(const struct zerod *z);
ZEROD_API enum zerod_dtype zerod_wire_dtype(const struct zerod *z); /* of gradient slots */
/* The how manieth of its daemon's, from 1: a trainer that was started again has a larger one. */
ZEROD_API uint64_t zerod_attachment(const struct zerod *z);

/* Where a tensor is, bytes from the start of the gathered unit, of its gradient slot, of its
 * initial values. ZEROD_NOWHERE: it has no place there (frozen: no gradient; ignored: none at all;
 * nothing to load), or an index is out of range. An alias is where its tensor is, in that one's
 * unit. */
#define ZEROD_NOWHERE UINT64_MAX
ZEROD_API uint64_t zerod_param_offset(const struct zerod *z, uint32_t unit, uint32_t tensor);
ZEROD_API uint64_t zerod_grad_offset(const struct zerod *z, uint32_t unit, uint32_t tensor);
ZEROD_API uint64_t zerod_initial_offset(const struct zerod *z, uint32_t unit, uint32_t tensor);
/* Bytes of a gathered unit, its gradient slot, its initial values, padding included; 0: none. */
ZEROD_API uint64_t zerod_param_bytes(const struct zerod *z, uint32_t unit);
ZEROD_API uint64_t zerod_grad_bytes(const struct zerod *z, uint32_t unit);
ZEROD_API uint64_t zerod_initial_bytes(const struct zerod *z, uint32_t unit);

/* The last failed call's status (not negated) and text, never NULL; code 0 before any. The
 * library's, overwritten by the next failure. zerod_attach's is in its |e|. */
ZEROD_API const struct zerod_error *zerod_last_error(const struct zerod *z);

/* How long a call waits, seconds; 600 until it is set, more than 1e9 is for ever. Does not wait
 * itself, and is no error in a forked child. INVALID_ARGUMENT: not above 0. */
ZEROD_API int zerod_set_timeout(struct zerod *z, double seconds);

/* The pointers are the library's: cursors until the next zerod_begin, |void_reason| until that or
 * the next zerod_step. */
struct zerod_try {
    uint64_t step;    /* 0: loading; training steps count from 1 */
    uint64_t attempt; /* from 1 */
    bool loading;
    const void *rank_cursor; /* committed with the step before */
    size_t rank_cursor_bytes;
    const void *shared_cursor;
    size_t shared_cursor_bytes;
    double loss_scale;       /* multiply the loss with it; 1 without loss scaling */
    const char *void_reason; /* why the try before was void; "" */
};

/* Enters the open try, waiting for it. After zerod_step the cursors are those given to it (on every
 * rank its own, also the shared one); else what the daemon kept. INVALID_ARGUMENT: |t| is NULL.
 * FAILED_PRECONDITION: in the middle of a try. DEADLINE_EXCEEDED, UNAVAILABLE, INTERNAL. */
ZEROD_API int zerod_begin(struct zerod *z, struct zerod_try *t);

/* Says that this step's first gather follows: what the train plan gathers first is brought while
 * the trainer still waits for its batch, and the first zerod_gather finds it there. Optional; no
 * effect behind that gather; no eval pass may follow in the same try. One-way. FAILED_PRECONDITION:
 * step 0, or in an eval pass. */
ZEROD_API int zerod_prefetch(struct zerod *z);

/* Borrows a unit: *params are its zerod_param_bytes, read-only, valid until the release. Gathering
 * a held unit counts its lease up, without waiting. FAILED_PRECONDITION: not what the plan says
 * next (the try is void), or step 0. RESOURCE_EXHAUSTED: all slots are held by this trainer;
 * release one and ask again. */
ZEROD_API int zerod_gather(struct zerod *z, uint32_t unit, const void **params);

/* Gives one lease back; with the last one *params is no longer valid. One-way, and the daemon
 * hears of it with the next call: make one before waiting for anything but zerod. INVALID_ARGUMENT:
 * not held. */
ZEROD_API int zerod_release(struct zerod *z, uint32_t unit);

/* A gradient slot for the unit: zerod_grad_bytes of the wire dtype; the trainer writes every
 * trainable tensor's elements (padding is ignored), or asks for it |zeroed|. Valid until reduce.
 * Several units may have one at a time; slots go back in the order in which they were asked for,
 * the plan's order of reduces. ALREADY_EXISTS: reduced as often as it may be in this micro-batch.
 * RESOURCE_EXHAUSTED: this trainer holds all slots. FAILED_PRECONDITION: it has one, or all of the
 * try's reduces are done, or nothing in it is trained, or in step 0 or an eval pass. None of these
 * voids the try. */
ZEROD_API int zerod_grad(struct zerod *z, uint32_t unit, bool zeroed, void **grad);

/* Sums the unit's slot over ranks; the slot is no longer the trainer's. One-way.
 * FAILED_PRECONDITION: no zerod_grad before, or another unit's slot comes first, or step 0. */
ZEROD_API int zerod_reduce(struct zerod *z, uint32_t unit);

/* Step 0: where to write the unit's initial values, fp32 whatever the dtypes, every rank the same;
 * only tensors without an initialiser are read. Units with such a tensor, in order, one at a time:
 * zerod_initial, fill in, zerod_load (one-way, after which *values are no longer the trainer's).
 * ALREADY_EXISTS: loaded already. FAILED_PRECONDITION: not in step 0, or nothing in it is loaded,
 * or another unit's values are not handed back; of zerod_load: no zerod_initial before. */
ZEROD_API int zerod_initial(struct zerod *z, uint32_t unit, float **values);
ZEROD_API int zerod_load(struct zerod *z, uint32_t unit);

struct zerod_step {
    double learning_rate;
    double clip;       /* largest norm of the averaged gradient; 0: none */
    double weight;     /* of this rank's gradients in the mean; 0 means 1 */
    size_t user_count; /* up to 16 doubles, summed over ranks in rank order (a mean loss, say) */
    const double *user;
    const void *rank_cursor; /* up to 64 KiB of the trainer's own: data position, RNG */
    size_t rank_cursor_bytes;
    const void *shared_cursor; /* rank 0's is kept for all */
    size_t shared_cursor_bytes;
};

enum zerod_outcome_kind { ZEROD_COMMITTED = 1, ZEROD_SKIPPED = 2 };

struct zerod_outcome {
    enum zerod_outcome_kind kind; /* skipped: a gradient was not finite; the cursor advanced */
    double grad_norm;
    double user[ZEROD_USER]; /* sums over ranks */
    uint64_t next_step;
    double loss_scale; /* of the next step */
};

/* Ends the try: 0 with COMMITTED or SKIPPED on every rank alike. Waits for all ranks. ABORTED:
 * void, redo it after zerod_begin(). FAILED_PRECONDITION: ranks gave different numbers, a lease
 * leaked, or reduces are missing (void too); in an eval pass (not void). INVALID_ARGUMENT: a number
 * that is negative or not finite, too many doubles, a cursor too long: the try goes on.
 * UNAVAILABLE, also when the limit ran out: outcome unknown, only zerod_detach is legal then.
 * |step| NULL: all zero (loading). */
ZEROD_API int zerod_step(struct zerod *z, const struct zerod_step *step, struct zerod_outcome *out);

/* An eval pass inside the open try, before its first train collective: gathers along the plan
 * "eval", changes nothing. Leases end with the pass. Both wait for this rank's daemon.
 * FAILED_PRECONDITION: no plan "eval", or step 0, or in a pass already, or not before; of the end:
 * in no pass. */
ZEROD_API int zerod_begin_eval(struct zerod *z);
ZEROD_API int zerod_end_eval(struct zerod *z);

/* A live trainer voids its own try (out of memory in a batch, a caught exception): everyone comes
 * back through zerod_begin(). 0: it is void, nothing is waited for. |reason| is told to all, its
 * first 200 bytes; NULL: none. */
ZEROD_API int zerod_abort(struct zerod *z, const char *reason);

/* "ABORTED"; sign does not matter; "UNKNOWN" for what is no code. Static, on any thread. */
ZEROD_API const char *zerod_status_name(int code);

#ifdef __cplusplus
}
#endif
#endif
