/* zerod.h: tries. How one is entered, ended, voided; the eval pass inside one. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/client.h"

enum { REASON_MAX = 200 }; /* bytes of a reason that is sent */

/* ---- begin ---- */

static void swap_cursors(struct zerod *z) {
    struct cursors c = z->current;
    z->current = z->given;
    z->given = c;
    z->given_is_next = false;
}

static void show_try(struct zerod *z, struct zerod_try *t) {
    if (z->given_is_next) {
        swap_cursors(z);
    }
    *t = (struct zerod_try){
        .step = z->fence.step,
        .attempt = z->fence.attempt,
        .loading = z->loading,
        .rank_cursor = buf_bytes(&z->current.rank),
        .rank_cursor_bytes = buf_unread(&z->current.rank),
        .shared_cursor = buf_bytes(&z->current.shared),
        .shared_cursor_bytes = buf_unread(&z->current.shared),
        .loss_scale = z->loss_scale,
        .void_reason = z->void_reason,
    };
}

static int ask_begin(struct zerod *z) {
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__Begin begin = ZEROD__V1__BEGIN__INIT;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN;
    request.begin = &begin;
    return stream_ask(z, ASKED_BEGIN, 0, &request);
}

/* Until a try is open, also when the one that was entered is void again by then. */
static int enter_try(struct zerod *z) {
    int64_t deadline = stream_deadline(z);
    while (z->state != STATE_OPEN) {
        int rc = z->state == STATE_DEAD ? client_fail_with(z, &z->why) : 0;
        if (!rc && z->refusal.code) {
            rc = client_interrupted(z);
        } else if (!rc && z->asked.kind != ASKED_BEGIN) {
            rc = ask_begin(z);
        } else if (!rc && stream_wait(z, deadline)) {
            rc = client_fail(z, ST_DEADLINE_EXCEEDED, "the daemon at %s opened no try within %g s",
                             z->address, (double)z->timeout_ns / 1e9);
        }
        if (rc) {
            return rc;
        }
    }
    return 0;
}

int zerod_begin(struct zerod *z, struct zerod_try *t) {
    int rc = client_check(z);
    if (rc) {
        return rc;
    }
    if (!t) {
        return client_fail(z, ST_INVALID_ARGUMENT, "zerod_begin: |t| is NULL");
    }
    z->refusal = (struct err){0};
    stream_drain(z); /* a try that was opened by the last step may be void by now */
    if (z->state == STATE_OPEN && !z->fresh) {
        return client_fail(z, ST_FAILED_PRECONDITION,
                           "zerod_begin in the middle of step %" PRIu64
                           ": zerod_step ends the try, zerod_abort gives it up",
                           z->fence.step);
    }
    rc = enter_try(z);
    if (!rc) {
        show_try(z, t);
    }
    return rc;
}

/* ---- step ---- */

static int check_cursor(struct zerod *z, const void *bytes, size_t n, const char *what) {
    if (n && !bytes) {
        return client_fail(z, ST_INVALID_ARGUMENT, "zerod_step: the %s cursor of %zu bytes is NULL",
                           what, n);
    }
    if (n > ZEROD_CURSOR) {
        return client_fail(z, ST_INVALID_ARGUMENT,
                           "zerod_step: the %s cursor has %zu bytes, the "
                           "limit is %d",
                           what, n, ZEROD_CURSOR);
    }
    return 0;
}

static int check_step(struct zerod *z, const struct zerod_step *s) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"learning_rate", s->learning_rate}, {"clip", s->clip}, {"weight", s->weight}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!isfinite(numbers[i].value) || numbers[i].value < 0) {
            return client_fail(z, ST_INVALID_ARGUMENT,
                               "zerod_step: %s is %g, it must be finite "
                               "and not negative",
                               numbers[i].name, numbers[i].value);
        }
    }
    if (s->user_count > ZEROD_USER || (s->user_count && !s->user)) {
        return client_fail(z, ST_INVALID_ARGUMENT,
                           "zerod_step: %zu user doubles at %p, the limit "
                           "is %d",
                           s->user_count, (const void *)s->user, ZEROD_USER);
    }
    int rc = check_cursor(z, s->rank_cursor, s->rank_cursor_bytes, "rank");
    return rc ? rc : check_cursor(z, s->shared_cursor, s->shared_cursor_bytes, "shared");
}

static void keep(struct buf *to, const void *bytes, size_t n) {
    buf_consume(to, buf_unread(to));
    buf_append(to, bytes, n);
}

static int ask_step(struct zerod *z, const struct zerod_step *s) {
    /* Copied first: they are what zerod_begin shows once the step is committed. */
    keep(&z->given.rank, s->rank_cursor, s->rank_cursor_bytes);
    keep(&z->given.shared, s->shared_cursor, s->shared_cursor_bytes);
    double user[ZEROD_USER] = {0};
    for (size_t i = 0; i < s->user_count; i++) {
        user[i] = s->user[i];
    }
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__Step step = ZEROD__V1__STEP__INIT;
    step.learning_rate = s->learning_rate;
    step.clip = s->clip;
    step.weight = s->weight;
    step.micro_batches = z->micro_batches;
    step.n_user = s->user_count;
    step.user = user;
    step.rank_cursor.data = z->given.rank.data + z->given.rank.off;
    step.rank_cursor.len = buf_unread(&z->given.rank);
    step.shared_cursor.data = z->given.shared.data + z->given.shared.off;
    step.shared_cursor.len = buf_unread(&z->given.shared);
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_STEP;
    request.step = &step;
    z->have_outcome = false;
    return stream_ask(z, ASKED_STEP, 0, &request);
}

int zerod_step(struct zerod *z, const struct zerod_step *step, struct zerod_outcome *out) {
    static const struct zerod_step nothing = {0};
    const struct zerod_step *s = step ? step : &nothing;
    int rc = client_enter(z, "zerod_step", ASKED_NOTHING, 0);
    if (!rc && (z->lending.eval || !out)) {
        rc = client_fail(z, out ? ST_FAILED_PRECONDITION : ST_INVALID_ARGUMENT, "zerod_step%s",
                         out ? " in an eval pass: zerod_end_eval comes first" : ": |out| is NULL");
    }
    rc = rc ? rc : check_step(z, s);
    rc = rc ? rc : ask_step(z, s);
    if (rc) {
        return rc;
    }
    int64_t deadline = stream_deadline(z);
    while (!z->have_outcome) {
        rc = client_interrupted(z);
        if (rc) {
            return rc;
        }
        if (stream_wait(z, deadline)) {
            char words[ERR_TEXT];
            (void)snprintf(words, sizeof words, "the daemon at %s did not answer within %g s",
                           z->address, (double)z->timeout_ns / 1e9);
            state_dead(z, ST_UNAVAILABLE, words);
        }
    }
    *out = z->outcome;
    return 0;
}

/* ---- eval and abort ---- */

static int eval_pass(struct zerod *z, enum asked_kind kind, Zerod__V1__TrainerRequest *request) {
    const char *call = kind == ASKED_BEGIN_EVAL ? "zerod_begin_eval" : "zerod_end_eval";
    int rc = z->asked.kind == kind ? 0 : stream_ask(z, kind, 0, request);
    int64_t deadline = stream_deadline(z);
    while (!rc && !z->answered) {
        rc = client_interrupted(z);
        if (!rc && stream_wait(z, deadline)) {
            rc = client_fail(z, ST_DEADLINE_EXCEEDED, "%s was not answered within %g s", call,
                             (double)z->timeout_ns / 1e9);
        }
    }
    return rc;
}

int zerod_begin_eval(struct zerod *z) {
    const struct lending *l = &z->lending;
    int rc = client_enter(z, "zerod_begin_eval", ASKED_BEGIN_EVAL, 0);
    if (rc) {
        return rc;
    }
    const char *why = z->loading         ? "in step 0"
                      : l->eval          ? "inside an eval pass"
                      : !l->has_eval     ? "without a plan \"eval\""
                      : l->expected      ? "after zerod_prefetch"
                      : l->gathers.taken ? "after the try's first gather"
                      : l->grants.taken  ? "after the try's first gradient"
                                         : NULL;
    if (why) {
        return client_fail(z, ST_FAILED_PRECONDITION, "zerod_begin_eval %s", why);
    }
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__BeginEval begin = ZEROD__V1__BEGIN_EVAL__INIT;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN_EVAL;
    request.begin_eval = &begin;
    return eval_pass(z, ASKED_BEGIN_EVAL, &request);
}

int zerod_end_eval(struct zerod *z) {
    int rc = client_enter(z, "zerod_end_eval", ASKED_END_EVAL, 0);
    if (rc) {
        return rc;
    }
    if (!z->lending.eval) {
        return client_fail(z, ST_FAILED_PRECONDITION, "zerod_end_eval without an eval pass");
    }
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__EndEval end = ZEROD__V1__END_EVAL__INIT;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_END_EVAL;
    request.end_eval = &end;
    return eval_pass(z, ASKED_END_EVAL, &request);
}

/* A copy of at most REASON_MAX bytes that ends between two characters. */
static void copy_reason(const char *reason, char to[REASON_MAX + 1]) {
    size_t n = reason ? strnlen(reason, REASON_MAX + 1) : 0;
    if (n > REASON_MAX) {
        n = REASON_MAX;
        while (n && ((unsigned char)reason[n] & 0xC0) == 0x80) {
            n--;
        }
    }
    if (n) {
        memcpy(to, reason, n);
    }
    to[n] = '\0';
}

int zerod_abort(struct zerod *z, const char *reason) {
    char words[REASON_MAX + 1], why[ERR_TEXT];
    int rc = client_enter(z, "zerod_abort", z->asked.kind, z->asked.unit);
    if (rc) {
        return rc;
    }
    copy_reason(reason, words);
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__AbortTry abort_try = ZEROD__V1__ABORT_TRY__INIT;
    abort_try.reason = words;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_ABORT;
    request.abort = &abort_try;
    rc = stream_tell(z, &request);
    if (rc && z->state == STATE_OPEN) {
        return rc;
    }
    (void)snprintf(why, sizeof why, "this trainer gave up its try: %s", words);
    state_void(z, ST_ABORTED, why);
    return z->state == STATE_DEAD ? rc : 0;
}
