/* A daemon of one rank for libzerod's tests: a thread that serves Trainer/Attach on
 * proto/grpc_server.h, hands two memfds over and follows the registered plan, gathering ahead as
 * far as its slots go. It holds no state and updates nothing; what a gathered unit contains is
 * fake_param(unit). Tests bend it by options, by a hook that sees each request first, and by
 * functions that run on its thread. */
#ifndef ZD_TESTS_CLIENT_FAKE_H
#define ZD_TESTS_CLIENT_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/zerod.h"
#include "proto/grpc_server.h"
#include "zerod.pb-c.h"

enum {
    FAKE_UNITS = 8,
    FAKE_SLOTS = 16,
    FAKE_OPS = 32,
    FAKE_CASES = 16,
    FAKE_PATH = 96,
    FAKE_SCALE = 8
};

struct fake;

struct fake_options {
    unsigned gather_slots, grad_slots;      /* 0: 2 */
    uint64_t promise_params, promise_grads; /* 0: what the memfds have */
    bool unsealed, swapped, no_token, bad_place, one_descriptor;
    int start_step; /* 0: loading */
    /* True: the request is dealt with. On the fake's thread. */
    bool (*hook)(struct fake *f, const Zerod__V1__TrainerRequest *r);
};

struct fake_slot {
    bool used;
    uint32_t unit;
};

struct fake {
    struct fake_options o;
    char dir[FAKE_PATH - 16], path[FAKE_PATH], handover_path[FAKE_PATH];
    int listen_fd, handover_fd, wake_fd, conn_fd, memfds[2];
    uint8_t *params;
    float *grads;
    uint64_t param_bytes, grad_bytes, slot_bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t done;
    void (*run)(struct fake *f, void *arg); /* under |lock| */
    void *run_arg;
    bool stop;

    struct grpc_conn *conn;
    struct grpc_call *call;

    /* the model */
    unsigned units, train_gathers, eval_gathers, reduces, micro_batches;
    uint64_t elements[FAKE_UNITS];
    uint32_t train[FAKE_OPS], eval[FAKE_OPS], reduce[FAKE_OPS];

    /* the try */
    Zerod__V1__Fence fence;
    bool open, in_eval;
    unsigned pushed, asked;    /* gathers of the running plan */
    unsigned granted, reduced; /* of the try */
    struct fake_slot slots[FAKE_SLOTS];
    char void_reason[128];
    uint8_t cursors[2][64]; /* of the last step: rank, shared */
    size_t cursor_bytes[2];

    atomic_uint got[FAKE_CASES];  /* requests by call_case */
    atomic_uint sent[FAKE_CASES]; /* replies by answer_case */
    atomic_uint attachments, ended;
    _Atomic float last_sum[FAKE_UNITS]; /* of the slot reduced or loaded last */
};

struct fake *fake_start(const struct fake_options *o); /* NULL: defaults */
void fake_stop(struct fake *f);                        /* removes its folder too */
/* Runs |fn| on the fake's thread and waits for its end. */
void fake_on_thread(struct fake *f, void (*fn)(struct fake *f, void *arg), void *arg);
/* Between these the fake neither reads nor writes. */
void fake_pause(struct fake *f);
void fake_resume(struct fake *f);
void fake_hang_up(struct fake *f); /* as if the daemon was killed: connection and sockets go */
void fake_void(struct fake *f, int code, const char *text);
void fake_bytes(struct fake *f, const void *bytes, size_t n); /* raw, on the connection */
void fake_wait_ended(struct fake *f, unsigned attachments);   /* until so many ended; 5 s at most */

/* On the fake's thread. */
void fake_send(struct fake *f, Zerod__V1__TrainerReply *r);
void fake_refuse(struct fake *f, uint64_t id, int code, const char *text, bool is_void);
void fake_request(struct fake *f, const Zerod__V1__TrainerRequest *r); /* protocol.c */
void fake_push(struct fake *f);                                        /* what may be pushed now */
void fake_gathered(struct fake *f, uint32_t position, uint32_t unit, uint64_t offset);

float fake_param(uint32_t unit);

/* The tests' model: units "a" (64x3 + 5), "b" (10), "c" (no dimension). The plan: gather a b c,
 * reduce c, gather b, reduce b a; eval: a b c. */
const struct zerod_model *fake_model(void);

/* A trainer of that model: attached (asserts), one micro-batch, all of a try up to step(); what
 * they return is the first call's that failed. Gathered values are asserted. */
struct zerod *trainer_attach(const struct fake *f);
int trainer_load(struct zerod *z);
int trainer_micro_batch(struct zerod *z);
int trainer_try(struct zerod *z);

#endif
