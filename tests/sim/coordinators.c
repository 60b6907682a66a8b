/* The simulated coordinators around job/'s machine, the supervisor that starts one where none runs,
 * and the connections that daemons make to them. */
#include <string.h>

#include "world.h"

const struct decide_options sim_options = {
    .optimizer = {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
    .scaling =
        {.dynamic = true, .start = 1024, .factor = 2, .floor = 1, .window = 2, .hysteresis = 1},
    .max_skips_in_row = 50,
};

/* ---- ops ---- */

static struct sim_coordinator *at(void *ctx, unsigned *k) {
    struct sim_coordinator *c = ctx;
    *k = (unsigned)(c - w.coordinators);
    return c;
}

/* A generation rises when somebody joined, for nothing else: else two coordinators raise it against
 * each other although nothing fails. */
static void on_ask(void *ctx, unsigned rank, uint64_t generation, const uint8_t uuid[JOB_UUID]) {
    unsigned k;
    struct sim_coordinator *c = at(ctx, &k);
    (void)uuid;
    if (rank == 0) {
        tell("coordinator %u asks for g%llu", k, (unsigned long long)generation);
        c->asks++;
    }
    if (c->asks + w.size.ranks > c->joins + 1) {
        violate("coordinator %u raises the generation to g%llu though nobody joined", k,
                (unsigned long long)generation);
    }
    struct message *m = message_new(ASK, rank, k);
    m->generation = generation;
    message_send(m);
}

/* A number belongs to one coordinator. */
static void own(unsigned k, uint64_t generation) {
    uint8_t *owner = &w.owners[generation % GENERATIONS];
    if (*owner && *owner != k + 1) {
        violate("coordinators %u and %u both act in g%llu", *owner - 1u, k,
                (unsigned long long)generation);
    }
    *owner = (uint8_t)(k + 1);
}

static void on_begin(void *ctx, unsigned rank, const struct fence *fence, int code,
                     const char *reason) {
    unsigned k;
    (void)at(ctx, &k);
    own(k, fence->generation);
    struct message *m = message_new(BEGIN, rank, k);
    m->fence = *fence;
    m->generation = fence->generation;
    m->code = code;
    strncpy(m->reason, reason, sizeof m->reason - 1);
    message_send(m);
}

static void on_decision(void *ctx, unsigned rank, uint64_t generation, const struct decision *d) {
    unsigned k;
    (void)at(ctx, &k);
    own(k, generation);
    struct message *m = message_new(DECISION, rank, k);
    m->generation = generation;
    m->decision = *d;
    m->decision.shared_cursor =
        cursor_bytes(cursor_value(d->shared_cursor, d->shared_cursor_bytes));
    message_send(m);
}

static void on_determined(void *ctx, const struct decision *d, int code, const char *reason) {
    static const char *const names[] = {"?", "COMMIT", "SKIP", "ABORT"};
    unsigned k;
    struct sim_coordinator *c = at(ctx, &k);
    tell("coordinator %u: " FENCE " is %s %s", k, F(&d->fence), names[d->outcome], reason);
    if (fence_compare(&d->fence, &c->told) <= 0) {
        violate("coordinator %u tells people of " FENCE " after " FENCE, k, F(&d->fence),
                F(&c->told));
    }
    c->told = d->fence;
    if ((d->outcome == OUTCOME_ABORT) != (code != ST_OK)) {
        violate("coordinator %u tells people of " FENCE " with code %d", k, F(&d->fence), code);
    }
    if (d->outcome == OUTCOME_ABORT) {
        note(&d->fence, OUTCOME_ABORT);
    } else {
        note_decision(d);
    }
}

static void on_give_up(void *ctx, int code, const char *reason) {
    unsigned k;
    (void)code;
    at(ctx, &k)->gave_up = true;
    tell("coordinator %u gives up: %s", k, reason);
}

static const struct job_coordinator_ops ops = {on_ask, on_begin, on_decision, on_determined,
                                               on_give_up};

/* ---- connections ---- */

void connect_to(unsigned rank, unsigned k) {
    w.coordinators[k].connection[rank]++;
    struct message *m = message_new(HELLO, rank, k);
    m->generation = job_rank_granted(w.ranks[rank].job);
    message_send(m);
}

static void forget(struct sim_coordinator *c, unsigned rank) {
    if (c->in[rank]) {
        c->in[rank] = false;
        job_coordinator_lost(c->job, rank);
    }
}

static void greet(struct sim_coordinator *c, const struct message *m) {
    if (m->connection <= c->seen[m->rank]) {
        return;
    }
    forget(c, m->rank);
    c->seen[m->rank] = m->connection;
    c->in[m->rank] = true;
    c->joins++;
    tell("coordinator %u: the daemon of rank %u dials in", m->coordinator, m->rank);
    job_coordinator_joined(c->job, m->rank, m->generation);
}

static void part(struct sim_coordinator *c, const struct message *m) {
    if (m->connection >= c->seen[m->rank]) {
        c->seen[m->rank] = m->connection;
        forget(c, m->rank);
    }
}

void coordinator_hears(struct message *m) {
    struct sim_coordinator *c = &w.coordinators[m->coordinator];
    const uint8_t uuid[JOB_UUID] = {(uint8_t)(m->other + 1)};
    if (m->kind == HELLO) {
        greet(c, m);
    } else if (m->kind == CLOSED) {
        part(c, m);
    } else if (m->kind == GRANT) {
        tell("coordinator %u gets GRANT g%llu of rank %u", m->coordinator,
             (unsigned long long)m->generation, m->rank);
        job_coordinator_on_grant(c->job, m->rank, m->generation, &m->report);
    } else if (m->kind == REFUSE) {
        job_coordinator_on_refused(c->job, m->rank, m->generation, uuid);
    } else {
        tell("coordinator %u gets VOTE %s " FENCE " of rank %u", m->coordinator,
             m->vote.yes ? "YES" : "NO", F(&m->vote.fence), m->rank);
        job_coordinator_on_vote(c->job, m->rank, &m->vote, w.now);
    }
    if (c->gave_up && c->job) {
        job_coordinator_del(c->job);
        c->job = NULL;
    }
}

/* ---- life and death ---- */

bool coordinator_acts(unsigned k) {
    struct sim_coordinator *c = &w.coordinators[k];
    if (c->stopped) {
        if (draw(8) == 0) {
            tell("coordinator %u resumes", k);
            c->stopped = false;
        }
        return true;
    }
    unsigned rank;
    int64_t age;
    if (job_coordinator_silent(c->job, w.now, 50000, &rank, &age) &&
        (rank >= w.size.ranks || age < 50000)) {
        violate("coordinator %u names rank %u as silent", k, rank);
    }
    bool all = true;
    for (unsigned r = 0; r < w.size.ranks; r++) {
        all = all && c->in[r];
    }
    if (all) {
        job_coordinator_ready(c->job);
    }
    return all;
}

bool supervisor_acts(void) {
    for (unsigned k = 0; k < w.started; k++) {
        if (w.coordinators[k].job && !w.coordinators[k].stopped) {
            return false;
        }
    }
    if (w.started == COORDINATORS) {
        violate("%d coordinators were started and none stays", COORDINATORS);
    }
    const unsigned k = w.started++;
    const uint8_t uuid[JOB_UUID] = {(uint8_t)(k + 1)};
    struct sim_coordinator *c = &w.coordinators[k];
    tell("coordinator %u starts", k);
    c->job = job_coordinator_new(w.size.ranks, uuid, &sim_options, &ops, c);
    c->due = later();
    for (unsigned r = 0; r < w.size.ranks; r++) {
        if (w.ranks[r].job) {
            connect_to(r, k);
        }
    }
    return true;
}

void coordinator_dies(unsigned k, bool messages) {
    tell("coordinator %u dies%s", k, messages ? " and its messages are lost" : "");
    job_coordinator_del(w.coordinators[k].job);
    w.coordinators[k].job = NULL;
    if (messages) {
        messages_lost(RANKS, k);
    }
}
