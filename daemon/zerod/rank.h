/* What a rank's daemon is made of, and who does what:
 *
 *   main.c     options, loop, start and end
 *   link.c     the stream to the coordinator; carries the protocol's messages to and from job/
 *   session.c  the Trainer service: one stream is one attachment; who may attach
 *   registered.c  the answer to a registration: where everything is
 *   depart.c   how an attachment ends
 *   calls.c    a trainer's calls, checked and passed to engine/ and job/
 *   rank.c     the ops between job/, engine/ and the session
 *   memory.c   from the agreed model to mapped memory: engine, offers to peers, offers from peers
 *   admin.c    Status, Describe and Hash
 *   drill.c    kills its own trainer at a given point, to show that nothing is lost
 *
 * All of it runs on the loop's thread; the engine's worker only rings `work`.
 */
#ifndef ZD_ZEROD_RANK_H
#define ZD_ZEROD_RANK_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "device/arena.h"
#include "engine/engine.h"
#include "job/rank.h"
#include "layout/layout.h"
#include "process/convert.h"
#include "process/life.h"
#include "process/serve.h"
#include "rpc/dial.h"
#include "rpc/handover.h"
#include "zerod/drill.h"

enum { WARNING_TEXT = 512 };

struct options {
    const char *listen, *handover, *coordinator, *job, *isa;
    uint64_t rank, world, shard_size, gather_slots, grad_slots, threads, device_memory, holder_fd;
    uint64_t observers;
    struct model_defaults defaults;
    const char *strategy_text, *param_text, *wire_text, *kept_text, *drill_text;
    bool trainer_groups, no_overlap, dry_run, help;
};

/* The trainer's waiting, as `zeroctl status` shows it; ns. */
struct waits {
    uint64_t gather_ns, step_ns, compute_ns;
};

struct session; /* session.c */

struct rank {
    struct options options;
    uv_loop_t loop;
    struct life *life;
    struct serve serve;
    struct handover *handover;
    uv_async_t work; /* the engine's worker rings */
    bool ending, failed;

    /* link.c */
    struct rpc_dial *dial;
    struct grpc_stream *stream;
    uv_timer_t redial;
    int64_t dial_until_ns;
    struct buf unsent;      /* a registration that waits for the stream */
    struct fence last_open; /* as the last try was opened, for status */

    /* memory.c */
    struct arena records_memory; /* adopted memory that must be there before the model is known */
    struct records *records;
    struct model model; /* agreed once |agreed|, a candidate before */
    bool has_model, agreed, ready;
    struct buf registration; /* the candidate as it was sent, packed */
    struct layout layout;
    struct memory planned;      /* what engine_account said */
    char warning[WARNING_TEXT]; /* about the model's units; "" */
    const struct kernels *kernels;
    struct engine *engine; /* NULL until agreed */
    unsigned taking;       /* peers' descriptors on their way */

    struct job_rank *job;
    bool in_doubt; /* voted YES, not determined yet */

    bool finishing;                       /* its trainer has finished, see depart.c */
    bool peer_finished[LAYOUT_MAX_RANKS]; /* as the coordinator relays it */
    struct session *session;              /* the live or last attachment; NULL: none yet */
    uint64_t attachment;                  /* number of the last one */
    struct waits waits;
    struct drill drill;

    struct grpc_call *hash_call; /* a Hash that waits for the engine */
    uint64_t skips_in_row;       /* of the last decision, like ... */
    double scale;                /* ... what losses are multiplied with */
    /* At the last decision; since the one before it. By group: within, between. */
    struct traffic sent[2], sent_last_step[2];
};

/* main.c: ends the process in order; the first cause counts and is logged. |reason| NULL: a wanted
 * end. */
void rank_end(struct rank *r, const char *reason);

/* rank.c */
extern const struct job_rank_ops rank_job_ops;
extern const struct engine_callbacks rank_engine_callbacks;
void rank_hear_engine(struct rank *r); /* its worker rang, or a try changed; may end the process */

/* link.c: the caller fills the oneof. */
void link_start(struct rank *r);
void link_close(struct rank *r);
void link_send(struct rank *r, const Zerod__V1__DaemonMessage *m);
void link_send_registration(struct rank *r, const uint8_t *bytes, size_t n);

/* memory.c */
int rank_memory_records(struct rank *r, struct err *e);  /* before the first grant */
int rank_memory_allocate(struct rank *r, struct err *e); /* agreed: engine, offers, Ready */
int rank_memory_attach(struct rank *r, struct err *e);   /* a fresh gradient arena, offered */
void rank_memory_take_offer(struct rank *r, const Zerod__V1__Offer *o);
void rank_memory_free(struct rank *r);

/* session.c */
extern const struct grpc_service *session_service(struct rank *r);
void session_agreed(struct rank *r); /* the coordinator agreed to the model */
void session_refused(struct rank *r, int code, const char *text);
void session_peer_finished(struct rank *r, unsigned rank);
void session_determined(struct rank *r); /* no doubt left: a waiting attach goes on */
void session_end(struct rank *r, bool kill_trainer, const char *reason);
uint64_t session_trainer_pid(const struct rank *r); /* 0: none attached */

/* admin.c */
extern const struct grpc_service *admin_service(struct rank *r);
void admin_hashed(struct rank *r, uint64_t sum, uint64_t version); /* by the engine */
void admin_end(struct rank *r); /* a Hash that waits is told that it comes to nothing */

#endif
