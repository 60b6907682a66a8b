/* How long it takes from a trainer's death to its replacement's first gather: asks the daemon,
 * every few milliseconds, how many gathers it has answered. The first answer comes while no trainer
 * is there, so a larger number later is the replacement's. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "job.h"

enum { EVERY_MS = 3, CALL_LIMIT_S = 5 };

struct recover {
    struct job *job;
    struct recover *next;
    size_t index; /* in job->recoveries */
    uv_timer_t timer;
    struct ask *ask;
    int64_t since_ns;
    uint64_t base; /* gathers before the replacement */
    bool has_base, over;
};

static struct recover *running; /* those that still ask */

static void closed(uv_handle_t *handle) {
    free(handle->data);
}

/* Once the ask in progress, if any, is gone. */
static void finish(struct recover *r) {
    r->over = true;
    if (r->ask) {
        return;
    }
    struct recover **at = &running;
    while (*at && *at != r) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = r->next;
        (void)uv_timer_stop(&r->timer);
        uv_close((uv_handle_t *)&r->timer, closed);
    }
}

static void on_reply(void *user, const ProtobufCMessage *message) {
    struct recover *r = user;
    const Zerod__V1__StatusReply *reply = (const Zerod__V1__StatusReply *)message;
    if (reply->of_case != ZEROD__V1__STATUS_REPLY__OF_RANK || r->over) {
        return;
    }
    uint64_t gathers = reply->rank->gathers;
    if (!r->has_base) {
        r->has_base = true;
        r->base = gathers;
    } else if (gathers > r->base) {
        r->job->recoveries.list[r->index].first_gather_ms =
            (double)(clock_ns() - r->since_ns) * 1e-6;
        r->over = true;
    }
}

static void on_done(void *user, int code, const char *text) {
    (void)code;
    (void)text;
    struct recover *r = user;
    r->ask = NULL;
    if (r->over) {
        finish(r);
    }
}

static void ask(struct recover *r) {
    static const Zerod__V1__StatusRequest request = ZEROD__V1__STATUS_REQUEST__INIT;
    struct job *j = r->job;
    struct ask_options o = {
        .path = j->daemons[j->recoveries.list[r->index].rank].address,
        .method = "/zerod.v1.Admin/Status",
        .request = &request.base,
        .reply = &zerod__v1__status_reply__descriptor,
        .timeout_ns = CALL_LIMIT_S * INT64_C(1000000000),
        .on_reply = on_reply,
        .on_done = on_done,
        .user = r,
    };
    if (ask_start(&j->loop, &o, &r->ask, NULL)) {
        r->ask = NULL;
    }
}

static void on_timer(uv_timer_t *timer) {
    struct recover *r = timer->data;
    if (!r->ask && !r->over) {
        ask(r);
    }
}

static size_t remember(struct recoveries *all, unsigned rank, uint64_t step) {
    struct recovery *list = realloc(all->list, (all->count + 1) * sizeof *list);
    if (!list) {
        abort();
    }
    all->list = list;
    list[all->count] = (struct recovery){rank, step, -1};
    return all->count++;
}

void recover_begin(struct job *j, unsigned rank, uint64_t step, int64_t since_ns) {
    struct recover *r = mem_zeroed(1, sizeof *r);
    r->job = j;
    r->since_ns = since_ns;
    r->index = remember(&j->recoveries, rank, step);
    r->next = running;
    running = r;
    (void)uv_timer_init(&j->loop, &r->timer);
    r->timer.data = r;
    (void)uv_timer_start(&r->timer, on_timer, EVERY_MS, EVERY_MS);
    ask(r);
}

void recover_stop(struct job *j) {
    (void)j;
    for (struct recover *r = running, *next; r; r = next) {
        next = r->next;
        if (r->ask) {
            ask_cancel(r->ask);
        }
        finish(r);
    }
}
