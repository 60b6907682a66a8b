#include "progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "screen.h"

static const int64_t second_ns = 1000000000;

/* Between two lines in a log: often at first, to see that it runs. */
static int64_t pause_ns(const struct progress *p) {
    return p->last_ns - p->first_ns < 10 * second_ns ? second_ns : 5 * second_ns;
}

static double *grown(double *list, size_t count) {
    if (count & (count - 1)) { /* room until the next power of two */
        return list;
    }
    size_t room = count ? 2 * count : 1;
    double *bigger = mem_zeroed(room, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        bigger[i] = list[i];
    }
    free(list);
    return bigger;
}

static void keep(struct progress *p, double loss, double norm) {
    p->losses = grown(p->losses, p->steps);
    p->norms = grown(p->norms, p->steps);
    p->losses[p->steps] = loss;
    p->norms[p->steps] = norm;
    p->steps++;
}

static double rate(const struct progress *p) {
    double seconds = (double)(p->last_ns - p->first_ns) * 1e-9;
    return seconds > 0 && p->steps > 1 ? (double)(p->steps - 1) / seconds : 0;
}

static const char *describe(const struct progress *p, char *text, size_t size) {
    double loss = p->losses[p->steps - 1], speed = rate(p);
    char shown[48] = "", fast[48] = "";
    if (!isnan(loss)) {
        (void)snprintf(shown, sizeof shown, "loss %.4f, ", loss);
    }
    if (speed > 0) {
        (void)snprintf(fast, sizeof fast, ", %.2f steps/s", speed);
    }
    (void)snprintf(text, size, "step %" PRIu64 ": %sgrad norm %.4g%s", p->last_step, shown,
                   p->norms[p->steps - 1], fast);
    return text;
}

static void show(struct progress *p) {
    char text[256], more[320];
    describe(p, text, sizeof text);
    if (screen_is_terminal()) {
        (void)snprintf(more, sizeof more, "%s, %" PRIu64 " restart%s", text, p->restarts,
                       p->restarts == 1 ? "" : "s");
        screen_progress(more);
    } else if (p->steps == 1 || p->last_ns - p->said_ns >= pause_ns(p)) {
        talk_say(p->talk, "%s", text);
        p->said_ns = p->last_ns;
        p->said_step = p->last_step;
    }
}

static void voided(struct progress *p, const Zerod__V1__StepEvent *event) {
    const char *reason = event->reason && *event->reason ? event->reason : "no reason was given";
    if (event->fence) {
        talk_say(p->talk, "step %" PRIu64 ", attempt %" PRIu64 " is void and will be redone: %s",
                 event->fence->step, event->fence->attempt, reason);
    }
}

void progress_event(struct progress *p, const Zerod__V1__StepEvent *event) {
    if (event->outcome == ZEROD__V1__OUTCOME_KIND__OUTCOME_UNSPECIFIED) {
        voided(p, event);
        return;
    }
    if (!event->fence || event->fence->step == 0) {
        p->loaded = true;
        return;
    }
    bool skipped = event->outcome == ZEROD__V1__OUTCOME_KIND__OUTCOME_SKIPPED;
    double world = event->world_size ? event->world_size : 1;
    keep(p, event->n_user ? event->user[0] / world : NAN, event->grad_norm);
    p->last_ns = clock_ns();
    p->last_step = event->fence->step;
    if (p->steps == 1) {
        p->first_ns = p->last_ns;
    }
    if (skipped) {
        p->skipped++;
        talk_say(p->talk, "step %" PRIu64 " is skipped: a gradient is not finite", p->last_step);
    }
    show(p);
}

void progress_finish(struct progress *p) {
    if (screen_is_terminal()) {
        screen_keep_progress();
    } else if (p->steps && p->said_step != p->last_step) {
        char text[256];
        talk_say(p->talk, "%s", describe(p, text, sizeof text));
        p->said_step = p->last_step;
    }
}

void progress_free(struct progress *p) {
    free(p->losses);
    free(p->norms);
    *p = (struct progress){0};
}
