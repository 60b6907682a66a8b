/* The parity matrix: strategies and shard sizes x 1 to 8 ranks x micro-batches x dtypes of
 * parameters, wire and kept gradients x optimizers x shapes, each cell with slots, threads,
 * instruction set, overlap, a voided attempt and a killed trainer drawn from a seed. In every cell
 * all that trainers are lent and the parameters in the end are the reference's, cells of one
 * summation order (design §14) have one hash, and memory and traffic are the formulas' to the byte.
 *
 * ZEROD_MATRIX: how many keys (micro-batches, wire, kept, optimizer, shape) are tried for each
 * number of ranks, each with all strategies; "all": every one, with every parameter dtype.
 * ZEROD_SEED: of another run. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "device/arena.h"
#include "tests/base/seed.h"
#include "tests/base/suite.h"
#include "world.h"

enum { RANKS = 8, FEW = 3, OPTIMIZER_KINDS = 6, KEYS = 3 * 2 * 2 * OPTIMIZER_KINDS * 2, STEPS = 3 };

static uint64_t seed, random_state;
static _Atomic unsigned *total; /* cells, of all of Check's processes */
static bool all;
static unsigned keys_tried;

static unsigned draw(unsigned n) {
    random_state = mix64(random_state);
    return (unsigned)(random_state >> 32) % n;
}

/* What all cells of one key have in common. */
static struct variant key_of(unsigned key) {
    static const struct {
        enum optimizer kind;
        double momentum, clip_value;
    } optimizers[OPTIMIZER_KINDS] = {{OPTIMIZER_ADAMW, 0, 0},  {OPTIMIZER_ADAM, 0, 0.01},
                                     {OPTIMIZER_SGD, 0, 0},    {OPTIMIZER_SGD, 0.9, 0.05},
                                     {OPTIMIZER_SGD, 0.95, 0}, {OPTIMIZER_LION, 0, 0}};
    struct variant v = {.micro_batches = 1 + key % 3};
    key /= 3;
    v.wire = key % 2 ? DTYPE_BF16 : DTYPE_FP32;
    key /= 2;
    v.kept = key % 2 ? DTYPE_BF16 : DTYPE_FP32;
    key /= 2;
    v.shape = key % 2 ? SHAPE_RICH : SHAPE_SMALL;
    key /= 2;
    v.optimizer = optimizers[key].kind;
    v.momentum = optimizers[key].momentum;
    v.clip_value = optimizers[key].clip_value;
    return v;
}

static struct config cell_of(const struct variant *v, unsigned ranks) {
    const struct kernels *list[3];
    size_t isas = kernels_available(list);
    struct config c = {
        .ranks = ranks,
        .threads = 1 + draw(3),
        .model = *v,
        .slots = {1 + draw(4), 1 + draw(4)},
        .isa = list[draw((unsigned)isas)]->isa,
        .on_demand = draw(2),
        .absent = v->shape == SHAPE_RICH && draw(2),
    };
    c.seed = random_state;
    if (v->shape == SHAPE_SMALL && draw(all ? 40 : 16) == 0) {
        c.model.shape = SHAPE_LARGE;
    }
    return c;
}

static void describe(const struct config *c, char *text, size_t cap) {
    const struct variant *v = &c->model;
    (void)snprintf(text, cap,
                   "%s S %u, %u ranks, K %u, param %s wire %s kept %s, optimizer %s momentum %g, "
                   "shape %d%s, threads %u, slots %u %u, %s%s, seed %lu",
                   strategy_name(v->strategy), v->shard_size, c->ranks, v->micro_batches,
                   dtype_name(v->param), dtype_name(v->wire), dtype_name(v->kept),
                   optimizer_name(v->optimizer), v->momentum, (int)v->shape,
                   c->absent ? " with absent units" : "", c->threads, c->slots.gather,
                   c->slots.grad, c->isa, c->on_demand ? ", on demand" : "", (unsigned long)seed);
}

static void expect_memory(struct world *w, const char *text) {
    for (unsigned r = 0; r < w->c.ranks; r++) {
        const struct engine_options o = {.rank = r,
                                         .threads = w->c.threads,
                                         .slots = w->c.slots,
                                         .kernels = w->kernels,
                                         .records_bytes = 1000};
        struct engine_status s;
        struct memory planned;
        engine_status(w->trainers[r].e, &s);
        ck_assert_int_eq(engine_account(&w->layout, &o, &planned, NULL), 0);
        ck_assert_msg(memory_total(&s.measured) == s.total_bytes, "%s: rank %u", text, r);
        ck_assert_msg(!memcmp(&s.measured, &s.formula, sizeof planned), "%s: rank %u", text, r);
        ck_assert_msg(!memcmp(&s.measured, &planned, sizeof planned), "%s: rank %u", text, r);
    }
}

/* Of STEPS steps without a void attempt. */
static void expect_traffic(struct world *w, const char *text) {
    struct traffic by[2];
    layout_traffic_by_group(&w->layout, by);
    for (unsigned r = 0; r < w->c.ranks; r++) {
        const struct traffic *missing = &w->missing[r];
        struct engine_status s;
        engine_status(w->trainers[r].e, &s);
        for (int g = 0; g < 2; g++) {
            const struct traffic *sent = &s.sent_by_group[g], *step = &by[g];
            uint64_t gathers = g ? 0 : missing->all_gather_elements;
            uint64_t reduces = g ? 0 : missing->reduce_scatter_elements;
            uint64_t wire = dtype_bytes(w->model.wire_dtype);
            ck_assert_msg(sent->reduce_scatter_elements + reduces ==
                                  STEPS * step->reduce_scatter_elements &&
                              sent->reduce_scatter_bytes + reduces * wire ==
                                  STEPS * step->reduce_scatter_bytes &&
                              sent->all_reduce_elements == STEPS * step->all_reduce_elements &&
                              sent->all_reduce_bytes == STEPS * step->all_reduce_bytes,
                          "%s: rank %u group %d", text, r, g);
            /* A gather that ran ahead and was then left out has been sent. */
            ck_assert_msg(sent->all_gather_elements + gathers ==
                                  STEPS * step->all_gather_elements ||
                              (w->c.absent && !w->c.on_demand),
                          "%s: rank %u group %d", text, r, g);
            ck_assert_msg(sent->all_gather_bytes == STEPS * step->all_gather_bytes || w->c.absent,
                          "%s: rank %u group %d", text, r, g);
        }
    }
}

static uint64_t run_cell(const struct config *c) {
    bool disturbed = draw(2);
    char text[400];
    struct world *w = world_up(c);
    describe(c, text, sizeof text);
    w->reattach = draw(2);
    world_load(w);
    expect_memory(w, text);
    for (unsigned i = 0; i < STEPS; i++) {
        w->voids = disturbed ? draw(2) : 0;
        w->void_after = 1 + draw(80);
        world_steps(w, 1);
    }
    world_quiet(w);
    if (!disturbed) {
        expect_traffic(w, text);
    }
    uint64_t hash = world_hash(w);
    ck_assert_msg(hash == reference_hash(&w->ref), "other parameters: %s", text);
    world_down(w);
    return hash;
}

/* ---- summation orders ---- */

/* Hashes by the size of the inner group, which is all that the order depends on. */
struct orders {
    uint64_t hash[RANKS + 1];
    bool known[RANKS + 1];
};

static void expect_order(struct orders *o, const struct config *c, unsigned inner, uint64_t hash) {
    char text[400];
    if (!o->known[inner]) {
        o->known[inner] = true;
        o->hash[inner] = hash;
    }
    describe(c, text, sizeof text);
    ck_assert_msg(o->hash[inner] == hash, "another hash within its order: %s", text);
}

static unsigned run_strategy(const struct variant *key, unsigned ranks, enum strategy s,
                             uint32_t shard, struct orders *orders) {
    static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    bool once = s == STRATEGY_DDP || s == STRATEGY_ZERO1;
    unsigned inner = once ? 1 : shard ? shard : ranks, cells = 0;
    unsigned first = all ? 0 : draw(3), last = all ? 2 : first;
    for (unsigned d = first; d <= last; d++) {
        struct variant v = *key;
        v.strategy = s;
        v.shard_size = shard;
        v.param = dtypes[d];
        struct config c = cell_of(&v, ranks);
        uint64_t hash = run_cell(&c);
        cells++;
        /* Frozen tensors, and what is left out, make models of their own. */
        if (c.model.shape == SHAPE_SMALL) {
            expect_order(orders, &c, inner, hash);
        }
    }
    return cells;
}

static unsigned run_key(unsigned key, unsigned ranks) {
    static const enum strategy plain[] = {STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2,
                                          STRATEGY_ZERO3};
    struct variant v = key_of(key);
    struct orders orders = {0};
    unsigned cells = 0;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        cells += run_strategy(&v, ranks, plain[i], 0, &orders);
    }
    for (uint32_t shard = 1; shard <= ranks; shard++) {
        if (ranks % shard == 0) {
            cells += run_strategy(&v, ranks, STRATEGY_HYBRID_SHARD, shard, &orders);
            cells += run_strategy(&v, ranks, STRATEGY_HYBRID_ZERO2, shard, &orders);
        }
    }
    /* With one micro-batch and nothing rounded on the way, once per step is each micro-batch. */
    if (v.micro_batches == 1 && v.kept == DTYPE_FP32 && orders.known[1] && orders.known[ranks]) {
        ck_assert_msg(orders.hash[1] == orders.hash[ranks],
                      "ddp and zero3 differ, key %u, seed %lu", key, (unsigned long)seed);
    }
    return cells;
}

START_TEST(parity) {
    unsigned ranks = (unsigned)_i, cells = 0;
    int64_t begin = clock_ns();
    random_state = mix64(seed + ranks);
    for (unsigned i = 0; i < keys_tried; i++) {
        cells += run_key(all ? i : draw(KEYS), ranks);
    }
    *total += cells;
    printf("%u ranks: %u cells in %.1f s\n", ranks, cells, (double)(clock_ns() - begin) * 1e-9);
    fflush(stdout);
}
END_TEST

int main(void) {
    const char *matrix = getenv("ZEROD_MATRIX");
    seed = test_seed("matrix");
    all = matrix && !strcmp(matrix, "all");
    keys_tried = all ? KEYS : matrix ? (unsigned)strtoul(matrix, NULL, 10) : FEW;
    total = mmap(NULL, sizeof *total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (total == MAP_FAILED) {
        return EXIT_FAILURE;
    }
    int64_t begin = clock_ns();
    Suite *s = suite_create("matrix");
    TCase *c = tcase_create("matrix");
    tcase_set_timeout(c, all ? 7200 : 120 + 10 * keys_tried);
    tcase_add_loop_test(c, parity, 1, RANKS + 1);
    suite_add_tcase(s, c);
    int status = run_suite(s);
    printf("matrix: %u cells in %.1f s\n", *total, (double)(clock_ns() - begin) * 1e-9);
    return status;
}
