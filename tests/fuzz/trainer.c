#include "trainer.h"

#include "must.h"
#include "process/convert.h"

enum { MESSAGE = 1024 };

void trainer_forget(struct trainer *t) {
    t->registered = t->entered = t->asks = false;
    t->holds = -1;
}

void trainer_register(const struct trainer *t, struct grpc_call *call) {
    Zerod__V1__Register reg = ZEROD__V1__REGISTER__INIT;
    Zerod__V1__TrainerRequest m = ZEROD__V1__TRAINER_REQUEST__INIT;
    uint8_t bytes[MESSAGE];
    reg.model = models_small(t->shape);
    m.id = UINT64_MAX;
    m.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_REGISTER;
    m.register_ = &reg;
    must(zerod__v1__trainer_request__get_packed_size(&m) <= sizeof bytes, "a small model");
    wire_say(call, bytes, zerod__v1__trainer_request__pack(&m, bytes));
}

/* ---- what it says ---- */

static void say(struct trainer *t, Zerod__V1__TrainerRequest *m) {
    Zerod__V1__Fence f = fence_to_message(&t->fence);
    m->id = 1;
    m->fence = &f;
    t->say(m);
}

static void say_begin(struct trainer *t) {
    Zerod__V1__Begin begin = ZEROD__V1__BEGIN__INIT;
    Zerod__V1__TrainerRequest m = ZEROD__V1__TRAINER_REQUEST__INIT;
    m.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN;
    m.begin = &begin;
    t->asks = true;
    say(t, &m);
}

static void say_step(struct trainer *t) {
    Zerod__V1__Step step = ZEROD__V1__STEP__INIT;
    Zerod__V1__TrainerRequest m = ZEROD__V1__TRAINER_REQUEST__INIT;
    step.learning_rate = 0.001;
    m.call_case = ZEROD__V1__TRAINER_REQUEST__CALL_STEP;
    m.step = &step;
    t->stepped = t->fence;
    t->asks = true;
    say(t, &m);
}

static void say_of_unit(struct trainer *t, Zerod__V1__TrainerRequest__CallCase what,
                        unsigned unit) {
    Zerod__V1__Gather gather = ZEROD__V1__GATHER__INIT;
    Zerod__V1__Reduce reduce = ZEROD__V1__REDUCE__INIT;
    Zerod__V1__Release release = ZEROD__V1__RELEASE__INIT;
    Zerod__V1__Load load = ZEROD__V1__LOAD__INIT;
    Zerod__V1__TrainerRequest m = ZEROD__V1__TRAINER_REQUEST__INIT;
    gather.unit = reduce.unit = release.unit = load.unit = unit;
    m.call_case = what;
    if (what == ZEROD__V1__TRAINER_REQUEST__CALL_GATHER) {
        m.gather = &gather;
    } else if (what == ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE) {
        m.reduce = &reduce;
    } else if (what == ZEROD__V1__TRAINER_REQUEST__CALL_RELEASE) {
        m.release = &release;
    } else {
        m.load = &load;
    }
    say(t, &m);
}

/* A unit is released before the next thing is asked for. */
static void follow_plan(struct trainer *t) {
    const Zerod__V1__Model *model = models_small(t->shape);
    const unsigned length = (unsigned)model->plans[0]->n_ops;
    const unsigned total = t->loading ? MODELS_UNITS : length * model->micro_batches;
    if (t->holds >= 0) {
        const unsigned unit = (unsigned)t->holds;
        t->holds = -1;
        say_of_unit(t, ZEROD__V1__TRAINER_REQUEST__CALL_RELEASE, unit);
        return;
    }
    const unsigned at = t->position++;
    const Zerod__V1__PlanOp *op = model->plans[0]->ops[at % length];
    if (at >= total) {
        say_step(t);
    } else if (t->loading) {
        say_of_unit(t, ZEROD__V1__TRAINER_REQUEST__CALL_LOAD, at);
    } else if (op->kind == ZEROD__V1__COLLECTIVE__COLLECTIVE_REDUCE) {
        say_of_unit(t, ZEROD__V1__TRAINER_REQUEST__CALL_REDUCE, op->unit);
    } else {
        t->holds = (int)op->unit;
        say_of_unit(t, ZEROD__V1__TRAINER_REQUEST__CALL_GATHER, op->unit);
    }
}

void trainer_go_on(struct trainer *t) {
    if (!trainer_is_here(t) || !t->registered || t->asks) {
        return;
    }
    if (t->entered) {
        follow_plan(t);
    } else {
        say_begin(t);
    }
}

/* ---- what it hears ---- */

static void enter(struct trainer *t, const Zerod__V1__Fence *f) {
    must(f != NULL, "a try has a fence");
    const struct fence next = fence_from_message(f);
    must(fence_compare(&next, &t->fence) > 0, "tries rise");
    t->fence = next;
    t->entered = true;
    t->loading = next.step == 0;
    t->asks = false;
    t->position = 0;
    t->holds = -1;
}

void trainer_hear(struct trainer *t, const Zerod__V1__TrainerReply *m) {
    switch (m->answer_case) {
    case ZEROD__V1__TRAINER_REPLY__ANSWER_REGISTERED:
        must(!t->registered, "one trainer at a time");
        t->registered = true;
        break;
    case ZEROD__V1__TRAINER_REPLY__ANSWER_ENTERED:
        enter(t, m->entered->fence);
        break;
    case ZEROD__V1__TRAINER_REPLY__ANSWER_OUTCOME:
        t->outcomes++;
        enter(t, m->outcome->next);
        break;
    case ZEROD__V1__TRAINER_REPLY__ANSWER_REFUSED:
        must(m->refused->code > ST_OK && m->refused->code <= ST_UNAUTHENTICATED &&
                 m->refused->text[0],
             "a refusal says why");
        t->asks = false;
        t->entered = t->entered && !m->refused->void_;
        break;
    default:
        must(m->answer_case != ZEROD__V1__TRAINER_REPLY__ANSWER__NOT_SET, "an answer says it");
        break;
    }
}
