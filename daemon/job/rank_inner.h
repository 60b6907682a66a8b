/* What rank.c (trainer, engine, vote) and rank_hears.c (coordinator) share of a rank's machine. */
#ifndef ZD_JOB_RANK_INNER_H
#define ZD_JOB_RANK_INNER_H

#include "base/buf.h"
#include "job/rank.h"

enum stage {
    STAGE_NONE,   /* no try, or one that is known to be void */
    STAGE_OPEN,   /* no vote yet */
    STAGE_DOOMED, /* the vote will be NO; only inside a call */
    STAGE_VOTED,  /* recorded and sent; in doubt after a YES */
};

struct job_rank {
    unsigned rank;
    struct records *records;
    const struct job_rank_ops *ops;
    void *ctx;

    /* What the records say, so that nothing is read and checked again in each call. */
    uint64_t granted, decided;
    uint8_t granted_to[JOB_UUID];

    uint64_t granted_here; /* the number granted in this life; a predecessor's does not count */

    struct fence fence; /* the last try opened in this life; generation 0: none */
    enum stage stage;
    bool said_yes;
    bool arrived; /* its step() */
    bool reduced;
    double sum_squares;
    bool non_finite;
    struct buf checksums; /* of uint64_t */
    struct vote vote;     /* of step(); cursors in the two buffers */
    struct buf rank_cursor, shared_cursor;

    uint64_t attachment;
    bool attached;
    bool begins; /* waits in begin() */
    bool inside; /* is in the try |fence|, and was not told that it is over */

    struct kept_begin {
        bool any;
        struct fence fence;
        int code;
        char reason[JOB_REASON];
    } begin;

    int doom_code;
    char doom_reason[JOB_REASON];
    char void_reason[JOB_REASON]; /* why the last try is over; "" if it was determined */
};

/* Opens a try that no trainer is in. */
void rank_open(struct job_rank *j, const struct fence *fence);
/* Lets the trainer that waits in begin() in, if it can. */
void rank_enter(struct job_rank *j);
/* Votes if the vote is due. */
void rank_vote(struct job_rank *j);
/* Has it promised to follow whatever is determined? */
bool rank_in_doubt(const struct job_rank *j);
/* Acts on the BEGIN that was kept, or drops it, or keeps it on. */
void rank_begin_kept(struct job_rank *j);

#endif
