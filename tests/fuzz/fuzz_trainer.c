/* libFuzzer: what a registered trainer may say on its stream, to a whole daemon with a real engine,
 * in a job of one rank. Byte 0: the job's shape. Then one byte for each thing that happens:
 * messages are the input's bytes, put into the running try by their fence unless the byte says
 * otherwise; the rest is what a good trainer would do next, a death, a lost connection, another
 * trainer.
 *
 * Every request is answered, or its try is void, or the stream has ended; no trainer ends its
 * daemon; and whatever happened, a good trainer that comes afterwards gets its step committed: no
 * lease and no slot was lost. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "coord_host.h"
#include "must.h"
#include "proto/unpack.h"
#include "rank_host.h"
#include "trainer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CALLS = 12, MAIL = 1 << 20, OPS = 40, WAITING = 64, PATIENCE = 40 };
enum { DO_SAY = 0, DO_GO_ON = 4, DO_DIE = 5, DO_LEAVE = 6, DO_COME = 7, DO_KINDS = 8 };
enum { OTHER = 8, AT_ONCE = 16 }; /* bits: the other variant; the engine does nothing meanwhile */

static struct rank *r;
static unsigned shape;
static struct buf to_rank, to_coordinator; /* messages, each behind its size_t */
static struct grpc_call join, calls[CALLS];
static unsigned call_count;
static struct trainer t;
static bool is_last; /* the good trainer that comes in the end */
static uint64_t last_id, waiting[WAITING];
static unsigned waiting_count;

/* ---- mail between daemon and coordinator ---- */

static void post(void *box, const uint8_t *bytes, size_t n) {
    buf_append(box, &n, sizeof n);
    buf_append(box, bytes, n);
    must(buf_unread(box) < MAIL, "few messages wait");
}

static bool deliver(struct buf *box, bool to_the_rank) {
    bool any = false;
    while (buf_unread(box)) {
        size_t n;
        memcpy(&n, buf_bytes(box), sizeof n);
        uint8_t *copy = mem_zeroed(n, 1);
        memcpy(copy, buf_bytes(box) + sizeof n, n);
        buf_consume(box, sizeof n + n);
        if (to_the_rank) {
            wire_answer(copy, n);
        } else {
            wire_say(&join, copy, n);
        }
        free(copy);
        any = true;
    }
    return any;
}

static bool pass(void *user) {
    (void)user;
    bool any = deliver(&to_coordinator, false) || deliver(&to_rank, true);
    for (unsigned i = 0; i < call_count; i++) {
        wire_settle(&calls[i]);
    }
    return any;
}

/* ---- what the trainer hears ---- */

static void answered(uint64_t id) {
    for (unsigned i = 0; i < waiting_count; i++) {
        if (waiting[i] == id) {
            waiting[i] = waiting[--waiting_count];
            return;
        }
    }
}

static void hear(void *user, const uint8_t *bytes, size_t n) {
    struct grpc_call *call = user;
    Zerod__V1__TrainerReply *m =
        (Zerod__V1__TrainerReply *)unpack_message(&zerod__v1__trainer_reply__descriptor, bytes, n);
    must(m != NULL, "an answer that can be read");
    if (m->answer_case == ZEROD__V1__TRAINER_REPLY__ANSWER_REGISTERED) {
        t.call = call; /* and not one that has not registered */
        waiting_count = 0;
    }
    if (call == t.call) {
        trainer_hear(&t, m);
        answered(m->id);
    } else { /* a second trainer while there is one */
        must(m->answer_case == ZEROD__V1__TRAINER_REPLY__ANSWER_REFUSED, "the other is refused");
    }
    if (m->answer_case == ZEROD__V1__TRAINER_REPLY__ANSWER_REFUSED && m->refused->void_) {
        waiting_count = 0;
    }
    zerod__v1__trainer_reply__free_unpacked(m, NULL);
}

static void forget(void) {
    trainer_forget(&t);
    waiting_count = 0;
}

static void settle(void) {
    rank_host_settle(r, pass, NULL);
    must(!r->ending && !coord_host_ending(), "no trainer ends its daemon");
    must(!trainer_is_here(&t) || !waiting_count, "a request is answered");
    if (!trainer_is_here(&t)) {
        forget();
    }
}

/* ---- what it says ---- */

static bool wants_answer(const Zerod__V1__TrainerRequest *m) {
    switch (m->call_case) {
    case ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN:
    case ZEROD__V1__TRAINER_REQUEST__CALL_STEP:
    case ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN_EVAL:
    case ZEROD__V1__TRAINER_REQUEST__CALL_END_EVAL:
    case ZEROD__V1__TRAINER_REQUEST__CALL_DETACH:
        return true;
    default:
        return false;
    }
}

/* A call of the last try, which is void: there is no other answer to it. */
static bool was_told(const Zerod__V1__TrainerRequest *m) {
    const struct fence f = fence_from_message(m->fence);
    return !t.entered && f.attempt && fence_equal(&f, &t.fence) &&
           m->call_case != ZEROD__V1__TRAINER_REQUEST__CALL_BEGIN &&
           m->call_case != ZEROD__V1__TRAINER_REQUEST__CALL_DETACH;
}

static void say(Zerod__V1__TrainerRequest *m) {
    if (!trainer_is_here(&t) || waiting_count == WAITING) {
        return;
    }
    if (m->id) {
        m->id = ++last_id;
    }
    if (wants_answer(m) && !was_told(m)) {
        waiting[waiting_count++] = m->id;
    }
    size_t n = zerod__v1__trainer_request__get_packed_size(m);
    uint8_t *bytes = mem_zeroed(n, 1);
    (void)zerod__v1__trainer_request__pack(m, bytes);
    wire_say(t.call, bytes, n);
    free(bytes);
}

static void say_bytes(const uint8_t *bytes, size_t n, bool own_fence) {
    Zerod__V1__Fence current = fence_to_message(&t.fence), *theirs;
    Zerod__V1__TrainerRequest *m = (Zerod__V1__TrainerRequest *)unpack_message(
        &zerod__v1__trainer_request__descriptor, bytes, n);
    if (!m) {
        if (trainer_is_here(&t)) {
            wire_say(t.call, bytes, n);
            must(!trainer_is_here(&t), "what is no request ends the stream");
        }
        return;
    }
    theirs = m->fence;
    m->fence = own_fence ? theirs : &current;
    say(m);
    m->fence = theirs;
    zerod__v1__trainer_request__free_unpacked(m, NULL);
}

static void come(bool registers) {
    if (call_count + !is_last >= CALLS) { /* the last call is the last trainer's */
        return;
    }
    struct grpc_call *call = &calls[call_count++];
    if (!trainer_is_here(&t)) {
        forget();
        t.call = call;
    }
    wire_open(call, session_service(r), hear, call);
    if (registers) {
        trainer_register(&t, call);
    }
}

static void go_on(void) {
    if (trainer_is_here(&t)) {
        trainer_go_on(&t);
    } else {
        come(true);
    }
    settle();
}

static void leave(bool in_order) {
    if (trainer_is_here(&t) && in_order) {
        wire_half_close(t.call);
    } else if (t.call) {
        wire_gone(t.call);
    }
}

/* ---- the whole ---- */

static void one_thing(struct input *in) {
    const uint8_t op = input_byte(in);
    size_t n;
    switch (op % DO_KINDS) {
    case DO_GO_ON:
        for (unsigned i = input_byte(in) % 16 + 1; i; i--) {
            go_on();
        }
        break;
    case DO_DIE:
        rank_host_die(r);
        break;
    case DO_LEAVE:
        leave(op & OTHER);
        break;
    case DO_COME:
        come(!(op & OTHER));
        break;
    default: {
        const uint8_t *bytes = input_piece(in, &n);
        say_bytes(bytes, n, op & OTHER);
    }
    }
    if (!(op & AT_ONCE)) {
        settle();
    }
}

static void up(void) {
    r = rank_host_up(0, 1, shape);
    coord_host_up(1);
    to_rank = to_coordinator = (struct buf){0};
    call_count = waiting_count = 0;
    last_id = 0;
    is_last = false;
    t = (struct trainer){.shape = shape, .say = say, .holds = -1};
    wire_open(&join, coord_host_service(), post, &to_rank);
    wire_stream.hear = post;
    wire_stream.user = &to_coordinator;
    settle();
    go_on();
    must(t.registered, "a good trainer is registered");
}

static void down(void) {
    rank_host_down(r);
    for (unsigned i = 0; i < call_count; i++) {
        wire_settle(&calls[i]);
    }
    coord_host_down();
    buf_free(&to_rank);
    buf_free(&to_coordinator);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, size};
    int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(before);
    shape = input_byte(&in);
    up();
    for (unsigned i = 0; i < OPS && in.left; i++) {
        one_thing(&in);
    }
    settle();
    leave(false);
    settle();
    t.outcomes = 0;
    is_last = true;
    for (unsigned i = 0; i < PATIENCE && !t.outcomes; i++) {
        go_on();
    }
    must(t.outcomes == 1, "a good trainer's step is determined, whoever came before");
    down();
    int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(after);
    must(before == after, "no descriptor is left open");
    return 0;
}
