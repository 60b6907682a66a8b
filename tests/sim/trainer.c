/* The simulated trainer: begin, reduce, step, and what its daemon tells it. Notices take their
 * time, so it acts on what it believed before. */
#include <string.h>

#include "world.h"

void trainer_notice(struct sim_rank *r, const struct notice *n) {
    struct trainer *t = &r->trainer;
    if (t->status == GONE) {
        return;
    }
    if (t->notice_count == NOTICES) {
        violate("rank %u tells its trainer %d things that it does not wait for", r->rank, NOTICES);
    }
    t->notices[t->notice_count++] = *n;
}

static void attach(struct sim_rank *r) {
    struct trainer *t = &r->trainer;
    tell("rank %u: a trainer attaches and calls begin()", r->rank);
    t->status = WAITING;
    t->notice_count = 0;
    t->other_lr = false;
    job_rank_attached(r->job, ++t->attachment);
    job_rank_begin(r->job);
}

static void come_back(struct sim_rank *r) {
    tell("rank %u: the trainer leaves " FENCE " and calls begin()", r->rank, F(&r->trainer.fence));
    r->trainer.status = WAITING;
    r->trainer.other_lr = false;
    job_rank_begin(r->job);
}

static void take_notice(struct sim_rank *r) {
    struct trainer *t = &r->trainer;
    const struct notice n = t->notices[0];
    memmove(t->notices, t->notices + 1, --t->notice_count * sizeof *t->notices);
    if (n.kind == ENTERED) {
        if (t->status != WAITING) {
            violate("rank %u: begin() is answered twice", r->rank);
        }
        tell("rank %u: the trainer is in " FENCE, r->rank, F(&n.fence));
        t->status = RUNNING;
        t->fence = n.fence;
        t->cursor = n.cursor;
    } else if (n.kind == STEPPED) {
        if (t->status != STEPPING || fence_compare(&t->fence, &n.fence) != 0) {
            violate("rank %u: step() of " FENCE " is answered to a trainer in " FENCE, r->rank,
                    F(&n.fence), F(&t->fence));
        }
        tell("rank %u: the trainer goes on into " FENCE, r->rank, F(&n.next));
        t->status = RUNNING;
        t->fence = n.next;
        t->cursor++;
    } else if (t->status >= RUNNING && fence_compare(&t->fence, &n.fence) == 0) {
        come_back(r);
    }
}

/* A call carries the fence that begin() or step() gave. */
static bool refused(struct sim_rank *r) {
    const struct fence before = r->trainer.fence;
    if (job_rank_check(r->job, &before, NULL) == 0) {
        return false;
    }
    note(&before, OUTCOME_ABORT);
    come_back(r);
    return true;
}

/* gather, compute, reduce. A gather reads every shard at the step's version. */
static bool reduce(struct sim_rank *r) {
    struct trainer *t = &r->trainer;
    if (t->fence.step == w.size.steps) {
        return false;
    }
    if (refused(r)) {
        return true;
    }
    struct fence open;
    (void)job_rank_open_fence(r->job, &open);
    for (unsigned q = 0; q < w.size.ranks; q++) {
        if (w.ranks[q].memory.version != open.step) {
            return false;
        }
    }
    const struct gradient g = {t->fence, t->attachment, t->cursor};
    if (!slot_write(r, &g, &open)) {
        return false;
    }
    tell("rank %u: the trainer reduces in " FENCE, r->rank, F(&open));
    t->status = REDUCED;
    return true;
}

static void step(struct sim_rank *r) {
    struct trainer *t = &r->trainer;
    if (refused(r)) {
        return;
    }
    tell("rank %u: the trainer calls step() of " FENCE, r->rank, F(&t->fence));
    const struct vote v = {.scalars = {.learning_rate = t->other_lr ? 0.5 : 0.25},
                           .weight = 1,
                           .rank_cursor = cursor_bytes(t->cursor + 1),
                           .rank_cursor_bytes = 1,
                           .shared_cursor =
                               cursor_bytes(r->rank ? 99 - r->rank : 101 + t->fence.step),
                           .shared_cursor_bytes = 1};
    t->status = STEPPING;
    job_rank_step(r->job, &v);
}

bool trainer_acts(struct sim_rank *r) {
    struct trainer *t = &r->trainer;
    if (!r->job || r->lost_trainer) {
        return false;
    }
    if (t->status == GONE || t->status == DETACHED) {
        attach(r);
        return true;
    }
    if (t->notice_count && (t->status == WAITING || t->status == STEPPING || draw(2))) {
        take_notice(r);
        return true;
    }
    if (t->status == RUNNING) {
        return reduce(r);
    }
    if (t->status == REDUCED) {
        step(r);
        return true;
    }
    return false;
}

/* ---- mishaps ---- */

bool trainer_dies(struct sim_rank *r) {
    if (r->trainer.status == GONE) {
        return false;
    }
    tell("rank %u: the trainer dies", r->rank);
    r->lost_trainer = r->job && r->trainer.status != DETACHED;
    r->trainer.status = GONE;
    r->trainer.notice_count = 0;
    return true;
}

bool trainer_leaves_plan(struct sim_rank *r) {
    const struct trainer *t = &r->trainer;
    if (!r->job || (t->status != RUNNING && t->status != REDUCED) ||
        job_rank_check(r->job, &t->fence, NULL) != 0) {
        return false;
    }
    tell("rank %u: the trainer leaves its plan in " FENCE, r->rank, F(&t->fence));
    job_rank_doom(r->job, ST_FAILED_PRECONDITION, "the trainer left its plan");
    return true;
}
