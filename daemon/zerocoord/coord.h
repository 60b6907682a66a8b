/* What the coordinator of a job is made of:
 *
 *   main.c     options, loop, start and end
 *   roster.c   the Coordinator service: the daemons' streams, agreeing on the model, relaying
 *              offers, and the protocol's messages to and from job/
 *   admin.c    Status, and Watch: one event for each determined try
 *
 * It holds nothing that the daemons could not give back to a successor. */
#ifndef ZD_ZEROCOORD_COORD_H
#define ZD_ZEROCOORD_COORD_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "job/coordinator.h"
#include "layout/layout.h"
#include "process/convert.h"
#include "process/life.h"
#include "process/serve.h"

struct options {
    const char *listen, *job;
    uint64_t world, holder_fd, silence_s, max_skips, observers;
    bool help;
};

/* One daemon, as its stream tells it. */
struct member {
    struct coord *coord;
    unsigned rank;
    struct grpc_call *call; /* NULL: not here */
    uint64_t pid;
    char *address;
    struct model model; /* as registered */
    bool registered, ready;
};

enum { WATCHERS = 32 };

struct coord {
    struct options options;
    uv_loop_t loop;
    struct life *life;
    struct serve serve;
    uv_timer_t tick; /* names silent ranks */
    int64_t since_ns;
    bool ending, failed, agreed, named; /* named: who was missing at the start */

    struct member *members; /* one a rank */
    struct unit *units;     /* of the agreed model, for texts */
    struct job_coordinator *job;
    uint64_t steps;      /* determined training steps */
    struct fence warned; /* the try whose silence was named */

    struct grpc_call *watchers[WATCHERS];
};

/* main.c: tells the daemons why, and ends. |reason| NULL: a wanted end. */
void coord_end(struct coord *c, const char *reason);

/* roster.c */
extern const struct job_coordinator_ops coord_job_ops;
extern const struct grpc_service *roster_service(struct coord *c);
void roster_stop(struct coord *c, const char *reason); /* Stop to every daemon; streams end */
void roster_free(struct coord *c);

/* admin.c */
extern const struct grpc_service *admin_service(struct coord *c);
void admin_tell(struct coord *c, const struct decision *d, int code, const char *reason);
void admin_end(struct coord *c);

#endif
