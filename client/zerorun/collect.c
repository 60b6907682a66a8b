/* First all hashes, then all states: a daemon answers the former when its part of the last update
 * is complete, and that everywhere is when the last byte was sent. */
#include "collect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "job.h"

enum {
    CALL_LIMIT_S = 30,
    EVENTS_LIMIT_MS = 2000,
    EVENTS_EVERY_MS = 10,
    FAILURE_MS = 200, /* a lost connection is often a death that is about to be seen */
};

/* One call to one process. */
struct question {
    struct collect *collect;
    const struct member *member;
    struct ask *ask;
    bool answered;
};

struct collect {
    struct job *job;
    struct results results;
    struct question *questions; /* one a rank, then the coordinator */
    unsigned open;              /* of them, in this round */
    bool hashed;                /* the round of hashes is over */
    bool cancelled;
    bool failed;
    struct err error; /* the first failure */
    unsigned waited_ms;
    uv_timer_t timer;
};

static const Zerod__V1__StatusRequest status_request = ZEROD__V1__STATUS_REQUEST__INIT;
static const Zerod__V1__HashRequest hash_request = ZEROD__V1__HASH_REQUEST__INIT;

void results_free(struct results *r, unsigned ranks) {
    for (unsigned i = 0; r->ranks && i < ranks; i++) {
        if (r->ranks[i]) {
            zerod__v1__status_reply__free_unpacked(r->ranks[i], NULL);
        }
    }
    if (r->job) {
        zerod__v1__status_reply__free_unpacked(r->job, NULL);
    }
    free(r->ranks);
    free(r->versions);
    *r = (struct results){0};
}

static void closed(uv_handle_t *handle) {
    struct collect *c = handle->data;
    results_free(&c->results, c->job->ranks);
    free(c->questions);
    free(c);
}

static void finish(struct collect *c) {
    (void)uv_timer_stop(&c->timer);
    uv_close((uv_handle_t *)&c->timer, closed);
    if (c->cancelled) {
        return;
    }
    if (!c->failed) {
        c->job->results = c->results;
        c->results = (struct results){0};
    }
    job_collected(c->job, c->failed ? &c->error : NULL);
}

static void fail(struct collect *c, const char *who, const char *what) {
    if (!c->failed) {
        c->failed = true;
        err_set(&c->error, ST_INTERNAL, "%s: %s", who, what);
    }
}

static void compare_versions(struct collect *c) {
    const uint64_t *v = c->results.versions;
    for (unsigned r = 1; r < c->job->ranks && !c->failed; r++) {
        if (v[r] != v[0]) {
            c->failed = true;
            err_set(&c->error, ST_INTERNAL,
                    "ranks ended at different steps: rank 0 at %" PRIu64 ", rank %u at %" PRIu64,
                    v[0], r, v[r]);
        }
    }
}

/* The coordinator's stream of steps may be a moment behind the daemons' counts. */
static void on_events_wait(uv_timer_t *timer) {
    struct collect *c = timer->data;
    uint64_t want = c->results.ranks[0]->rank->steps, have = c->job->progress.steps;
    if (have >= want || c->cancelled) {
        finish(c);
        return;
    }
    c->waited_ms += EVENTS_EVERY_MS;
    if (c->waited_ms > EVENTS_LIMIT_MS) {
        c->failed = true;
        err_set(&c->error, ST_INTERNAL,
                "the coordinator told of %" PRIu64 " steps, but the daemons took %" PRIu64, have,
                want);
        finish(c);
    }
}

static void on_failure_wait(uv_timer_t *timer) {
    finish(timer->data);
}

static void put_all(struct collect *c, unsigned count);

static void question_over(struct collect *c) {
    if (--c->open) {
        return;
    }
    if (!c->hashed && !c->failed && !c->cancelled) {
        c->hashed = true;
        put_all(c, c->job->ranks + 1);
        return;
    }
    if (!c->failed && !c->cancelled) {
        compare_versions(c);
    }
    if (c->cancelled) {
        finish(c);
    } else if (c->failed) {
        (void)uv_timer_start(&c->timer, on_failure_wait, FAILURE_MS, 0);
    } else {
        (void)uv_timer_start(&c->timer, on_events_wait, 0, EVENTS_EVERY_MS);
    }
}

static void take_status(struct question *q, const ProtobufCMessage *message) {
    const Zerod__V1__StatusReply *reply = (const Zerod__V1__StatusReply *)message;
    bool daemon = q->member->kind == DAEMON;
    if (reply->of_case !=
        (daemon ? ZEROD__V1__STATUS_REPLY__OF_RANK : ZEROD__V1__STATUS_REPLY__OF_JOB)) {
        return;
    }
    Zerod__V1__StatusReply **to =
        daemon ? &q->collect->results.ranks[q->member->rank] : &q->collect->results.job;
    if (*to) {
        return;
    }
    /* Copied through the wire format: the caller frees its own. */
    struct buf packed = {0};
    size_t n = protobuf_c_message_get_packed_size(message);
    protobuf_c_message_pack(message, buf_reserve(&packed, n));
    *to = zerod__v1__status_reply__unpack(NULL, n, packed.data);
    buf_free(&packed);
    q->answered = *to != NULL;
}

static void on_reply(void *user, const ProtobufCMessage *message) {
    struct question *q = user;
    struct results *results = &q->collect->results;
    if (message->descriptor == &zerod__v1__status_reply__descriptor) {
        take_status(q, message);
    } else {
        const Zerod__V1__HashReply *hash = (const Zerod__V1__HashReply *)message;
        results->param_hash += q->answered ? 0 : hash->sum;
        results->versions[q->member->rank] = hash->version;
        q->answered = true;
    }
}

static void on_done(void *user, int code, const char *text) {
    struct question *q = user;
    struct collect *c = q->collect;
    char name[32];
    q->ask = NULL;
    if (code || !q->answered) {
        fail(c, member_name(q->member, name), code ? text : "gave no usable answer");
    }
    question_over(c);
}

/* Puts the next call; a failure to dial ends the question. */
static void put(struct question *q) {
    bool hashed = q->collect->hashed;
    struct ask_options o = {
        .path = q->member->address,
        .method = hashed ? "/zerod.v1.Admin/Status" : "/zerod.v1.Admin/Hash",
        .request = hashed ? &status_request.base : &hash_request.base,
        .reply = hashed ? &zerod__v1__status_reply__descriptor : &zerod__v1__hash_reply__descriptor,
        .timeout_ns = CALL_LIMIT_S * INT64_C(1000000000),
        .on_reply = on_reply,
        .on_done = on_done,
        .user = q,
    };
    struct err e;
    q->answered = false;
    if (ask_start(&q->collect->job->loop, &o, &q->ask, &e)) {
        char name[32];
        fail(q->collect, member_name(q->member, name), e.text);
        question_over(q->collect);
    }
}

static void put_all(struct collect *c, unsigned count) {
    c->open = count + 1; /* one more, so that the round cannot end before all are put */
    for (unsigned i = 0; i < count; i++) {
        put(&c->questions[i]);
    }
    question_over(c);
}

void collect_begin(struct job *j) {
    struct collect *c = mem_zeroed(1, sizeof *c);
    c->job = j;
    c->results.ranks = mem_zeroed(j->ranks, sizeof(Zerod__V1__StatusReply *));
    c->results.versions = mem_zeroed(j->ranks, sizeof *c->results.versions);
    c->questions = mem_zeroed(j->ranks + 1, sizeof *c->questions);
    j->collect = c;
    (void)uv_timer_init(&j->loop, &c->timer);
    c->timer.data = c;
    for (unsigned i = 0; i <= j->ranks; i++) {
        c->questions[i].collect = c;
        c->questions[i].member = i < j->ranks ? &j->daemons[i] : &j->coordinator;
    }
    put_all(c, j->ranks);
}

void collect_cancel(struct collect *c) {
    if (!c) {
        return;
    }
    c->cancelled = true;
    bool asking = false;
    for (unsigned i = 0; i <= c->job->ranks; i++) {
        if (c->questions[i].ask) {
            asking = true;
            ask_cancel(c->questions[i].ask);
        }
    }
    if (!asking && uv_is_active((uv_handle_t *)&c->timer)) {
        finish(c); /* it was only waiting for events */
    }
}
