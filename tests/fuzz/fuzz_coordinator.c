/* libFuzzer: what the daemons of a job may say to its coordinator. Byte 0: how many there are, and
 * whether the job runs already when the rest begins: one byte for each thing that happens, with the
 * rank that it comes from. Messages are the input's bytes, made to fit the running try unless the
 * byte says otherwise; the rest is what a good daemon would say, and losses.
 *
 * What is decided was voted for by all ranks, or reported as decided; tries rise; whoever is
 * refused is told why. */
#include <string.h>

#include "base/buf.h"
#include "coord_host.h"
#include "models.h"
#include "must.h"
#include "process/convert.h"
#include "proto/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORLD = 3, OPS = 100, SEEN = 512, MESSAGE = 1024 };
enum { DO_SAY, DO_HELLO, DO_REGISTER, DO_READY, DO_GRANT, DO_YES, DO_NO, DO_REJOIN, DO_KINDS };
enum { OTHER = 8, AGAIN = 16 }; /* bits: another variant; once more for each rank after this one */

static unsigned world;
static struct grpc_call calls[WORLD];
static struct fence begun[WORLD]; /* the newest try that each was told to begin */
static bool agreed;               /* on a model */

/* YES votes and decisions that any message carried, a bit a rank. */
static struct {
    struct fence fence;
    unsigned voted;
    bool reported;
} seen[SEEN];
static unsigned seen_count;

static void note(const struct fence *f, unsigned voted, bool reported) {
    unsigned i = 0;
    while (i < seen_count && !fence_equal(&seen[i].fence, f)) {
        i++;
    }
    if (i == seen_count && seen_count < SEEN) {
        seen[seen_count++].fence = *f;
    }
    if (i < SEEN) {
        seen[i].voted |= voted;
        seen[i].reported = seen[i].reported || reported;
    }
}

static void must_be_determined(const struct fence *f) {
    for (unsigned i = 0; i < seen_count; i++) {
        if (fence_equal(&seen[i].fence, f)) {
            must(seen[i].reported || seen[i].voted == (1u << world) - 1, "no decision without all");
            return;
        }
    }
    must(seen_count == SEEN, "no decision without votes");
}

static void note_vote(unsigned rank, const Zerod__V1__Vote *v) {
    const struct fence f = fence_from_message(v->fence);
    if (v->yes) {
        note(&f, 1u << rank, false);
    }
}

static void note_message(const struct grpc_call *call, const Zerod__V1__DaemonMessage *m) {
    const unsigned rank = coord_host_rank(call);
    if (m->what_case == ZEROD__V1__DAEMON_MESSAGE__WHAT_VOTE) {
        note_vote(rank, m->vote);
    } else if (m->what_case == ZEROD__V1__DAEMON_MESSAGE__WHAT_GRANT) {
        for (size_t i = 0; i < m->grant->n_votes; i++) {
            note_vote(rank, m->grant->votes[i]);
        }
        for (size_t i = 0; i < m->grant->n_decisions; i++) {
            const struct fence f = fence_from_message(m->grant->decisions[i]->fence);
            note(&f, 0, true);
        }
    }
}

/* ---- what a daemon hears ---- */

static void on_begin(unsigned rank, const Zerod__V1__OpenTry *m) {
    const struct fence f = fence_from_message(m->fence);
    must(agreed, "no try without a model");
    must(m->fence && f.attempt && f.generation, "a try has a fence");
    must(fence_compare(&f, &begun[rank]) > 0, "tries rise");
    must((m->code == ST_OK) == (m->reason[0] == 0), "a void try has a status and a reason");
    begun[rank] = f;
}

static void on_decision(const Zerod__V1__Announce *m) {
    struct decision d;
    struct err e = {0};
    must(m->decision && decision_from_message(m->decision, &d, &e) == 0, "a whole decision");
    must_be_determined(&d.fence);
}

static void hear(void *user, const uint8_t *bytes, size_t n) {
    const unsigned rank = (unsigned)((struct grpc_call *)user - calls);
    Zerod__V1__CoordinatorMessage *m = (Zerod__V1__CoordinatorMessage *)unpack_message(
        &zerod__v1__coordinator_message__descriptor, bytes, n);
    must(m != NULL, "a message that can be read");
    switch (m->what_case) {
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_BEGIN:
        on_begin(rank, m->begin);
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_AGREED:
        agreed = true;
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_DECISION:
        on_decision(m->decision);
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_REFUSED:
        must(m->refused->code > ST_OK && m->refused->text[0], "a refusal says why");
        break;
    case ZEROD__V1__COORDINATOR_MESSAGE__WHAT_STOP:
        must(m->stop->reason[0], "a stop says why");
        break;
    default:
        must(m->what_case != ZEROD__V1__COORDINATOR_MESSAGE__WHAT__NOT_SET, "a message says it");
        break;
    }
    zerod__v1__coordinator_message__free_unpacked(m, NULL);
}

/* ---- what a daemon says ---- */

static void say(unsigned rank, const Zerod__V1__DaemonMessage *m) {
    const size_t n = zerod__v1__daemon_message__get_packed_size(m);
    uint8_t *bytes = mem_zeroed(n, 1);
    (void)zerod__v1__daemon_message__pack(m, bytes);
    note_message(&calls[rank], m);
    wire_say(&calls[rank], bytes, n);
    free(bytes);
}

static Zerod__V1__Fence current(void) {
    const struct fence f = coord_host_fence();
    return fence_to_message(&f);
}

/* The message becomes one of the running try, or of its generation. */
static void fit(Zerod__V1__DaemonMessage *m, unsigned rank) {
    if (m->what_case == ZEROD__V1__DAEMON_MESSAGE__WHAT_VOTE && m->vote->fence) {
        const struct fence f = coord_host_fence();
        m->vote->fence->generation = f.generation;
        m->vote->fence->step = f.step;
        m->vote->fence->attempt = f.attempt;
    } else if (m->what_case == ZEROD__V1__DAEMON_MESSAGE__WHAT_GRANT) {
        m->grant->generation = coord_host_generation();
    } else if (m->what_case == ZEROD__V1__DAEMON_MESSAGE__WHAT_OFFER) {
        m->offer->rank = rank;
    }
}

static void say_bytes(unsigned rank, const uint8_t *bytes, size_t n, bool as_it_is) {
    Zerod__V1__DaemonMessage *m = (Zerod__V1__DaemonMessage *)unpack_message(
        &zerod__v1__daemon_message__descriptor, bytes, n);
    if (!m) {
        wire_say(&calls[rank], bytes, n);
        must(!calls[rank].is_open, "what is no message ends the stream");
        return;
    }
    if (!as_it_is) {
        fit(m, rank);
    }
    say(rank, m);
    zerod__v1__daemon_message__free_unpacked(m, NULL);
}

static void say_hello(unsigned rank, unsigned granted) {
    Zerod__V1__Hello hello = ZEROD__V1__HELLO__INIT;
    Zerod__V1__DaemonMessage m = ZEROD__V1__DAEMON_MESSAGE__INIT;
    hello.job = (char *)"fuzz";
    hello.rank = rank;
    hello.world_size = world;
    hello.address = (char *)"here";
    hello.granted = granted;
    m.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_HELLO;
    m.hello = &hello;
    say(rank, &m);
}

static void say_registration(unsigned rank, unsigned shape) {
    uint8_t bytes[MESSAGE];
    Zerod__V1__Model *model = models_small(shape);
    Zerod__V1__DaemonMessage m = ZEROD__V1__DAEMON_MESSAGE__INIT;
    model->strategy = ZEROD__V1__STRATEGY__STRATEGY_ZERO3;
    model->param_dtype = model->wire_dtype = model->kept_dtype = ZEROD__V1__DTYPE__DTYPE_FP32;
    must(zerod__v1__model__get_packed_size(model) <= sizeof bytes, "a small model");
    m.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_REGISTRATION;
    m.registration = (ProtobufCBinaryData){zerod__v1__model__pack(model, bytes), bytes};
    say(rank, &m);
}

static void say_ready(unsigned rank) {
    Zerod__V1__Ready ready = ZEROD__V1__READY__INIT;
    Zerod__V1__DaemonMessage m = ZEROD__V1__DAEMON_MESSAGE__INIT;
    m.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_READY;
    m.ready = &ready;
    say(rank, &m);
}

/* A vote in the running try; |how| makes it differ. */
static void say_vote(unsigned rank, bool yes, unsigned how) {
    Zerod__V1__Fence f = current();
    Zerod__V1__Scalars scalars = ZEROD__V1__SCALARS__INIT;
    Zerod__V1__Vote vote = ZEROD__V1__VOTE__INIT;
    Zerod__V1__DaemonMessage m = ZEROD__V1__DAEMON_MESSAGE__INIT;
    scalars.learning_rate = how & 1 ? 0.5 : 0.25;
    scalars.micro_batches = 1;
    vote.fence = &f;
    vote.scalars = &scalars;
    vote.yes = yes;
    vote.code = ST_ABORTED;
    vote.reason = (char *)"for a reason";
    vote.weight = how & 2 ? 1e300 : 1;
    vote.non_finite = how & 4;
    vote.sum_of_squares = how & 8 ? 1e308 : 1;
    vote.checksum = how >> 4;
    m.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_VOTE;
    m.vote = &vote;
    say(rank, &m);
}

/* |how|: bit 0 a YES in the running try, bit 1 one in the first of its step; bit 2 a decision of
 * the step before. */
static void say_grant(unsigned rank, unsigned how) {
    Zerod__V1__Fence now = current(), first = now, before = now;
    Zerod__V1__Scalars scalars = ZEROD__V1__SCALARS__INIT;
    Zerod__V1__Vote vote = ZEROD__V1__VOTE__INIT, *votes[] = {&vote};
    Zerod__V1__Decision decision = ZEROD__V1__DECISION__INIT, *decisions[] = {&decision};
    Zerod__V1__Grant grant = ZEROD__V1__GRANT__INIT;
    Zerod__V1__DaemonMessage m = ZEROD__V1__DAEMON_MESSAGE__INIT;
    first.attempt = 1;
    before.step--;
    vote.fence = how & 2 ? &first : &now;
    vote.scalars = &scalars;
    vote.weight = 1;
    vote.yes = true;
    decision.fence = &before;
    decision.outcome = 1 + (how >> 3) % 2;
    decision.loss_scale = 1;
    grant.generation = coord_host_generation();
    grant.opened = &now;
    grant.votes = votes;
    grant.n_votes = how & 3 ? 1 : 0;
    grant.decisions = decisions;
    grant.n_decisions = how & 4 && now.step ? 1 : 0;
    m.what_case = ZEROD__V1__DAEMON_MESSAGE__WHAT_GRANT;
    m.grant = &grant;
    say(rank, &m);
}

/* ---- the whole ---- */

static void one_rank(struct input *in, unsigned kind, unsigned rank, unsigned how, bool other) {
    size_t n;
    const uint8_t *bytes;
    switch (kind) {
    case DO_HELLO:
        say_hello(rank, how);
        break;
    case DO_REGISTER:
        say_registration(rank, how);
        break;
    case DO_READY:
        say_ready(rank);
        break;
    case DO_GRANT:
        say_grant(rank, how);
        break;
    case DO_YES:
    case DO_NO:
        say_vote(rank, kind == DO_YES, how);
        break;
    case DO_REJOIN:
        coord_host_rejoin(rank, how);
        break;
    default:
        bytes = input_piece(in, &n);
        say_bytes(rank, bytes, n, other);
    }
}

static void one_thing(struct input *in) {
    const uint8_t op = input_byte(in), arg = input_byte(in);
    const unsigned how = op & OTHER ? arg / 4 : 0;
    for (unsigned rank = arg % world; rank < world; rank++) {
        one_rank(in, op % DO_KINDS, rank, how, op & OTHER);
        if (!(op & AGAIN)) {
            break;
        }
    }
    for (unsigned rank = 0; rank < world; rank++) {
        wire_settle(&calls[rank]); /* a daemon that is gone ends the job */
    }
}

static void run_already(void) {
    void (*const all[])(unsigned rank, unsigned how) = {say_hello, say_registration, say_grant};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        for (unsigned rank = 0; rank < world; rank++) {
            all[i](rank, 0);
        }
    }
    for (unsigned rank = 0; rank < world; rank++) {
        say_ready(rank);
        must(rank + 1 < world || begun[0].attempt == 1, "with all ranks there a try begins");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, size};
    const uint8_t how = input_byte(&in);
    world = 1 + how % WORLD;
    seen_count = 0;
    agreed = false;
    memset(seen, 0, sizeof seen);
    memset(begun, 0, sizeof begun);
    coord_host_up(world);
    for (unsigned rank = 0; rank < world; rank++) {
        wire_open(&calls[rank], coord_host_service(), hear, &calls[rank]);
    }
    if (how & 0x80) {
        run_already();
    }
    for (unsigned i = 0; i < OPS && in.left && !coord_host_ending(); i++) {
        one_thing(&in);
    }
    for (unsigned rank = 0; rank < world; rank++) {
        wire_gone(&calls[rank]);
    }
    coord_host_down();
    return 0;
}
