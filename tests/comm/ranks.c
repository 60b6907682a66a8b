/* See ranks.h. */
#include "ranks.h"

#include <check.h>
#include <string.h>

struct model model;
struct layout layout;
const struct kernels *kernels;
struct rank ranks[RANKS];
static struct device *device;

static void make_model(enum strategy s, uint32_t shard_size, enum dtype wire, enum dtype kept) {
    const uint64_t shapes[] = {70000, 5};
    model_defaults(&model);
    for (int u = 0; u < 2; u++) {
        char name[] = "unit0", tensor[] = "tensor0";
        name[4] = tensor[6] = (char)('0' + u);
        struct tensor t = model_tensor(tensor, 1, &shapes[u]);
        ck_assert_int_eq(model_add_unit(&model, name, 1, NULL), 0);
        ck_assert_int_eq(model_add_tensor(&model, &t, NULL), 0);
    }
    ck_assert_int_eq(model_add_plan(&model, "train", NULL), 0);
    for (uint64_t u = 0; u < 2; u++) {
        ck_assert_int_eq(model_add_op(&model, PLAN_GATHER, u, NULL), 0);
        ck_assert_int_eq(model_add_op(&model, PLAN_REDUCE, u, NULL), 0);
    }
    model.strategy = s;
    model.shard_size = shard_size;
    model.wire_dtype = wire;
    model.kept_dtype = kept;
    ck_assert_int_eq(model_check(&model, NULL), 0);
    ck_assert_int_eq(layout_init(&layout, &model, RANKS, NULL), 0);
}

static void alloc(struct arena *a, uint64_t bytes) {
    arena_init(a);
    arena_carve(a, bytes, 0, &a->lines.fixed);
    ck_assert_int_eq(arena_alloc(a, "test", ARENA_SHARED, NULL), 0);
}

int readonly(const struct arena *a) {
    int fd;
    ck_assert_int_eq(arena_readonly(a, &fd, NULL), 0);
    return fd;
}

void ranks_up(enum strategy s, uint32_t shard_size, enum dtype wire, enum dtype kept) {
    make_model(s, shard_size, wire, kept);
    ck_assert_int_eq(device_cpu(2, &device, NULL), 0);
    ck_assert_int_eq(kernels_select("plain", &kernels, NULL), 0);
    for (unsigned r = 0; r < RANKS; r++) {
        struct rank *k = &ranks[r];
        uint64_t bytes = layout.padded * sizeof(float);
        alloc(&k->page, control_bytes(&layout, SLOTS));
        alloc(&k->memory, 64 + bytes);
        alloc(&k->replica, bytes);
        alloc(&k->grads, SLOTS * layout.largest_grad_elements * sizeof(float));
        struct shm_options o = {.layout = &layout,
                                .rank = r,
                                .grad_slots = SLOTS,
                                .kernels = kernels,
                                .device = device,
                                .page = k->page.base};
        o.memory[COMM_KEPT] = (struct shm_memory){k->memory.base + 64, 64, bytes};
        if (layout.params_sharded) {
            o.memory[COMM_MASTER] = o.memory[COMM_KEPT];
        } else {
            o.memory[COMM_REPLICA] = (struct shm_memory){k->replica.base, 0, bytes};
        }
        k->comm = shm_new(&o);
        shm_own_grads(k->comm, k->grads.base);
    }
}

static void connect_two(unsigned a, unsigned b) {
    const int fds[SHM_FDS] = {readonly(&ranks[b].page), readonly(&ranks[b].memory),
                              readonly(&ranks[b].replica)};
    ck_assert_int_eq(shm_peer_state(ranks[a].comm, b, fds, NULL), 0);
    ck_assert_int_eq(shm_peer_grads(ranks[a].comm, b, 7, readonly(&ranks[b].grads), NULL), 0);
}

void connect_ranks(void) {
    for (unsigned a = 0; a < RANKS; a++) {
        for (unsigned b = 0; b < RANKS; b++) {
            if (a != b) {
                connect_two(a, b);
            }
        }
    }
}

void ranks_down(void) {
    for (unsigned r = 0; r < RANKS; r++) {
        ranks[r].comm->ops->del(ranks[r].comm);
        arena_free(&ranks[r].page);
        arena_free(&ranks[r].memory);
        arena_free(&ranks[r].replica);
        arena_free(&ranks[r].grads);
    }
    device->ops->del(device);
    layout_free(&layout);
    model_free(&model);
    memset(&model, 0, sizeof model);
}

float *kept_of(unsigned rank) {
    return (float *)(void *)(ranks[rank].memory.base + 64);
}

void expect_none(uint64_t wrong) { /* one assertion for many elements */
    ck_assert_msg(!wrong, "%lu elements are wrong", (unsigned long)wrong);
}

uint64_t padded(void) {
    return layout.ranges[0].padded;
}

struct traffic sent_by(unsigned rank, enum comm_group group) {
    struct traffic by[COMM_GROUPS];
    ranks[rank].comm->ops->sent(ranks[rank].comm, by);
    return by[group];
}

struct comm_tag tag_of(struct fence f, uint32_t sequence, uint32_t unit) {
    return (struct comm_tag){
        f, 7, sequence, unit, layout.units[unit].grad_elements, sequence % SLOTS};
}
