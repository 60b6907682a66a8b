/* A trainer that follows its plan, on one of wire.h's calls, for targets to mix into what they feed
 * a daemon with. It computes nothing: gradients and initial values are what the memory holds. */
#ifndef ZD_FUZZ_TRAINER_H
#define ZD_FUZZ_TRAINER_H

#include "base/fence.h"
#include "models.h"
#include "wire.h"

struct trainer {
    unsigned shape;                            /* of its model */
    void (*say)(Zerod__V1__TrainerRequest *m); /* how it speaks; |m| may be changed */
    struct grpc_call *call;                    /* NULL: it has none */

    /* As its stream tells it. */
    bool registered, entered, loading, asks; /* asks: begin() or step() has no answer yet */
    struct fence fence, stepped;             /* the last try entered, and where step() was called */
    unsigned position, outcomes;
    int holds; /* the unit that is to be released; -1: none */
};

static inline bool trainer_is_here(const struct trainer *t) {
    return t->call && t->call->is_open;
}

/* Its stream has ended, or another one begins. */
void trainer_forget(struct trainer *t);
/* Says, on any call, that it comes. */
void trainer_register(const struct trainer *t, struct grpc_call *call);
/* The next thing that it has to say, if it is registered and nothing is to be waited for. */
void trainer_go_on(struct trainer *t);
/* Takes in an answer; what is wrong with any answer is found here. */
void trainer_hear(struct trainer *t, const Zerod__V1__TrainerReply *m);

#endif
