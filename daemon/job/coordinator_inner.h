/* What coordinator.c (roster, votes) and recover.c (grants) share of the coordinator's machine. */
#ifndef ZD_JOB_COORDINATOR_INNER_H
#define ZD_JOB_COORDINATOR_INNER_H

#include "base/buf.h"
#include "job/coordinator.h"

struct job_coordinator {
    unsigned world;
    uint8_t uuid[JOB_UUID];
    struct decide_options options;
    const struct job_coordinator_ops *ops;
    void *ctx;

    /* The roster. */
    bool *joined;
    unsigned joined_count;
    bool news;        /* somebody joined since the last ASK */
    bool ready;       /* all memory is offered */
    bool gone;        /* refused */
    uint64_t highest; /* number that any daemon is known to have granted */
    int lost_code;    /* why the generation rises: the first loss since the last one began */
    char lost_reason[JOB_REASON];

    /* The number, and the reports that came with its grants until all are in. */
    uint64_t generation;
    bool active;
    struct job_report *reports; /* pointers in them are NULL; [rank] */
    bool *granted;
    unsigned granted_count;

    /* The try. */
    struct fence fence; /* attempt 0: none yet */
    struct vote *votes; /* [rank]; checksums are owned */
    bool *voted;
    unsigned voted_count;
    int64_t first_vote_ns;
    uint64_t attempts;
    struct fence told; /* the newest that people were told the end of */

    /* The last decision. */
    bool has_last;
    struct decision last;
    struct buf last_cursor;    /* its shared cursor */
    struct buf vote_cursor[2]; /* rank 0's shared cursor, as voted; in reports by step parity */
};

static inline void buf_refill(struct buf *b, const uint8_t *bytes, size_t n) {
    b->off = b->len = 0;
    if (n) {
        buf_append(b, bytes, n);
    } else {
        (void)buf_reserve(b, 1); /* so that its bytes have an address */
    }
}

/* Forgets the votes of the try before and makes |fence| the one that votes are taken for. */
void coordinator_open(struct job_coordinator *c, const struct fence *fence);
void coordinator_begin_all(struct job_coordinator *c, int code, const char *reason);
/* |d| becomes the last decision (copied). */
void coordinator_take(struct job_coordinator *c, const struct decision *d);
/* Tells people of a try's end, once. */
void coordinator_tell(struct job_coordinator *c, const struct decision *d, int code,
                      const char *reason);
/* Asks the roster, if it is complete, for the number above all that are known. */
void coordinator_ask(struct job_coordinator *c);
/* With all grants and all memory: finishes what is determined, voids the rest, opens a try. */
void coordinator_recover(struct job_coordinator *c);

#endif
