/* See cursor.h. */
#include "cursor.h"

#include <string.h>

static const char magic[8] = {'G', 'P', 'T', 'C', 'U', 'R', 'S', 'R'};

static void put(uint8_t *to, size_t bytes, uint64_t value) {
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get(const uint8_t *from, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) {
        value = value << 8 | from[i];
    }
    return value;
}

void cursor_encode(const struct cursor *c, uint8_t out[static CURSOR_BYTES]) {
    memcpy(out, magic, sizeof magic);
    put(out + 8, 4, CURSOR_VERSION);
    put(out + 12, 4, c->rank);
    put(out + 16, 8, c->step);
    put(out + 24, 8, c->seed);
    put(out + 32, 8, c->sequences);
    put(out + 40, 8, c->text_bytes);
}

int cursor_restore(struct cursor *c, uint64_t next_step, const void *bytes, size_t count,
                   struct err *e) {
    const uint8_t *in = bytes;
    if (count == 0 && next_step <= 1) {
        c->step = 0;
        c->sequences = 0;
        return 0;
    }
    if (count != CURSOR_BYTES || memcmp(in, magic, sizeof magic) != 0) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the cursor before step %ju (%zu bytes) is not this program's",
                       (uintmax_t)next_step, count);
    }
    const struct {
        const char *what;
        uint64_t have, want;
    } checks[] = {
        {"version", get(in + 8, 4), CURSOR_VERSION},     {"rank", get(in + 12, 4), c->rank},
        {"step", get(in + 16, 8), next_step - 1},        {"seed", get(in + 24, 8), c->seed},
        {"text length", get(in + 40, 8), c->text_bytes},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].have != checks[i].want) {
            return err_set(e, ST_FAILED_PRECONDITION,
                           "the cursor before step %ju has %s %ju, this trainer %ju",
                           (uintmax_t)next_step, checks[i].what, (uintmax_t)checks[i].have,
                           (uintmax_t)checks[i].want);
        }
    }
    c->step = next_step - 1;
    c->sequences = get(in + 32, 8);
    return 0;
}
