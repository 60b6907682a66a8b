#include "zerod/drill.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

enum { DEATH_MS = 5000 };

static bool is_try(const struct drill *d, const struct fence *fence) {
    return d->spec.set && !d->done && fence->step == d->spec.step && fence->attempt == 1;
}

bool drill_due(const struct drill *d, unsigned rank, enum drill_phase phase,
               const struct fence *fence) {
    return is_try(d, fence) && d->spec.rank == rank && d->spec.phase == phase;
}

bool drill_holds_vote(const struct drill *d, unsigned rank, const struct fence *fence) {
    return is_try(d, fence) && d->spec.phase == DRILL_VOTED && d->spec.rank != rank;
}

void drill_kill(struct drill *d, int pidfd) {
    struct pollfd death = {.fd = pidfd, .events = POLLIN};
    d->done = true;
    if (pidfd < 0 || syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0)) {
        log_warn("drill: cannot kill the trainer: %s", strerror(errno));
        return;
    }
    if (poll(&death, 1, DEATH_MS) != 1) {
        log_warn("drill: the trainer did not die within %d ms", DEATH_MS);
    }
    log_info("drill: killed the trainer of rank %u in phase %s of step %llu", d->spec.rank,
             drill_phase_name(d->spec.phase), (unsigned long long)d->spec.step);
}
