/* A dry run. The daemons run with --dry-run: they take the trainers' models, agree on them and
 * compute what they would need, but allocate nothing and never answer the trainers. Here they are
 * asked until all of them know; then the table is printed, trainers are killed and all ends. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "client/plan/plan.h"
#include "job.h"
#include "process/convert.h"
#include "report.h"
#include "screen.h"

enum { EVERY_MS = 10, CALL_LIMIT_S = 10 };

struct dry {
    struct job *job;
    struct ask *ask;                /* the call in progress; NULL: none */
    unsigned rank;                  /* that is asked next; all ranks: for the model */
    Zerod__V1__StatusReply **ranks; /* owned; their answers */
    struct model model;
    bool has_model, over;
    uv_timer_t timer;
};

static void free_dry(uv_handle_t *handle) {
    struct dry *d = handle->data;
    for (unsigned r = 0; d->ranks && r < d->job->ranks; r++) {
        if (d->ranks[r]) {
            zerod__v1__status_reply__free_unpacked(d->ranks[r], NULL);
        }
    }
    free(d->ranks);
    model_free(&d->model);
    free(d);
}

/* Once no call is in progress. */
static void finish(struct dry *d) {
    if (!d->ask && !uv_is_closing((uv_handle_t *)&d->timer)) {
        (void)uv_timer_stop(&d->timer);
        uv_close((uv_handle_t *)&d->timer, free_dry);
    }
}

void dry_stop(struct job *j) {
    struct dry *d = j->dry;
    if (!d) {
        return;
    }
    j->dry = NULL;
    d->over = true;
    if (d->ask) {
        ask_cancel(d->ask);
    }
    finish(d);
}

/* ---- what is printed ---- */

static int tell(struct dry *d, struct err *e) {
    struct job *j = d->job;
    static struct plan_table table;
    const struct plan_request request = {
        .model = &d->model,
        .world = j->ranks,
        .shard_size = d->model.shard_size,
        .slots = {(uint32_t)j->o->gather_slots, (uint32_t)j->o->grad_slots},
        .device_memory = j->o->device_memory,
    };
    int rc = plan_table_init(&table, &request, e);
    if (rc) {
        return rc;
    }
    talk_flush(j->talk);
    plan_print(&table, NULL, false, stdout);
    report_dry(j, stdout);
    (void)fflush(stdout);
    return report_dry_json(j, &table, e);
}

static void complete(struct dry *d) {
    struct job *j = d->job;
    struct err e;
    j->results.ranks = d->ranks;
    d->ranks = NULL;
    if (tell(d, &e)) {
        job_fail(j, "%s", e.text);
        return;
    }
    talk_silence(j->talk);
    end_job(j, ENDING_SUDDEN, 0);
}

/* ---- asking ---- */

static void on_status(struct dry *d, const ProtobufCMessage *message) {
    const Zerod__V1__StatusReply *reply = (const Zerod__V1__StatusReply *)message;
    if (reply->of_case != ZEROD__V1__STATUS_REPLY__OF_RANK ||
        strcmp(reply->rank->phase, "planned") != 0) {
        return;
    }
    /* Copied through the wire format: the caller frees its own. */
    struct buf packed = {0};
    size_t n = protobuf_c_message_get_packed_size(message);
    protobuf_c_message_pack(message, buf_reserve(&packed, n));
    d->ranks[d->rank] = zerod__v1__status_reply__unpack(NULL, n, packed.data);
    buf_free(&packed);
    d->rank += d->ranks[d->rank] != NULL;
}

static void on_reply(void *user, const ProtobufCMessage *message) {
    struct dry *d = user;
    struct err e;
    if (d->over || d->has_model) {
        return;
    }
    if (d->rank < d->job->ranks) {
        on_status(d, message);
    } else if (model_from_message((const Zerod__V1__Model *)message, NULL, &d->model, &e) == 0) {
        d->has_model = true;
    }
}

static void on_done(void *user, int code, const char *text) {
    struct dry *d = user;
    (void)code; /* a daemon that is gone is noticed by its exit */
    (void)text;
    d->ask = NULL;
    if (d->over) {
        finish(d);
    } else if (d->has_model) {
        complete(d);
    }
}

static void on_timer(uv_timer_t *timer) {
    static const Zerod__V1__StatusRequest status = ZEROD__V1__STATUS_REQUEST__INIT;
    static const Zerod__V1__DescribeRequest describe = ZEROD__V1__DESCRIBE_REQUEST__INIT;
    struct dry *d = timer->data;
    const struct job *j = d->job;
    const bool model = d->rank == j->ranks;
    struct ask_options o = {
        .path = j->daemons[model ? 0 : d->rank].address,
        .method = model ? "/zerod.v1.Admin/Describe" : "/zerod.v1.Admin/Status",
        .request = model ? &describe.base : &status.base,
        .reply = model ? &zerod__v1__model__descriptor : &zerod__v1__status_reply__descriptor,
        .timeout_ns = CALL_LIMIT_S * INT64_C(1000000000),
        .on_reply = on_reply,
        .on_done = on_done,
        .user = d,
    };
    if (!d->ask && !d->has_model && ask_start(&d->job->loop, &o, &d->ask, NULL)) {
        d->ask = NULL;
    }
}

void dry_begin(struct job *j) {
    struct dry *d = mem_zeroed(1, sizeof *d);
    d->job = j;
    d->ranks = mem_zeroed(j->ranks, sizeof(Zerod__V1__StatusReply *));
    j->dry = d;
    (void)uv_timer_init(&j->loop, &d->timer);
    d->timer.data = d;
    (void)uv_timer_start(&d->timer, on_timer, 0, EVERY_MS);
}
