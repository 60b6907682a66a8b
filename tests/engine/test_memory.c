/* Memory and traffic equal the formulas exactly; nothing is added after registration and nothing
 * stays after the end; foreign descriptors are looked at before they are used. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "device/arena.h"
#include "tests/base/seed.h"
#include "tests/base/suite.h"
#include "world.h"

enum { STRATEGIES = 6 };
static const enum strategy strategies[STRATEGIES] = {STRATEGY_DDP,          STRATEGY_ZERO1,
                                                     STRATEGY_ZERO2,        STRATEGY_ZERO3,
                                                     STRATEGY_HYBRID_SHARD, STRATEGY_HYBRID_ZERO2};

static struct config config_of(int i, unsigned ranks) {
    return (struct config){.ranks = ranks,
                           .threads = 2,
                           .model = {.strategy = strategies[i % STRATEGIES],
                                     .param = i / STRATEGIES % 2 ? DTYPE_BF16 : DTYPE_FP32},
                           .slots = {3, 2},
                           .seed = test_seed("memory") + (uint64_t)i};
}

static unsigned entries(const char *folder) {
    DIR *d = opendir(folder);
    unsigned n = 0;
    while (readdir(d)) {
        n++;
    }
    closedir(d);
    return n;
}

static uint64_t memfd_bytes(void) { /* of all memfds that are open writable: one an arena */
    uint64_t sum = 0;
    for (int fd = 0; fd < 1000; fd++) {
        char path[64], name[128];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, name, sizeof name - 1);
        struct stat st, file;
        if (n > 0 && !strncmp(name, "/memfd:zerod", 12) && !stat(path, &file) &&
            !lstat(path, &st) && (st.st_mode & S_IWUSR)) {
            sum += (uint64_t)file.st_size;
        }
    }
    return sum;
}

START_TEST(memory_is_the_formula) {
    for (unsigned ranks = 1; ranks <= 4; ranks++) {
        struct config c = config_of(_i, ranks);
        c.model.shape = ranks % 2 ? SHAPE_SMALL : SHAPE_LARGE;
        struct world *w = world_up(&c);
        uint64_t total = 0;
        for (unsigned r = 0; r < ranks; r++) {
            struct engine_status s;
            engine_status(w->trainers[r].e, &s);
            ck_assert_uint_eq(memory_total(&s.measured), s.total_bytes);
            ck_assert(!memcmp(&s.measured, &s.formula, sizeof s.measured));
            ck_assert_uint_le(s.huge_bytes, s.total_bytes);
            ck_assert_uint_eq(s.version, UINT64_MAX);
            total += s.total_bytes;
        }
        ck_assert_uint_eq(memfd_bytes(), total);
        world_down(w);
        ck_assert_uint_eq(memfd_bytes(), 0);
    }
}
END_TEST

static void expect_traffic(const struct traffic *sent, const struct traffic *step, uint64_t n) {
    ck_assert_uint_eq(sent->all_gather_bytes, n * step->all_gather_bytes);
    ck_assert_uint_eq(sent->all_gather_elements, n * step->all_gather_elements);
    ck_assert_uint_eq(sent->reduce_scatter_bytes, n * step->reduce_scatter_bytes);
    ck_assert_uint_eq(sent->reduce_scatter_elements, n * step->reduce_scatter_elements);
    ck_assert_uint_eq(sent->all_reduce_bytes, n * step->all_reduce_bytes);
    ck_assert_uint_eq(sent->all_reduce_elements, n * step->all_reduce_elements);
}

START_TEST(traffic_is_the_formula) {
    for (unsigned ranks = 1; ranks <= 4; ranks++) {
        struct config c = config_of(_i, ranks);
        c.model.micro_batches = 1 + (uint32_t)_i % 2 + ranks % 2;
        c.model.shard_size = ranks == 4 ? 2 : 0;
        struct world *w = world_up(&c);
        struct traffic step = layout_traffic(&w->layout), by[2];
        layout_traffic_by_group(&w->layout, by);
        struct engine_status s;
        world_load(w);
        world_quiet(w);
        engine_status(w->trainers[0].e, &s);
        ck_assert_uint_eq(s.version, 0);
        expect_traffic(&s.sent, &step, 0);
        world_steps(w, 5);
        world_quiet(w);
        for (unsigned r = 0; r < ranks; r++) {
            engine_status(w->trainers[r].e, &s);
            expect_traffic(&s.sent, &step, 5);
            expect_traffic(&s.sent_by_group[0], &by[0], 5);
            expect_traffic(&s.sent_by_group[1], &by[1], 5);
            ck_assert_uint_eq(s.version, 5);
        }
        world_down(w);
    }
}
END_TEST

START_TEST(a_limit_is_kept) {
    struct config c = config_of(3, 2);
    struct world *w = world_up(&c);
    struct engine_status s;
    engine_status(w->trainers[0].e, &s);
    struct engine *e = NULL;
    struct err err = {0};
    struct engine_options o = {.rank = 0,
                               .threads = 2,
                               .slots = c.slots,
                               .kernels = w->kernels,
                               .records_bytes = 1000,
                               .device_memory = s.total_bytes};
    unsigned fds = entries("/proc/self/fd");
    ck_assert_int_eq(engine_new(&w->layout, &o, &world_callbacks, &w->trainers[0], &e, &err), 0);
    ck_assert_int_eq(engine_attach(e, 1, &err), 0);
    engine_del(e);
    o.device_memory--;
    ck_assert_int_eq(engine_new(&w->layout, &o, &world_callbacks, &w->trainers[0], &e, &err),
                     -ST_RESOURCE_EXHAUSTED);
    char text[ERR_TEXT];
    (void)snprintf(
        text, sizeof text,
        "rank 0 needs %lu bytes (parameters %lu, gradients %lu, optimizer %lu, gather "
        "slots %lu, gradient slots %lu), the limit is %lu; unit \"block1\" has 1041 of 1478 "
        "elements: split it into units",
        (unsigned long)s.total_bytes, (unsigned long)s.measured.params,
        (unsigned long)s.measured.grads, (unsigned long)s.measured.optimizer,
        (unsigned long)s.measured.gather_slots, (unsigned long)s.measured.grad_slots,
        (unsigned long)o.device_memory);
    /* the limit counts before rounding is known per line, so only the total includes it */
    ck_assert_str_eq(err.text, text);
    ck_assert_uint_eq(entries("/proc/self/fd"), fds);
    o.device_memory = 1;
    o.slots.gather = 65536;
    ck_assert_int_eq(engine_new(&w->layout, &o, &world_callbacks, &w->trainers[0], &e, &err),
                     -ST_RESOURCE_EXHAUSTED);
    o.slots.gather = 0;
    ck_assert_int_eq(engine_new(&w->layout, &o, &world_callbacks, &w->trainers[0], &e, &err),
                     -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(err.text, "0 gather slots and 2 gradient slots: must be 1 to 65536 each");
    o.slots.gather = 1;
    o.rank = 2;
    ck_assert_int_eq(engine_new(&w->layout, &o, &world_callbacks, &w->trainers[0], &e, &err),
                     -ST_INVALID_ARGUMENT);
    o.rank = 0;
    o.threads = 0;
    ck_assert_int_eq(engine_new(&w->layout, &o, &world_callbacks, &w->trainers[0], &e, &err),
                     -ST_INVALID_ARGUMENT);
    world_down(w);
}
END_TEST

/* /proc/self/maps without the C library's heap, which is the test's too. */
static size_t maps(char *text, size_t cap) {
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    size_t n = 0;
    while (fgets(line, sizeof line, f)) {
        if (strstr(line, "memfd:")) {
            n += (size_t)snprintf(text + n, cap - n, "%s", line);
            ck_assert_uint_lt(n, cap);
        }
    }
    fclose(f);
    return n;
}

START_TEST(nothing_is_added_while_training) {
    static char early[1 << 16], late[1 << 16];
    struct config c = config_of(_i, 3);
    struct world *w = world_up(&c);
    world_load(w);
    world_steps(w, 3);
    world_quiet(w);
    size_t n = maps(early, sizeof early);
    unsigned threads = entries("/proc/self/task"), fds = entries("/proc/self/fd");
    world_steps(w, 97);
    world_quiet(w);
    ck_assert_uint_eq(maps(late, sizeof late), n);
    ck_assert(!memcmp(early, late, n));
    ck_assert_uint_eq(entries("/proc/self/task"), threads);
    ck_assert_uint_eq(entries("/proc/self/fd"), fds);
    world_down(w);
}
END_TEST

START_TEST(deleted_at_any_time) {
    static char before[1 << 16], after[1 << 16];
    struct config one = config_of(_i, 1);
    world_down(world_up(&one)); /* sanitizers start a thread of theirs with the first */
    size_t n = maps(before, sizeof before);
    unsigned threads = entries("/proc/self/task"), fds = entries("/proc/self/fd");
    for (unsigned moves = 0; moves < 60; moves += 7) {
        struct config c = config_of(_i, 3);
        struct world *w = world_up(&c);
        if (moves) {
            world_load(w);
            world_steps(w, 1);
            world_open(w);
        }
        for (unsigned i = 0; i < moves; i++) {
            world_move(w, i % 3);
        }
        world_down(w);
        ck_assert_uint_eq(maps(after, sizeof after), n);
        ck_assert_uint_eq(entries("/proc/self/task"), threads);
        ck_assert_uint_eq(entries("/proc/self/fd"), fds);
    }
    engine_del(NULL);
}
END_TEST

START_TEST(foreign_descriptors) {
    struct config c = config_of(3, 2);
    struct world *w = world_up(&c);
    struct engine *e = w->trainers[0].e;
    struct err err;
    unsigned count = entries("/proc/self/fd");
    int fds[ENGINE_STATE_FDS];
    engine_state_fds(e, fds); /* its own */
    int own[] = {dup(fds[0]), dup(fds[1]), dup(fds[2])};
    ck_assert_int_eq(engine_peer_state(e, 1, own, &err), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(err.text, "rank 1's control page: is of rank 0 of 2, must be of rank 1 of 2");
    int garbage[ENGINE_STATE_FDS] = {dup(0), -1, -1};
    ck_assert_int_eq(engine_peer_state(e, 1, garbage, &err), -ST_INVALID_ARGUMENT);
    int mine[] = {dup(fds[0]), dup(fds[1]), dup(fds[2])};
    ck_assert_int_eq(engine_peer_state(e, 0, mine, &err), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(err.text, "rank 0 is no peer of rank 0 of 2");
    ck_assert_int_eq(engine_peer_grads(e, 7, 1, dup(fds[0]), &err), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(engine_peer_grads(e, 1, 1, dup(fds[0]), &err), -ST_INVALID_ARGUMENT);
    ck_assert_uint_eq(entries("/proc/self/fd"), count);
    world_load(w); /* unharmed: the good mappings stayed */
    world_steps(w, 2);
    ck_assert_uint_eq(world_hash(w), reference_hash(&w->ref));
    int trainer[2];
    uint64_t bytes[2];
    engine_trainer_fds(e, trainer, bytes);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, trainer[0], 0),
                     MAP_FAILED);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0), MAP_FAILED);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, engine_grad_fd(e), 0),
                     MAP_FAILED);
    uint8_t *records = engine_records(e);
    ck_assert_uint_eq((uintptr_t)records % 64, 0);
    memset(records, 0xFF, 1000);
    world_steps(w, 1);
    ck_assert_uint_eq(world_hash(w), reference_hash(&w->ref));
    world_down(w);
}
END_TEST

/* Peers come late: nothing is read before they are there, everything is afterwards. */
START_TEST(late_peers) {
    struct config c = config_of(_i, 2);
    struct world *w = world_up(&c);
    struct world *late = world_up(&c);
    world_down(late);
    world_load(w);
    world_steps(w, 1);
    world_connect(w, 0, 1); /* again: replaces what was mapped, in mid-flight */
    world_open(w);
    world_connect(w, 1, 0);
    world_finish_step(w);
    world_steps(w, 1);
    ck_assert_uint_eq(world_hash(w), reference_hash(&w->ref));
    world_down(w);
}
END_TEST

int main(void) {
    Suite *s = suite_create("memory");
    TCase *c = tcase_create("memory");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, memory_is_the_formula, 0, 2 * STRATEGIES);
    tcase_add_loop_test(c, traffic_is_the_formula, 0, 2 * STRATEGIES);
    tcase_add_test(c, a_limit_is_kept);
    tcase_add_loop_test(c, nothing_is_added_while_training, 0, STRATEGIES);
    tcase_add_loop_test(c, deleted_at_any_time, 0, STRATEGIES);
    tcase_add_test(c, foreign_descriptors);
    tcase_add_loop_test(c, late_peers, 0, STRATEGIES);
    suite_add_tcase(s, c);
    return run_suite(s);
}
