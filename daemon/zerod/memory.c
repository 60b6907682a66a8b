/* From the agreed model to mapped memory: this rank's engine, offers of its descriptors to the
 * peers (relayed by the coordinator), and taking what the peers offer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "zerod/session.h"

#define TAKE_NS INT64_C(10000000000)

int rank_memory_records(struct rank *r, struct err *e) {
    struct arena *a = &r->records_memory;
    arena_init(a);
    (void)arena_carve(a, sizeof(struct records), 0, &a->lines.fixed);
    int code = arena_alloc(a, "zerod-records", ARENA_SHARED, e);
    if (code == 0) {
        r->records = (struct records *)(void *)a->base;
    }
    return code;
}

void rank_memory_free(struct rank *r) {
    engine_del(r->engine);
    r->engine = NULL;
    layout_free(&r->layout);
    buf_free(&r->registration);
    model_free(&r->model);
    arena_free(&r->records_memory);
}

/* ---- offering ---- */

static int offer(struct rank *r, unsigned to, bool state, const int *fds, size_t n, struct err *e) {
    uint8_t token[HANDOVER_TOKEN];
    int code = handover_ticket(r->handover, fds, n, token, e);
    if (code) {
        return code;
    }
    Zerod__V1__Ticket ticket = ZEROD__V1__TICKET__INIT;
    ticket.token = (ProtobufCBinaryData){HANDOVER_TOKEN, token};
    ticket.socket_path = (char *)handover_path(r->handover);
    Zerod__V1__Offer m = ZEROD__V1__OFFER__INIT;
    m.rank = (uint32_t)r->options.rank;
    m.to = to;
    m.attachment = r->attachment;
    m.state = state;
    m.ticket = &ticket;
    Zerod__V1__DaemonMessage out = ZEROD__V1__DAEMON_MESSAGE__INIT;
    out.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_OFFER;
    out.offer = &m;
    link_send(r, &out);
    return 0;
}

static int offer_to_peers(struct rank *r, bool state, const int *fds, size_t n, struct err *e) {
    int code = 0;
    for (unsigned to = 0; code == 0 && to < r->options.world; to++) {
        if (to != r->options.rank) {
            code = offer(r, to, state, fds, n, e);
        }
    }
    return code;
}

/* What the model will need, before anything is allocated for it. */
static int plan(struct rank *r, struct engine_options *o, struct err *e) {
    *o = (struct engine_options){
        .rank = (unsigned)r->options.rank,
        .threads = (unsigned)r->options.threads,
        .slots = {(uint32_t)r->options.gather_slots, (uint32_t)r->options.grad_slots},
        .device_memory = r->options.device_memory,
        .kernels = r->kernels,
        .on_demand = r->options.no_overlap,
    };
    int code = layout_init(&r->layout, &r->model, (unsigned)r->options.world, e);
    code = code ? code : engine_account(&r->layout, o, &r->planned, e);
    if (code) {
        return code;
    }
    r->scale = scaling_start(&r->model.scaling).scale;
    if (layout_lopsided(&r->layout, &o->slots, r->warning, sizeof r->warning) &&
        r->options.rank == 0) {
        log_warn("%s", r->warning);
    }
    return 0;
}

int rank_memory_allocate(struct rank *r, struct err *e) {
    int fds[ENGINE_STATE_FDS];
    struct engine_options o;
    int code = plan(r, &o, e);
    if (r->options.dry_run) {
        return code;
    }
    if (code == 0) {
        code = engine_new(&r->layout, &o, &rank_engine_callbacks, r, &r->engine, e);
    }
    if (code == 0) {
        engine_state_fds(r->engine, fds);
        code = offer_to_peers(r, true, fds, ENGINE_STATE_FDS, e);
    }
    return code;
}

int rank_memory_attach(struct rank *r, struct err *e) {
    int code = engine_attach(r->engine, r->attachment, e);
    if (code) {
        return code;
    }
    int fd = engine_grad_fd(r->engine);
    return offer_to_peers(r, false, &fd, 1, e);
}

/* ---- taking ---- */

struct taking {
    struct rank *rank;
    unsigned from;
    bool state;
    uint64_t attachment;
};

static int take(struct rank *r, const struct taking *t, const int *fds, struct err *e) {
    if (!t->state) {
        return engine_peer_grads(r->engine, t->from, t->attachment, fds[0], e);
    }
    int own[ENGINE_STATE_FDS];
    memcpy(own, fds, sizeof own);
    return engine_peer_state(r->engine, t->from, own, e);
}

static void on_taken(void *user, int code, size_t n, const int *fds, const struct err *e) {
    struct taking *t = user;
    struct rank *r = t->rank;
    struct err own = {0};
    char reason[2 * ERR_TEXT];
    (void)n;
    r->taking--;
    if (!r->ending) {
        if (code == 0) {
            code = take(r, t, fds, &own);
            e = &own;
        }
        if (code) {
            (void)snprintf(reason, sizeof reason, "rank %u's memory cannot be mapped: %s", t->from,
                           e->text);
            rank_end(r, reason);
        }
    }
    free(t);
}

void rank_memory_take_offer(struct rank *r, const Zerod__V1__Offer *o) {
    if (!r->engine || o->rank >= r->options.world || o->rank == r->options.rank || !o->ticket ||
        o->ticket->token.len != HANDOVER_TOKEN) {
        rank_end(r, "the coordinator relayed an offer that makes no sense");
        return;
    }
    r->peer_finished[o->rank] = false; /* an attachment has begun there */
    struct taking *t = mem_zeroed(1, sizeof *t);
    *t = (struct taking){r, o->rank, o->state, o->attachment};
    r->taking++;
    handover_take(&r->loop, o->ticket->socket_path, o->ticket->token.data,
                  o->state ? ENGINE_STATE_FDS : 1, TAKE_NS, on_taken, t);
}
