/* The words of the step protocol (design §3, §8, §9): fence, vote, decision, and the records that a
 * daemon keeps of them in adopted memory. Plain data; compared and packed by value.
 *
 * Steps count from 0: step 0 loads the initial values and is decided like any other, training steps
 * count from 1, so "version v" is the state after step v. t counts commits of training steps.
 */
#ifndef ZD_JOB_WORDS_H
#define ZD_JOB_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fence.h"
#include "kernels/scalars.h"

enum {
    JOB_MAX_RANKS = 1024,
    JOB_USER = 16,              /* user doubles in a step */
    JOB_CURSOR = 65536,         /* bytes of one cursor */
    JOB_REASON = ERR_TEXT + 32, /* a text and the rank that it is about */
    JOB_UUID = 16,
};

/* What every rank must give alike in step(). */
struct scalars {
    double learning_rate, clip;
    uint32_t micro_batches;
};

struct vote {
    struct fence fence;
    bool yes;
    int code;                /* of a NO: enum status */
    char reason[JOB_REASON]; /* of a NO, names the rank */
    double sum_squares;      /* of the rank's (virtual) shard of the summed gradient */
    bool non_finite;
    struct scalars scalars;
    double weight; /* of this rank in the mean; > 0 */
    uint32_t user_count;
    double user[JOB_USER];
    uint64_t checksum;     /* step 0: of |checksums| and their places; otherwise 0. This decides */
    size_t checksum_count; /* step 0: one a unit, to name the unit that differs; 0 in a record */
    const uint64_t *checksums; /* borrowed for the call */
    size_t rank_cursor_bytes, shared_cursor_bytes;
    const uint8_t *rank_cursor, *shared_cursor; /* borrowed for the call */
};

enum outcome { OUTCOME_COMMIT = 1, OUTCOME_SKIP = 2, OUTCOME_ABORT = 3 };

struct decision {
    struct fence fence; /* of the votes that it was computed from; kept when it is sent again */
    enum outcome outcome;
    uint64_t t, skips_in_row;
    double learning_rate;
    struct scale_state scale; /* for the step after this one */
    struct step_scalars scalars;
    uint32_t user_count;
    double user[JOB_USER];        /* sums in rank order */
    size_t shared_cursor_bytes;   /* rank 0's */
    const uint8_t *shared_cursor; /* borrowed */
};

/* ---- adopted memory ----
 */

/* Each record is written whole and its crc last; a record whose crc is wrong is no record. Votes
 * and decisions have two buffers, of even and of odd steps, never "the older one". Grants
 * alternate. */
struct vote_record {
    uint32_t crc;     /* crc32c of what follows, cursors up to their lengths */
    struct vote vote; /* pointers are NULL here */
    uint8_t rank_cursor[JOB_CURSOR], shared_cursor[JOB_CURSOR];
};

struct decision_record {
    uint32_t crc;
    struct decision decision; /* pointer is NULL here */
    uint8_t shared_cursor[JOB_CURSOR];
};

struct grant_record {
    uint32_t crc;
    uint64_t generation;
    uint8_t coordinator[JOB_UUID];
};

struct records {
    struct grant_record grants[2];
    struct vote_record votes[2];
    struct decision_record decisions[2];
};

/* Do two messages, tags or records belong to one try? */
bool same_try(const struct fence *a, const struct fence *b);

/* Records: write copies everything in; read returns false when there is none (or a torn one) and
 * otherwise fills *out, whose cursor pointers then point into |r|. */
void records_write_vote(struct records *r, const struct vote *v);
bool records_read_vote(const struct records *r, uint64_t step, struct vote *out);
void records_write_decision(struct records *r, const struct decision *d);
bool records_read_decision(const struct records *r, uint64_t step, struct decision *out);
bool records_last_decision(const struct records *r, struct decision *out); /* the newest */
void records_write_grant(struct records *r, uint64_t generation, const uint8_t uuid[JOB_UUID]);
bool records_read_grant(const struct records *r, uint64_t *generation, uint8_t uuid[JOB_UUID]);

#endif
