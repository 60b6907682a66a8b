#include "process/drill_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPEC = 256, DIGITS = 18 };

static const char *const phases[] = {"", "gather", "compute", "reduce", "voted", "apply"};

const char *drill_phase_name(enum drill_phase phase) {
    return phases[phase];
}

/* Decimal digits only, nothing behind them. */
static bool read_number(const char *text, uint64_t *n) {
    if (!*text || strlen(text) > DIGITS || strspn(text, "0123456789") != strlen(text)) {
        return false;
    }
    *n = strtoull(text, NULL, 10);
    return true;
}

static int parse_rank(const char *value, uint64_t ranks, struct drill_spec *d, struct err *e) {
    uint64_t n;
    if (!read_number(value, &n) || n >= ranks) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--drill: rank=%.60s: must be 0 to %llu, the job's ranks", value,
                       (unsigned long long)ranks - 1);
    }
    d->rank = (unsigned)n;
    return 0;
}

static int parse_step(const char *value, struct drill_spec *d, struct err *e) {
    if (!read_number(value, &d->step) || d->step < 1) {
        return err_set(e, ST_INVALID_ARGUMENT, "--drill: step=%.60s: must be a number from 1 on",
                       value);
    }
    return 0;
}

static int parse_phase(const char *value, struct drill_spec *d, struct err *e) {
    for (int i = DRILL_GATHER; i <= DRILL_APPLY; i++) {
        if (strcmp(value, phases[i]) == 0) {
            d->phase = (enum drill_phase)i;
            return 0;
        }
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "--drill: phase=%.60s: must be one of gather, compute, reduce, voted, apply",
                   value);
}

struct seen {
    bool rank, step;
};

static int parse_word(char *word, uint64_t ranks, struct drill_spec *d, struct seen *seen,
                      struct err *e) {
    char *value = strchr(word, '=');
    if (!value) {
        return err_set(e, ST_INVALID_ARGUMENT, "--drill: \"%.60s\" is not NAME=VALUE", word);
    }
    *value++ = 0;
    if (strcmp(word, "rank") == 0) {
        seen->rank = true;
        return parse_rank(value, ranks, d, e);
    }
    if (strcmp(word, "step") == 0) {
        seen->step = true;
        return parse_step(value, d, e);
    }
    if (strcmp(word, "phase") == 0) {
        return parse_phase(value, d, e);
    }
    return err_set(e, ST_INVALID_ARGUMENT,
                   "--drill: unknown \"%.60s\"; rank, step and phase are known", word);
}

int drill_spec_parse(const char *text, uint64_t ranks, struct drill_spec *d, struct err *e) {
    static const char start[] = "kill-trainer:";
    char copy[SPEC];
    struct seen seen = {false, false};
    *d = (struct drill_spec){.phase = DRILL_COMPUTE};
    if (!text || !text[0]) {
        return 0;
    }
    if (strncmp(text, start, sizeof start - 1) != 0) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--drill \"%.60s\": must be kill-trainer:rank=R,step=S[,phase=P]", text);
    }
    if (strlen(text) >= sizeof copy) {
        return err_set(e, ST_INVALID_ARGUMENT, "--drill: %zu bytes long, the limit is %zu",
                       strlen(text), sizeof copy - 1);
    }
    (void)snprintf(copy, sizeof copy, "%s", text + sizeof start - 1);
    char *rest = copy;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        int code = parse_word(word, ranks, d, &seen, e);
        if (code) {
            return code;
        }
    }
    if (!seen.rank || !seen.step) {
        return err_set(e, ST_INVALID_ARGUMENT, "--drill \"%.60s\": %s=... is missing", text,
                       seen.rank ? "step" : "rank");
    }
    d->set = true;
    return 0;
}
