/* The coordinator without its sockets: roster.c and job/ on wire.h's calls. One at a time. */
#ifndef ZD_FUZZ_COORD_HOST_H
#define ZD_FUZZ_COORD_HOST_H

#include "base/fence.h"
#include "wire.h"

void coord_host_up(unsigned world);
const struct grpc_service *coord_host_service(void);
struct fence coord_host_fence(void); /* the try that votes are taken for */
uint64_t coord_host_generation(void);
bool coord_host_ending(void);
/* Of the daemon that said hello by |call|; |world|: nobody did. */
unsigned coord_host_rank(const struct grpc_call *call);
/* A daemon is lost and comes back, as far as job/ sees it: roster.c ends the job at a loss. */
void coord_host_rejoin(unsigned rank, uint64_t granted);
void coord_host_down(void);

#endif
