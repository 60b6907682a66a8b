/* What may fail. */
#include "world.h"

static bool allowed(enum fault f) {
    return !w.size.kinds || (w.size.kinds >> f & 1);
}

/* Somewhere in its next calls or writes. */
static bool daemon_dies_inside(struct sim_rank *r) {
    if (!r->job || w.armed >= 0) {
        return false;
    }
    tell("rank %u: the daemon is about to die", r->rank);
    w.armed = (int)r->rank;
    w.points_left = 1 + (unsigned)draw(6);
    return true;
}

void sim_point(const char *where) {
    if (w.armed != (int)w.acting || --w.points_left) {
        return;
    }
    tell("rank %u: here, %s", w.acting, where);
    longjmp(w.death, 1);
}

/* Nobody dies: a stream is made again. */
static bool connection_breaks(unsigned rank, unsigned k) {
    if (!w.ranks[rank].job || !w.coordinators[k].job) {
        return false;
    }
    tell("the connection of rank %u to coordinator %u breaks", rank, k);
    if (draw(2)) {
        messages_lost(rank, k);
    }
    message_send(message_new(CLOSED, rank, k));
    connect_to(rank, k);
    return true;
}

static bool coordinator_fails(enum fault f) {
    if (!w.started) {
        return false;
    }
    const unsigned k = (unsigned)draw(w.started);
    struct sim_coordinator *c = &w.coordinators[k];
    if (!c->job) {
        return false;
    }
    if (f == COORDINATOR_DIES) {
        coordinator_dies(k, draw(2));
    } else if (f == COORDINATOR_STOPS && !c->stopped) {
        tell("coordinator %u stops", k);
        c->stopped = true;
    } else {
        return f == CONNECTION_BREAKS && connection_breaks((unsigned)draw(w.size.ranks), k);
    }
    return true;
}

static bool daemon_dies(struct sim_rank *r) {
    if (!r->job) {
        return false;
    }
    daemon_die(r, draw(2));
    return true;
}

static bool gives_other_lr(struct sim_rank *r) {
    if (r->trainer.status != REDUCED || r->trainer.other_lr) {
        return false;
    }
    tell("rank %u: the trainer will give another lr", r->rank);
    r->trainer.other_lr = true;
    return true;
}

/* One fault; false: this one is not possible now. The daemon that acts in it may die of another. */
static bool mishap_of(enum fault f, struct sim_rank *r) {
    switch (f) {
    case TRAINER_DIES:
        return trainer_dies(r);
    case TRAINER_LEAVES_PLAN:
        return trainer_leaves_plan(r);
    case TRAINER_GIVES_OTHER_LR:
        return gives_other_lr(r);
    case DAEMON_DIES:
        return daemon_dies(r);
    case DAEMON_DIES_INSIDE:
        return daemon_dies_inside(r);
    default:
        return coordinator_fails(f);
    }
}

bool mishap(void) {
    const enum fault f = (enum fault)draw(FAULTS);
    struct sim_rank *r = &w.ranks[draw(w.size.ranks)];
    w.acting = RANKS; /* nobody dies inside of this */
    return allowed(f) && mishap_of(f, r);
}
