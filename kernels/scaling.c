/* The loss scale from step to step (scalars.h). */
#include <float.h>
#include <math.h>

#include "kernels/scalars.h"

static void fill_in(struct loss_scaling *s) {
    s->start = s->start == 0 ? s->dynamic ? 65536 : 1 : s->start;
    s->factor = s->factor == 0 ? 2 : s->factor;
    s->floor = s->floor == 0 ? 1 : s->floor;
    s->window = s->window == 0 ? 1000 : s->window;
    s->hysteresis = s->hysteresis == 0 ? 2 : s->hysteresis;
}

/* Trainers multiply fp32 losses with it. */
static bool is_scale(double x) {
    return x >= (double)FLT_MIN && x <= (double)FLT_MAX;
}

int scaling_check(struct loss_scaling *s, struct err *e) {
    fill_in(s);
    if (!is_scale(s->start)) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "loss scaling: start is %g, it must be above 0 and fit fp32", s->start);
    }
    if (!is_scale(s->floor) || (s->dynamic && s->floor > s->start)) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "loss scaling: floor is %g, it must be above 0 and at most the start, %g",
                       s->floor, s->start);
    }
    if (!(s->factor > 1 && isfinite(s->factor))) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "loss scaling: factor is %g, it must be finite and above 1", s->factor);
    }
    return 0;
}

struct scale_state scaling_start(const struct loss_scaling *s) {
    return (struct scale_state){.scale = s->start, .hysteresis = s->hysteresis};
}

static bool fall(const struct loss_scaling *s, struct scale_state *state) {
    if (state->hysteresis > 1) {
        state->hysteresis--;
    } else if (state->scale > s->floor) {
        const double lower = state->scale / s->factor;
        state->scale = lower > s->floor ? lower : s->floor;
    } else {
        return false;
    }
    state->good = 0;
    return true;
}

static void rise(const struct loss_scaling *s, struct scale_state *state) {
    state->good++;
    if (state->good < s->window) {
        return;
    }
    state->good = 0;
    state->hysteresis = s->hysteresis;
    if (is_scale(state->scale * s->factor)) {
        state->scale *= s->factor;
    }
}

bool scaling_next(const struct loss_scaling *s, bool overflow, struct scale_state *state) {
    if (!s->dynamic) {
        return true;
    }
    if (overflow) {
        return fall(s, state);
    }
    rise(s, state);
    return true;
}
