#include "coord_host.h"

#include <string.h>

#include "base/buf.h"
#include "must.h"
#include "zerocoord/coord.h"

static struct coord self;

void coord_end(struct coord *c, const char *reason) {
    must(!reason || reason[0], "an end with a reason");
    if (!c->ending) {
        c->ending = true;
        c->failed = reason != NULL;
        roster_stop(c, reason);
    }
}

void admin_tell(struct coord *c, const struct decision *d, int code, const char *reason) {
    (void)c;
    must((code == ST_OK) == (d->outcome != OUTCOME_ABORT), "a status for what is void only");
    must(code == ST_OK || reason[0], "a void try has a reason");
}

void coord_host_up(unsigned world) {
    static const uint8_t uuid[JOB_UUID] = "the coordinator";
    struct decide_options o = {.max_skips_in_row = 3};
    memset(&self, 0, sizeof self);
    self.options = (struct options){
        .listen = "there", .job = "fuzz", .world = world, .max_skips = o.max_skips_in_row};
    self.members = mem_zeroed(world, sizeof *self.members);
    for (unsigned i = 0; i < world; i++) {
        self.members[i].coord = &self;
        self.members[i].rank = i;
    }
    self.job = job_coordinator_new(world, uuid, &o, &coord_job_ops, &self);
}

const struct grpc_service *coord_host_service(void) {
    return roster_service(&self);
}

struct fence coord_host_fence(void) {
    return job_coordinator_fence(self.job);
}

uint64_t coord_host_generation(void) {
    return job_coordinator_generation(self.job);
}

bool coord_host_ending(void) {
    return self.ending;
}

unsigned coord_host_rank(const struct grpc_call *call) {
    const struct member *m = grpc_call_data(call);
    return m ? m->rank : (unsigned)self.options.world;
}

void coord_host_rejoin(unsigned rank, uint64_t granted) {
    job_coordinator_lost(self.job, rank);
    job_coordinator_joined(self.job, rank, granted);
    if (self.agreed) {
        job_coordinator_ready(self.job);
    }
}

void coord_host_down(void) {
    self.ending = true;
    job_coordinator_del(self.job);
    roster_free(&self);
}
