#include "zerod/drill.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

enum { DEATH_MS = 5000, SPEC = 256 };

static const char *const phases[] = {"", "gather", "compute", "reduce", "voted", "apply"};

static int parse_number(const char *word, const char *name, uint64_t *to, struct err *e) {
    char *end;
    errno = 0;
    unsigned long long n = strtoull(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end || errno) {
        return err_set(e, ST_INVALID_ARGUMENT, "drill: %s=%s is not a number", name, word);
    }
    *to = n;
    return 0;
}

static int parse_phase(const char *word, struct drill *d, struct err *e) {
    for (int i = DRILL_GATHER; i <= DRILL_APPLY; i++) {
        if (strcmp(word, phases[i]) == 0) {
            d->phase = (enum drill_phase)i;
            return 0;
        }
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "drill: phase=%s is none of gather, compute, reduce, voted, apply", word);
}

static int parse_part(char *part, struct drill *d, unsigned *seen, struct err *e) {
    char *value = strchr(part, '=');
    uint64_t n = 0;
    if (!value) {
        return err_set(e, ST_INVALID_ARGUMENT, "drill: '%s' is not name=value", part);
    }
    *value++ = '\0';
    if (strcmp(part, "phase") == 0) {
        return parse_phase(value, d, e);
    }
    if (strcmp(part, "rank") != 0 && strcmp(part, "step") != 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "drill: '%s' is none of rank, step, phase", part);
    }
    int code = parse_number(value, part, &n, e);
    if (code) {
        return code;
    }
    if (part[0] == 'r') {
        d->rank = n > UINT32_MAX ? UINT32_MAX : (unsigned)n;
        *seen |= 1;
    } else {
        d->step = n;
        *seen |= 2;
    }
    return 0;
}

int drill_parse(const char *text, unsigned world, struct drill *d, struct err *e) {
    static const char kind[] = "kill-trainer:";
    char copy[SPEC];
    unsigned seen = 0;
    *d = (struct drill){.phase = DRILL_COMPUTE};
    if (!text || !text[0]) {
        return 0;
    }
    if (strncmp(text, kind, sizeof kind - 1) != 0 || strlen(text) >= sizeof copy) {
        return err_set(e, ST_INVALID_ARGUMENT, "drill: '%.64s' does not begin with %s", text, kind);
    }
    (void)snprintf(copy, sizeof copy, "%s", text + sizeof kind - 1);
    char *rest = NULL;
    for (char *part = strtok_r(copy, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
        int code = parse_part(part, d, &seen, e);
        if (code) {
            return code;
        }
    }
    if (seen != 3) {
        return err_set(e, ST_INVALID_ARGUMENT, "drill: needs rank=R and step=S");
    }
    if (d->rank >= world) {
        return err_set(e, ST_INVALID_ARGUMENT, "drill: rank=%u, but there are %u ranks", d->rank,
                       world);
    }
    d->set = true;
    return 0;
}

static bool is_try(const struct drill *d, const struct fence *fence) {
    return d->set && !d->done && fence->step == d->step && fence->attempt == 1;
}

bool drill_due(const struct drill *d, unsigned rank, enum drill_phase phase,
               const struct fence *fence) {
    return is_try(d, fence) && d->rank == rank && d->phase == phase;
}

bool drill_holds_vote(const struct drill *d, unsigned rank, const struct fence *fence) {
    return is_try(d, fence) && d->phase == DRILL_VOTED && d->rank != rank;
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
    log_info("drill: killed the trainer of rank %u in phase %s of step %llu", d->rank,
             phases[d->phase], (unsigned long long)d->step);
}
