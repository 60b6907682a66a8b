/* The simulated world: a few ranks (trainer, daemon, adopted memory), coordinators, and a network,
 * in one process, on a virtual clock. The daemons' and the coordinators' protocol is job/ itself (a
 * copy compiled with ZD_JOB_PLANTED); everything around it is imitated here.
 *
 * Arithmetic is abstract: a gradient is a tag (try, attachment, data item), a kept gradient the
 * tuple of the ranks' tags, half a tile the list of what was applied to it. So "mixed attempts",
 * "applied twice", "lost step", "cursor replayed" are comparisons.
 *
 * Everything is drawn from one seed, so a walk is repeated by its seed and number. There is one
 * world; it is the variable w.
 *
 * Not imitated: several units and micro-batches, bytes on a wire, loss of adopted memory.
 */
#ifndef ZD_SIM_WORLD_H
#define ZD_SIM_WORLD_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "job/coordinator.h"
#include "job/faults.h"
#include "job/rank.h"

enum {
    RANKS = 3,
    STEPS = 6,
    TILES = 2,
    COORDINATORS = 32,
    GENERATIONS = 64,
    MESSAGES = 512,
    NOTICES = 8,
    UPDATES = 64,
    NOTES = 256,
};

/* ---- what a walk may contain (rules.c) ---- */

enum fault {
    TRAINER_DIES,
    TRAINER_LEAVES_PLAN,
    TRAINER_GIVES_OTHER_LR,
    DAEMON_DIES,
    DAEMON_DIES_INSIDE, /* a call or a write */
    COORDINATOR_DIES,
    COORDINATOR_STOPS,
    CONNECTION_BREAKS,
    FAULTS,
};

struct size {
    unsigned ranks, steps, tiles, faults;
    uint32_t kinds; /* a bit for each fault that may happen; 0: all */
    uint32_t skips; /* a bit for each step whose gradients are not finite */
};

struct plant {
    const char *name;       /* the rules that are taken away */
    const char *taken_away; /* what is done instead */
    uint64_t rules;         /* a bit for each */
    struct size size;       /* where it shows soonest */
};

extern const struct plant plants[];
extern const unsigned plant_count;

/* ---- a rank ---- */

struct gradient {
    struct fence fence;
    uint64_t attachment;
    uint64_t item; /* the data item that the cursor pointed at */
};

struct sum {
    bool any;
    struct fence tag;
    struct gradient of[RANKS];
};

struct half {
    unsigned count;
    uint8_t updates[STEPS + 2]; /* into w.updates */
};

struct mark {
    int64_t step, tile;
};

/* What outlives a daemon. */
struct memory {
    struct records *records;
    struct sum kept;
    struct half tiles[TILES][2], scratch[2];
    struct mark ready, done;
    unsigned version; /* steps that the shard has gone through; peers see it */
};

/* What ends with it. */
struct engine {
    bool trying, summed;
    struct fence fence;
    struct sum reading, late; /* in flight; |late|: of a void try, when BEGIN did not wait for it */
    bool applying;
    struct decision decision;
};

/* Gradient arena and control page: the peers keep it mapped whoever dies. */
struct slot {
    bool any;
    struct fence tag;
    struct gradient gradient;
    uint32_t unread;
};

enum trainer_status { GONE, DETACHED, WAITING, RUNNING, REDUCED, STEPPING };

struct notice { /* from the daemon to its trainer, in order */
    enum { ENTERED, STEPPED, VOIDED } kind;
    struct fence fence, next;
    uint64_t cursor;
};

struct trainer {
    enum trainer_status status;
    struct fence fence;
    uint64_t cursor, attachment;
    bool other_lr;
    struct notice notices[NOTICES];
    unsigned notice_count;
};

struct sim_rank {
    unsigned rank;
    struct trainer trainer;
    struct job_rank *job; /* NULL: the daemon is dead */
    bool lost_trainer;    /* its trainer is dead, and it has not noticed yet */
    struct memory memory;
    struct engine engine;
    struct slot slot;
    uint64_t granted, decided;       /* as this rank said; never fall */
    uint8_t granted_to[GENERATIONS]; /* coordinator */
    struct fence entered;            /* the last try that a trainer entered */
    int64_t trainer_due, worker_due, daemon_due;
};

/* ---- a coordinator ---- */

struct sim_coordinator {
    struct job_coordinator *job; /* NULL: never started, dead, or it has given way */
    bool stopped, gave_up;
    unsigned connection[RANKS]; /* the last that the daemon made */
    unsigned seen[RANKS];       /* the last that this coordinator noticed */
    bool in[RANKS];
    unsigned joins, asks;
    struct fence told; /* the last try that people were told the end of */
    int64_t due;
};

/* ---- the network ---- */

enum kind { HELLO, CLOSED, GRANT, REFUSE, VOTE, /* to a rank: */ ASK, BEGIN, DECISION };

struct message {
    enum kind kind;
    unsigned rank, coordinator, connection;
    int64_t due;
    uint64_t generation;
    unsigned other; /* REFUSE: the coordinator that has it */
    int code;
    char reason[JOB_REASON];
    union {
        struct fence fence;
        struct vote vote;
        struct decision decision;
        struct job_report report;
    };
};

/* ---- the world ---- */

struct note { /* somebody computed, or was told, this outcome */
    struct fence fence;
    enum outcome outcome;
};

struct update {
    struct fence fence;
    struct gradient of[RANKS];
};

struct world {
    struct size size;
    uint64_t random;
    int64_t now;
    bool trace;
    bool ordered; /* each stream keeps its order and duplicates nothing */
    unsigned spread;
    unsigned faults_left;
    uint64_t events, idle_since; /* iterations since the last fault */

    struct sim_rank ranks[RANKS];
    struct sim_coordinator coordinators[COORDINATORS];
    unsigned started;
    int64_t supervisor_due;
    uint8_t owners[GENERATIONS]; /* of each number: the coordinator that acts with it, + 1 */

    int64_t last_due[COORDINATORS][RANKS][2];

    struct update updates[UPDATES];
    unsigned update_count;
    struct note notes[NOTES];
    unsigned note_count;
    uint32_t commits; /* a bit for each step */

    int armed; /* the rank that dies inside, or -1 */
    unsigned points_left;
    unsigned acting; /* the rank whose daemon runs now */
    jmp_buf death, end;
    char violation[512];
};

extern struct world w;

/* world.c */
uint64_t draw(uint64_t below);
int64_t later(void); /* a moment from now on */
void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void violate(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Runs one walk; false: w.violation says what went wrong. */
bool walk(const struct size *size, uint64_t seed, uint64_t number, bool trace);
uint64_t cursor_value(const uint8_t *bytes, size_t n);
const uint8_t *cursor_bytes(uint64_t value);
#define FENCE "g%llu.s%llu.a%llu"
#define F(f)                                                                                       \
    (unsigned long long)(f)->generation, (unsigned long long)(f)->step,                            \
        (unsigned long long)(f)->attempt

/* network.c */
struct message *message_new(enum kind kind, unsigned rank, unsigned coordinator);
void message_send(struct message *m); /* takes it */
struct message *message_first(void);  /* NULL: none */
void message_deliver(struct message *m);
/* Those of a stream (coordinator COORDINATORS: of all streams of the rank; rank RANKS: likewise)
 * are lost. */
void messages_lost(unsigned rank, unsigned coordinator);
void messages_clear(void);

/* engine.c */
extern const uint64_t sim_checksums[2]; /* of the initial values' units */
void engine_open(struct sim_rank *r, const struct fence *f);
void engine_apply(struct sim_rank *r, const struct decision *d);
void engine_resume(struct sim_rank *r); /* after a daemon's start */
bool engine_works(struct sim_rank *r);  /* one event; false: nothing to do */
bool slot_write(struct sim_rank *r, const struct gradient *g, const struct fence *tag);

/* daemon.c */
void daemon_start(struct sim_rank *r);
void daemon_die(struct sim_rank *r, bool messages);
bool daemon_acts(struct sim_rank *r);

/* trainer.c */
bool trainer_acts(struct sim_rank *r);
void trainer_notice(struct sim_rank *r, const struct notice *n);
bool trainer_dies(struct sim_rank *r);
bool trainer_leaves_plan(struct sim_rank *r);

/* coordinators.c */
extern const struct decide_options sim_options;
void coordinator_hears(struct message *m);
bool coordinator_acts(unsigned k);
bool supervisor_acts(void);
void coordinator_dies(unsigned k, bool messages);
void connect_to(unsigned rank, unsigned k);

/* mishaps.c */
bool mishap(void);
void sim_point(const char *where); /* the acting daemon may die here */

/* checks.c */
void note(const struct fence *f, enum outcome outcome);
void note_decision(const struct decision *d);
/* The loss scale that |step| is made with, from the outcomes of the steps before it. */
double scale_for(uint64_t step);
struct half updated(const struct sim_rank *r, unsigned tile, unsigned half);
void check(void);
bool finished(void);

#endif
