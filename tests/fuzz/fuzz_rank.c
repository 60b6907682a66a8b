/* libFuzzer: what a coordinator (and, by offers, another rank) may say to a daemon: a whole one
 * with a real engine, of one rank or of the first of two, whose trainer does what the daemon says.
 * Byte 0: the job's shape and size, and whether the job runs already when the rest begins: one byte
 * for each thing that happens. Messages are the input's bytes, made to follow the last ones unless
 * the byte says otherwise; the rest is what a good coordinator would say, what the trainer does,
 * and the descriptors that an offer leads to.
 *
 * A rank votes once for a try, YES only when its trainer has called step() in it; its tries rise;
 * nothing it says lacks a status or a text; it ends only with a reason, and then nothing is left.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "comm/control.h"
#include "job/words.h"
#include "must.h"
#include "proto/unpack.h"
#include "rank_host.h"
#include "trainer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OPS = 40, TRIES = 256, MESSAGE = 1024, TRAINERS = 8 };
enum { DO_SAY, DO_ASK, DO_AGREE, DO_OPEN, DO_DECIDE, DO_TRAIN, DO_OFFER, DO_DEPART, DO_KINDS };
enum { OTHER = 8, AT_ONCE = 16 }; /* bits: another variant; the engine does nothing meanwhile */

static struct rank *r;
static unsigned shape, world;
static struct grpc_call calls[TRAINERS];
static unsigned call_count;
static struct trainer t;
static uint64_t generation; /* the highest that was granted */
static struct fence opened; /* as the coordinator told it last */

/* Where the rank has voted. */
static struct { struct fence fence; } voted[TRIES];
static unsigned voted_count;

/* ---- what the coordinator hears ---- */

static void on_vote(const Zerod__V1__Vote *m) {
    struct vote v;
    struct err e = {0};
    must(vote_from_message(m, &v, &e) == 0, "a vote that the coordinator takes");
    must(!v.yes || fence_equal(&v.fence, &t.stepped), "a YES follows step()");
    for (unsigned i = 0; i < voted_count; i++) {
        must(!fence_equal(&voted[i].fence, &v.fence), "one vote in a try");
    }
    if (voted_count < TRIES) {
        voted[voted_count++].fence = v.fence;
    }
}

static void coordinator_hears(void *user, const uint8_t *bytes, size_t n) {
    struct job_report report;
    struct err e = {0};
    (void)user;
    Zerod__V1__DaemonMessage *m = (Zerod__V1__DaemonMessage *)unpack_message(
        &zerod__v1__daemon_message__descriptor, bytes, n);
    must(m != NULL, "a message that can be read");
    if (m->what_case == ZEROD__V1__DAEMON_MESSAGE__WHAT_VOTE) {
        on_vote(m->vote);
    } else if (m->what_case == ZEROD__V1__DAEMON_MESSAGE__WHAT_GRANT) {
        must(m->grant->generation > generation, "a number is granted once, and rises");
        must(report_from_message(m->grant, &report, &e) == 0, "a report that can be taken");
        generation = m->grant->generation;
    } else if (m->what_case == ZEROD__V1__DAEMON_MESSAGE__WHAT_GRANTED_TO) {
        must(m->granted_to->generation == generation, "it was granted to somebody");
    } else {
        must(m->what_case != ZEROD__V1__DAEMON_MESSAGE__WHAT__NOT_SET, "a message says it");
    }
    zerod__v1__daemon_message__free_unpacked(m, NULL);
}

/* ---- the trainer ---- */

static void trainer_hears(void *user, const uint8_t *bytes, size_t n) {
    Zerod__V1__TrainerReply *m =
        (Zerod__V1__TrainerReply *)unpack_message(&zerod__v1__trainer_reply__descriptor, bytes, n);
    must(m != NULL && user == t.call, "an answer that can be read");
    trainer_hear(&t, m);
    zerod__v1__trainer_reply__free_unpacked(m, NULL);
}

static void settle(void) {
    rank_host_settle(r, NULL, NULL);
    if (t.call) {
        wire_settle(t.call);
    }
    if (!trainer_is_here(&t)) {
        trainer_forget(&t);
    }
}

static void say(Zerod__V1__TrainerRequest *m) {
    uint8_t bytes[MESSAGE];
    must(zerod__v1__trainer_request__get_packed_size(m) <= sizeof bytes, "a small request");
    wire_say(t.call, bytes, zerod__v1__trainer_request__pack(m, bytes));
}

static void train(unsigned most) {
    for (unsigned i = 0; i < most && !t.asks && !r->ending; i++) {
        if (trainer_is_here(&t)) {
            trainer_go_on(&t);
        } else if (call_count < TRAINERS) {
            t.call = &calls[call_count++];
            trainer_forget(&t);
            wire_open(t.call, session_service(r), trainer_hears, t.call);
            trainer_register(&t, t.call);
        }
        settle();
    }
}

/* ---- what the coordinator says ---- */

static void answer(const Zerod__V1__CoordinatorMessage *m) {
    const size_t n = zerod__v1__coordinator_message__get_packed_size(m);
    uint8_t *bytes = mem_zeroed(n, 1);
    (void)zerod__v1__coordinator_message__pack(m, bytes);
    wire_answer(bytes, n);
    free(bytes);
}

static void ask(unsigned how) {
    uint8_t uuid[JOB_UUID] = "coordinator";
    Zerod__V1__Ask what = ZEROD__V1__ASK__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    what.generation = generation + 1 - (how & 3);
    uuid[JOB_UUID - 1] = how & 4 ? 1 : 0;
    what.coordinator = (ProtobufCBinaryData){sizeof uuid, uuid};
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_ASK;
    m.ask = &what;
    answer(&m);
}

static void agree(void) {
    Zerod__V1__Agreed what = ZEROD__V1__AGREED__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_AGREED;
    m.agreed = &what;
    answer(&m);
}

/* |how|: bit 0 of the next step, else the next attempt; bit 1 of the generation before. */
static void open_try(unsigned how) {
    Zerod__V1__OpenTry what = ZEROD__V1__OPEN_TRY__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    opened.generation = how & 2 ? generation - 1 : generation;
    opened.step += how & 1;
    opened.attempt = how & 1 ? 1 : opened.attempt + 1;
    Zerod__V1__Fence f = fence_to_message(&opened);
    what.fence = &f;
    what.code = opened.attempt > 1 ? ST_ABORTED : ST_OK;
    what.reason = (char *)(opened.attempt > 1 ? "a rank said NO" : "");
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_BEGIN;
    m.begin = &what;
    answer(&m);
}

static void announce(unsigned how) {
    Zerod__V1__Fence f = fence_to_message(&opened);
    Zerod__V1__Decision decision = ZEROD__V1__DECISION__INIT;
    Zerod__V1__Announce what = ZEROD__V1__ANNOUNCE__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    decision.fence = &f;
    decision.outcome = how & 1 ? OUTCOME_SKIP : OUTCOME_COMMIT;
    decision.t = f.step;
    decision.loss_scale = 1;
    what.generation = how & 2 ? generation - 1 : generation;
    what.decision = &decision;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_DECISION;
    m.decision = &what;
    answer(&m);
    opened = (struct fence){generation, opened.step + 1, 1};
}

static void fit(Zerod__V1__CoordinatorMessage *m) {
    Zerod__V1__Fence *f = NULL;
    if (m->what_case == ZEROD__V1__COORDINATOR_MESSAGE__WHAT_BEGIN) {
        f = m->begin->fence;
    } else if (m->what_case == ZEROD__V1__COORDINATOR_MESSAGE__WHAT_DECISION) {
        m->decision->generation = generation;
        f = m->decision->decision ? m->decision->decision->fence : NULL;
    } else if (m->what_case == ZEROD__V1__COORDINATOR_MESSAGE__WHAT_ASK) {
        m->ask->generation = generation + 1;
    }
    if (f) {
        f->generation = generation;
        f->step = opened.step;
    }
}

static void say_bytes(const uint8_t *bytes, size_t n, bool as_it_is) {
    Zerod__V1__CoordinatorMessage *m = (Zerod__V1__CoordinatorMessage *)unpack_message(
        &zerod__v1__coordinator_message__descriptor, bytes, n);
    if (!m) {
        wire_answer(bytes, n);
        must(r->ending, "what is no message ends the daemon");
        return;
    }
    if (!as_it_is) {
        fit(m);
    }
    answer(m);
    zerod__v1__coordinator_message__free_unpacked(m, NULL);
}

/* ---- what another rank hands over ---- */

/* Memory of |how| bytes whose control page is this rank's own but for what |how| spoils. */
static void make_fds(int fds[ENGINE_STATE_FDS], unsigned how) {
    int own[ENGINE_STATE_FDS];
    engine_state_fds(r->engine, own);
    for (int i = 0; i < ENGINE_STATE_FDS; i++) {
        struct stat st = {0};
        must(own[i] < 0 || fstat(own[i], &st) == 0, "its size is known");
        const size_t n = own[i] < 0 ? 1 : (size_t)st.st_size;
        uint8_t *copy = mem_zeroed(n, 1);
        must(own[i] < 0 || pread(own[i], copy, n, 0) == (ssize_t)n, "it can be read");
        if (i == 0) {
            struct control_header *h = (void *)copy;
            h->rank = how & 4 ? how : 1;
            copy[(how * 8) % sizeof *h] ^= how & 8 ? 0xff : 0;
        }
        fds[i] = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        must(fds[i] >= 0 && write(fds[i], copy, how & 2 && how % 3 == (unsigned)i ? n / 2 : n) > 0,
             "a memfd");
        must(how & 1 || fcntl(fds[i], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "its seals");
        free(copy);
    }
}

/* Bit 0 of |how|: of gradients; the rest as above. */
static void offer(unsigned how) {
    Zerod__V1__Offer what = ZEROD__V1__OFFER__INIT;
    Zerod__V1__Ticket ticket = ZEROD__V1__TICKET__INIT;
    Zerod__V1__CoordinatorMessage m = ZEROD__V1__COORDINATOR_MESSAGE__INIT;
    uint8_t token[16] = {0};
    int fds[ENGINE_STATE_FDS];
    if (!r->engine || world == 1) {
        return;
    }
    ticket.token = (ProtobufCBinaryData){sizeof token, token};
    ticket.socket_path = (char *)"there";
    what.rank = 1 + 700 * (how >> 6); /* of ranks that there are and of others */
    what.attachment = how >> 4 & 3;
    what.state = !(how & 1);
    what.ticket = &ticket;
    m.what_case = ZEROD__V1__COORDINATOR_MESSAGE__WHAT_OFFER;
    m.offer = &what;
    answer(&m);
    make_fds(fds, how >> 1);
    wire_will_give(fds, ENGINE_STATE_FDS);
    wire_hand_over();
    wire_will_give(fds, 0);
    for (int i = 0; i < ENGINE_STATE_FDS; i++) {
        close(fds[i]);
    }
}

/* ---- the whole ---- */

static void one_thing(struct input *in) {
    const uint8_t op = input_byte(in);
    const unsigned how = op & OTHER ? input_byte(in) : 0;
    size_t n;
    const uint8_t *bytes;
    switch (op % DO_KINDS) {
    case DO_ASK:
        ask(how);
        break;
    case DO_AGREE:
        agree();
        break;
    case DO_OPEN:
        open_try(how);
        break;
    case DO_DECIDE:
        announce(how);
        break;
    case DO_TRAIN:
        train(op & OTHER ? how % 32 : 24);
        break;
    case DO_OFFER:
        offer(how);
        break;
    case DO_DEPART:
        if (t.call && how & 1) {
            wire_gone(t.call);
        } else {
            rank_host_die(r);
        }
        break;
    default:
        bytes = input_piece(in, &n);
        say_bytes(bytes, n, how & 1);
    }
    if (!(op & AT_ONCE)) {
        settle();
    }
    wire_hand_over(); /* what else was offered comes to nothing */
}

static void run_already(void) {
    train(1);
    ask(0);
    agree();
    settle();
    offer(0);
    offer(1);
    opened = (struct fence){generation, 0, 0};
    open_try(0);
    settle();
    must(!r->ending && t.registered, "the job runs");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, size};
    const int before = fcntl(0, F_DUPFD_CLOEXEC, 3);
    close(before);
    shape = input_byte(&in);
    world = 1 + (shape >> 6) % 2;
    r = rank_host_up(0, world, shape);
    generation = voted_count = call_count = 0;
    opened = (struct fence){0};
    t = (struct trainer){.shape = shape, .say = say, .holds = -1};
    wire_stream.hear = coordinator_hears;
    settle();
    if (shape & 0x80) {
        run_already();
    }
    for (unsigned i = 0; i < OPS && in.left && !r->ending; i++) {
        one_thing(&in);
    }
    rank_host_down(r);
    for (unsigned i = 0; i < call_count; i++) {
        wire_gone(&calls[i]);
    }
    const int after = fcntl(0, F_DUPFD_CLOEXEC, 3);
    close(after);
    must(before == after, "no descriptor is left open");
    return 0;
}
