/* zerod.h: what happens inside a try, unit by unit. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"

int client_fail(struct zerod *z, int code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    z->last.code = code;
    (void)vsnprintf(z->last.text, sizeof z->last.text, fmt, args);
    va_end(args);
    return -code;
}

int client_fail_with(struct zerod *z, const struct err *e) {
    return client_fail(z, e->code, "%s", e->text);
}

int client_check(struct zerod *z) {
    if (z->pid != getpid()) {
        return client_fail(z, ST_FAILED_PRECONDITION,
                           "process %d is forked from the trainer %d, "
                           "whose attachment this is",
                           (int)getpid(), (int)z->pid);
    }
    return z->state == STATE_DEAD ? client_fail_with(z, &z->why) : 0;
}

int client_enter(struct zerod *z, const char *call, enum asked_kind kind, uint32_t unit) {
    static const char *const names[] = {
        "nothing",    "zerod_attach",     "zerod_begin",    "zerod_gather",
        "zerod_step", "zerod_begin_eval", "zerod_end_eval", "zerod_detach",
    };
    int rc = client_check(z);
    if (rc) {
        return rc;
    }
    if (z->state != STATE_OPEN) {
        return client_fail_with(z, &z->why);
    }
    if (z->pending.code) {
        rc = client_fail_with(z, &z->pending);
        z->pending = (struct err){0};
        return rc;
    }
    if (z->asked.kind != ASKED_NOTHING && (z->asked.kind != kind || z->asked.unit != unit)) {
        return client_fail(z, ST_FAILED_PRECONDITION,
                           "%s while an earlier %s that ran into its "
                           "deadline is not answered: call that again",
                           call, names[z->asked.kind]);
    }
    return 0;
}

int client_interrupted(struct zerod *z) {
    if (z->refusal.code) {
        int rc = client_fail_with(z, &z->refusal);
        z->refusal = (struct err){0};
        return rc;
    }
    return z->state == STATE_OPEN ? 0 : client_fail_with(z, &z->why);
}

static int check_unit(struct zerod *z, uint32_t unit) {
    if (unit < z->lending.unit_count) {
        return 0;
    }
    return client_fail(z, ST_INVALID_ARGUMENT, "unit %" PRIu32 ", the model has %zu", unit,
                       z->lending.unit_count);
}

static double seconds(const struct zerod *z) {
    return (double)z->timeout_ns / 1e9;
}

static const void *params_of(const struct zerod *z, uint32_t unit) {
    return (const uint8_t *)z->params.address + z->lending.units[unit].param_offset;
}

/* Until the daemon's gather of the plan's next position is here, or a reason why not. */
static int await_gather(struct zerod *z, uint32_t unit) {
    int64_t deadline = stream_deadline(z);
    stream_look(z);
    for (;;) {
        int rc = client_interrupted(z);
        if (rc) {
            return rc;
        }
        if (lending_take(&z->lending, unit)) {
            z->asked = (struct asked){0};
            return 0;
        }
        if (stream_wait(z, deadline)) {
            char list[ZEROD_TEXT / 2];
            lending_list(&z->lending, list, sizeof list);
            return client_fail(z, ST_DEADLINE_EXCEEDED,
                               "unit '%s' was not gathered within %g s; "
                               "this trainer holds %s",
                               z->lending.units[unit].name, seconds(z), list);
        }
    }
}

int zerod_prefetch(struct zerod *z) {
    int rc = client_enter(z, "zerod_prefetch", ASKED_NOTHING, 0);
    if (!rc && (z->loading || z->lending.eval)) {
        rc = client_fail(z, ST_FAILED_PRECONDITION, "zerod_prefetch in %s",
                         z->loading ? "step 0: its initial values are being loaded"
                                    : "an eval pass");
    }
    if (rc) {
        return rc;
    }
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__Prefetch prefetch = ZEROD__V1__PREFETCH__INIT;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_PREFETCH;
    request.prefetch = &prefetch;
    rc = stream_tell(z, &request);
    z->lending.expected = z->lending.expected || rc == 0;
    return rc;
}

int zerod_gather(struct zerod *z, uint32_t unit, const void **params) {
    int rc = client_enter(z, "zerod_gather", ASKED_GATHER, unit);
    rc = rc ? rc : check_unit(z, unit);
    if (rc) {
        return rc;
    }
    if (!params) {
        return client_fail(z, ST_INVALID_ARGUMENT, "zerod_gather: |params| is NULL");
    }
    if (z->loading) {
        return client_fail(z, ST_FAILED_PRECONDITION,
                           "gather of unit '%s' in step 0: its initial "
                           "values are being loaded",
                           z->lending.units[unit].name);
    }
    if (z->lending.units[unit].leases) {
        z->lending.units[unit].leases++;
        *params = params_of(z, unit);
        return 0;
    }
    if (z->asked.kind != ASKED_GATHER) { /* else the one that ran into its deadline goes on */
        Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
        Zerod__V1__Gather gather = ZEROD__V1__GATHER__INIT;
        gather.unit = unit;
        request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_GATHER;
        request.gather = &gather;
        rc = stream_ask(z, ASKED_GATHER, unit, &request);
    }
    rc = rc ? rc : await_gather(z, unit);
    if (!rc) {
        *params = params_of(z, unit);
    }
    return rc;
}

int zerod_release(struct zerod *z, uint32_t unit) {
    struct err e;
    /* Allowed while a gather is not answered: it may be what that gather waits for. */
    int rc = client_enter(z, "zerod_release", z->asked.kind, z->asked.unit);
    rc = rc ? rc : check_unit(z, unit);
    rc = rc ? rc : stream_room(z);
    if (rc) {
        return rc;
    }
    rc = lending_release(&z->lending, unit, &e);
    if (rc < 0) {
        return client_fail_with(z, &e);
    }
    if (rc == 0) {
        return 0;
    }
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__Release release = ZEROD__V1__RELEASE__INIT;
    release.unit = unit;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_RELEASE;
    request.release = &release;
    return stream_put(z, &request);
}

/* Until the daemon has granted the try's next gradient slot. */
static int await_slot(struct zerod *z, uint32_t unit) {
    int64_t deadline = stream_deadline(z);
    struct err e;
    stream_look(z);
    for (;;) {
        int rc = client_interrupted(z);
        rc = rc ? rc : lending_open(&z->lending, unit, z->loading, &e);
        if (rc > 0) {
            return 0;
        }
        if (rc == -ST_INTERNAL && z->state == STATE_OPEN) {
            state_dead(z, ST_INTERNAL, e.text);
            return client_fail_with(z, &z->why);
        }
        if (rc) {
            return rc;
        }
        if (stream_wait(z, deadline)) {
            char list[ZEROD_TEXT / 2];
            lending_list(&z->lending, list, sizeof list);
            return client_fail(z, ST_DEADLINE_EXCEEDED,
                               "no gradient slot for unit '%s' within %g "
                               "s; this trainer holds %s",
                               z->lending.units[unit].name, seconds(z), list);
        }
    }
}

/* A slot of the gradients' memory for the unit. */
static int open_slot(struct zerod *z, const char *call, uint32_t unit, bool loading, void **slot) {
    struct err e;
    int rc = client_enter(z, call, ASKED_NOTHING, 0);
    rc = rc ? rc : check_unit(z, unit);
    if (rc) {
        return rc;
    }
    if (!slot || z->lending.eval) {
        return client_fail(z, slot ? ST_FAILED_PRECONDITION : ST_INVALID_ARGUMENT, "%s%s", call,
                           slot ? " in an eval pass" : ": where to put the slot is NULL");
    }
    if (loading != z->loading) {
        return client_fail(z, ST_FAILED_PRECONDITION,
                           "%s in step %" PRIu64 ": initial values are %s", call, z->fence.step,
                           loading ? "loaded in step 0 only" : "being loaded");
    }
    if (lending_may_open(&z->lending, unit, loading, &e)) {
        return client_fail_with(z, &e);
    }
    z->fresh = false;
    rc = await_slot(z, unit);
    if (!rc) {
        *slot = (uint8_t *)z->grads.address + z->lending.units[unit].grad_offset;
    }
    return rc;
}

int zerod_grad(struct zerod *z, uint32_t unit, bool zeroed, void **grad) {
    int rc = open_slot(z, "zerod_grad", unit, false, grad);
    if (!rc && zeroed) {
        memset(*grad, 0, (size_t)z->lending.units[unit].grad_bytes);
    }
    return rc;
}

int zerod_initial(struct zerod *z, uint32_t unit, float **values) {
    void *slot = NULL;
    int rc = open_slot(z, "zerod_initial", unit, true, values ? &slot : NULL);
    if (!rc) {
        *values = slot;
    }
    return rc;
}

/* Hands the unit's gradient slot back, as |request| says. */
static int hand_back(struct zerod *z, uint32_t unit, bool load,
                     Zerod__V1__TrainerRequest *request) {
    const char *call = load ? "zerod_load" : "zerod_reduce";
    struct err e;
    int rc = client_enter(z, call, ASKED_NOTHING, 0);
    rc = rc ? rc : check_unit(z, unit);
    if (rc) {
        return rc;
    }
    if (load != z->loading) {
        return client_fail(
            z, ST_FAILED_PRECONDITION, "%s in step %" PRIu64 ": %s", call, z->fence.step,
            load ? "initial values are loaded in step 0 only" : "initial values are being loaded");
    }
    rc = stream_room(z);
    if (rc) {
        return rc;
    }
    rc = lending_close(&z->lending, unit, &e);
    return rc ? client_fail_with(z, &e) : stream_tell(z, request);
}

int zerod_reduce(struct zerod *z, uint32_t unit) {
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__Reduce reduce = ZEROD__V1__REDUCE__INIT;
    reduce.unit = unit;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE;
    request.reduce = &reduce;
    return hand_back(z, unit, false, &request);
}

int zerod_load(struct zerod *z, uint32_t unit) {
    Zerod__V1__TrainerRequest request = ZEROD__V1__TRAINER_REQUEST__INIT;
    Zerod__V1__Load load = ZEROD__V1__LOAD__INIT;
    load.unit = unit;
    request.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_LOAD;
    request.load = &load;
    return hand_back(z, unit, true, &request);
}
