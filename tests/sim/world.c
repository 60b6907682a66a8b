/* The clock, the dice, and a walk: whatever is due first happens next. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { STUCK = 6000, FAULT_EVERY = 16 };

struct world w;

uint64_t draw(uint64_t below) {
    w.random = mix64(w.random);
    return w.random % below;
}

/* Mostly soon, sometimes after a long time; how long is drawn for each walk. */
int64_t later(void) {
    const uint64_t most = UINT64_C(1) << draw(w.spread);
    return w.now + 1000 + (int64_t)draw(most * 1000);
}

void tell(const char *fmt, ...) {
    if (w.trace) {
        va_list args;
        va_start(args, fmt);
        printf("%9.3f ms  ", (double)w.now / 1e6);
        vprintf(fmt, args);
        putchar('\n');
        va_end(args);
    }
}

_Noreturn void violate(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(w.violation, sizeof w.violation, fmt, args);
    va_end(args);
    tell("VIOLATION: %s", w.violation);
    longjmp(w.end, 1);
}

/* A cursor is one byte, so a pointer to it needs no owner. */
static uint8_t cursors[256];

const uint8_t *cursor_bytes(uint64_t value) {
    cursors[value & 255] = (uint8_t)value;
    return &cursors[value & 255];
}

uint64_t cursor_value(const uint8_t *bytes, size_t n) {
    return n ? bytes[0] : 255;
}

/* ---- what happens next ---- */

enum actor { NOBODY, TRAINER, WORKER, DAEMON, COORDINATOR, SUPERVISOR, NETWORK };

struct next {
    int64_t due;
    enum actor actor;
    unsigned index;
    struct message *message;
};

static void consider(struct next *n, int64_t due, enum actor actor, unsigned index) {
    if (n->actor == NOBODY || due < n->due) {
        *n = (struct next){due, actor, index, NULL};
    }
}

static struct next next_event(void) {
    struct next n = {0};
    for (unsigned r = 0; r < w.size.ranks; r++) {
        consider(&n, w.ranks[r].trainer_due, TRAINER, r);
        consider(&n, w.ranks[r].worker_due, WORKER, r);
        consider(&n, w.ranks[r].daemon_due, DAEMON, r);
    }
    for (unsigned k = 0; k < w.started; k++) {
        if (w.coordinators[k].job) {
            consider(&n, w.coordinators[k].due, COORDINATOR, k);
        }
    }
    consider(&n, w.supervisor_due, SUPERVISOR, 0);
    struct message *m = message_first();
    if (m && m->due < n.due) {
        n = (struct next){m->due, NETWORK, 0, m};
    }
    return n;
}

static bool happen(const struct next *n) {
    struct sim_rank *r = &w.ranks[n->actor <= DAEMON ? n->index : 0];
    switch (n->actor) {
    case TRAINER:
        r->trainer_due = later();
        return trainer_acts(r);
    case WORKER:
        r->worker_due = later();
        return engine_works(r);
    case DAEMON:
        r->daemon_due = later();
        return daemon_acts(r);
    case COORDINATOR:
        w.coordinators[n->index].due = later();
        return coordinator_acts(n->index);
    case SUPERVISOR:
        w.supervisor_due = later();
        return supervisor_acts();
    default:
        message_deliver(n->message);
        return true;
    }
}

/* A daemon that dies inside a call leaves it by longjmp to here. */
static bool happen_or_die(const struct next *n) {
    if (setjmp(w.death) == 0) {
        return happen(n);
    }
    w.armed = -1;
    daemon_die(&w.ranks[w.acting], draw(2));
    return true;
}

static void event(void) {
    const struct next n = next_event();
    w.now = n.due > w.now ? n.due : w.now;
    w.acting = n.actor == NETWORK ? n.message->rank : n.actor <= DAEMON ? n.index : RANKS;
    w.idle_since++;
    if (w.faults_left && draw(FAULT_EVERY) == 0 && mishap()) {
        w.faults_left--;
        w.idle_since = 0;
        check();
        return; /* what was due may be gone */
    }
    if (happen_or_die(&n)) {
        w.events++;
        check();
    }
    if (w.idle_since > STUCK) {
        violate("stuck: all live, messages flow, and nothing has come of it for %d events", STUCK);
    }
}

/* ---- a walk ---- */

/* Fresh memory, without writing zeros over cursors that no length names. */
static void fresh(struct records *records) {
    for (unsigned i = 0; i < 2; i++) {
        records->votes[i].crc = records->decisions[i].crc = 0;
        memset(&records->votes[i].vote, 0, sizeof records->votes[i].vote);
        memset(&records->decisions[i].decision, 0, sizeof records->decisions[i].decision);
    }
    memset(records->grants, 0, sizeof records->grants);
}

static void start(const struct size *size, uint64_t seed, uint64_t number, bool trace) {
    static struct records records[RANKS];
    memset(&w, 0, sizeof w);
    w.size = *size;
    w.random = mix64(mix64(seed) ^ number);
    w.trace = trace;
    w.ordered = draw(2);
    w.spread = 3 + (unsigned)draw(8);
    w.faults_left = size->faults;
    w.armed = -1;
    for (unsigned r = 0; r < size->ranks; r++) {
        struct sim_rank *rank = &w.ranks[r];
        fresh(&records[r]);
        rank->rank = r;
        rank->memory.records = &records[r];
        rank->memory.ready = rank->memory.done = (struct mark){-1, -1};
        rank->trainer_due = later();
        rank->worker_due = later();
        rank->daemon_due = later();
    }
    w.supervisor_due = later();
    messages_clear();
}

static void stop(void) {
    for (unsigned r = 0; r < w.size.ranks; r++) {
        job_rank_del(w.ranks[r].job);
    }
    for (unsigned k = 0; k < w.started; k++) {
        job_coordinator_del(w.coordinators[k].job);
    }
}

bool walk(const struct size *size, uint64_t seed, uint64_t number, bool trace) {
    start(size, seed, number, trace);
    if (setjmp(w.end) == 0) {
        while (!finished()) {
            event();
        }
    }
    stop();
    return !w.violation[0];
}
