/* One attachment: a trainer's stream, its process, and what it waits for. Shared by session.c (who
 * may attach), depart.c (the end of it), calls.c (the trainer's calls) and rank.c (the answers). */
#ifndef ZD_ZEROD_SESSION_H
#define ZD_ZEROD_SESSION_H

#include "zerod/rank.h"

enum session_state {
    SESSION_AGREEING, /* the coordinator compares the ranks' models */
    SESSION_WAITING,  /* for the outcome of its predecessor's last try */
    SESSION_ATTACHED,
};

struct session {
    struct rank *rank;
    struct grpc_call *call;
    enum session_state state;
    pid_t pid, group; /* group: its process group if that is its own, see --trainer-groups; or 0 */
    int pidfd;
    uv_poll_t death; /* of the trainer, by its pidfd */
    bool detached;   /* said goodbye ... */
    bool finished;   /* ... for good */
    uint64_t register_id;

    bool entered; /* the trainer is in the try |fence| */
    struct fence fence;
    uint64_t begin_id;               /* a begin() that waits; 0: none */
    uint64_t step_id;                /* a step() that waits; 0: none */
    Zerod__V1__TrainerRequest *held; /* a step() not yet told to job/: a drill */
    bool eval;

    /* of the try (or eval pass): to time the trainer's waits */
    uint32_t gathers_asked, gathers_told, reduces_asked;
    int64_t try_since_ns, gather_since_ns, step_since_ns;
    uint64_t gather_wait_ns;
};

/* session.c */
void session_say(struct session *s, Zerod__V1__TrainerReply *reply);
void session_refuse(struct session *s, uint64_t id, int code, const char *text, bool is_void);
/* The answer to Register once memory is there: attaches. */
void session_attach(struct session *s);

/* registered.c: |bytes| of the two descriptors. */
void registered_say(struct session *s, const uint8_t token[HANDOVER_TOKEN],
                    const uint64_t bytes[2]);

/* depart.c */
void session_drop(struct session *s); /* out of the rank; freed by the loop */
void session_lost(struct session *s); /* its stream has ended */
/* Ends the attachment of a trainer that is dead; |s| is gone then. */
void session_lose(struct session *s, const char *text);
void session_on_death(uv_poll_t *p, int status, int events);
/* A finished trainer's try is left now. */
void session_end_farewell(struct rank *r);

/* calls.c */
void calls_dispatch(struct session *s, const Zerod__V1__TrainerRequest *m);
void calls_resume_step(struct session *s); /* what held a step() back may be over */
void calls_enter(struct session *s, const struct fence *f); /* the trainer is in this try now */

#endif
