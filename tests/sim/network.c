/* Messages between daemons and coordinators: delivered after a while, and unless each stream keeps
 * its order, in any order and sometimes twice. */
#include <string.h>

#include "world.h"

enum { TWICE_OF = 8 };

/* The first |count| pointers are under way, the rest are free places. */
static struct message pool[MESSAGES], *flying[MESSAGES];
static unsigned count;

void messages_clear(void) {
    count = 0;
    for (unsigned i = 0; i < MESSAGES; i++) {
        flying[i] = &pool[i];
    }
}

struct message *message_new(enum kind kind, unsigned rank, unsigned coordinator) {
    static struct message m; /* filled by the caller, then copied by message_send */
    memset(&m, 0, sizeof m);
    m.kind = kind;
    m.rank = rank;
    m.coordinator = coordinator;
    m.connection = w.coordinators[coordinator].connection[rank];
    return &m;
}

static void fly(const struct message *m) {
    if (count == MESSAGES) {
        violate("%d messages are under way: somebody talks without end", MESSAGES);
    }
    struct message *to = flying[count++];
    *to = *m;
    to->due = later();
    int64_t *last = &w.last_due[m->coordinator][m->rank][m->kind >= ASK];
    if (w.ordered) {
        to->due = to->due > *last ? to->due : *last + 1;
        *last = to->due;
    }
}

void message_send(struct message *m) {
    fly(m);
    if (!w.ordered && draw(TWICE_OF) == 0) {
        fly(m);
    }
}

/* What finds nobody is lost where streams are streams, and waits for a successor where they are
 * not. */
static bool waits(const struct message *m) {
    const struct sim_coordinator *c = &w.coordinators[m->coordinator];
    return m->kind >= ASK ? !w.ordered && !w.ranks[m->rank].job : c->job && c->stopped;
}

struct message *message_first(void) {
    struct message *first = NULL;
    for (unsigned i = 0; i < count; i++) {
        if ((!first || flying[i]->due < first->due) && !waits(flying[i])) {
            first = flying[i];
        }
    }
    return first;
}

static void land(unsigned i) {
    struct message *m = flying[i];
    flying[i] = flying[--count];
    flying[count] = m;
}

void messages_lost(unsigned rank, unsigned coordinator) {
    for (unsigned i = count; i-- > 0;) {
        const struct message *m = flying[i];
        if ((rank == RANKS || m->rank == rank) &&
            (coordinator == COORDINATORS || m->coordinator == coordinator) && m->kind != HELLO &&
            m->kind != CLOSED) {
            land(i);
        }
    }
}

static void rank_hears(struct sim_rank *r, const struct message *m) {
    const uint8_t uuid[JOB_UUID] = {(uint8_t)(m->coordinator + 1)};
    if (m->kind == ASK) {
        tell("rank %u gets ASK g%llu of coordinator %u", r->rank, (unsigned long long)m->generation,
             m->coordinator);
        job_rank_on_ask(r->job, m->generation, uuid);
    } else if (m->kind == BEGIN) {
        tell("rank %u gets BEGIN " FENCE " of coordinator %u", r->rank, F(&m->fence),
             m->coordinator);
        job_rank_on_begin(r->job, &m->fence, m->code, m->reason);
    } else {
        tell("rank %u gets DECISION %s " FENCE " in g%llu of coordinator %u", r->rank,
             m->decision.outcome == OUTCOME_COMMIT ? "COMMIT" : "SKIP", F(&m->decision.fence),
             (unsigned long long)m->generation, m->coordinator);
        job_rank_on_decision(r->job, m->generation, &m->decision);
    }
}

void message_deliver(struct message *m) {
    static struct message copy;
    const struct sim_coordinator *c = &w.coordinators[m->coordinator];
    struct sim_rank *r = &w.ranks[m->rank];
    copy = *m;
    for (unsigned i = 0; i < count; i++) {
        if (flying[i] == m) {
            land(i);
            break;
        }
    }
    if (w.ordered && copy.connection != c->connection[copy.rank] && copy.kind != CLOSED) {
        return; /* that stream is no more */
    }
    if (copy.kind >= ASK && r->job) {
        rank_hears(r, &copy);
    } else if (copy.kind < ASK && c->job) {
        coordinator_hears(&copy);
    }
}
