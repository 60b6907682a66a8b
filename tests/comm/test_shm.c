/* Four ranks in one process: what may be read when, and that exactly that is read and counted. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/control.h"
#include "comm/shm.h"

enum { RANKS = 4, SLOTS = 2 };

static struct model model;
static struct layout layout;
static struct device *device;
static const struct kernels *kernels;

/* At 64 bytes of |memory|: masters and kept gradients, one and the same here; at 0 of |replica|
 * what it says. */
struct rank {
    struct arena page, memory, replica, grads;
    struct comm *comm;
};
static struct rank ranks[RANKS];

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

static int readonly(const struct arena *a) {
    int fd;
    ck_assert_int_eq(arena_readonly(a, &fd, NULL), 0);
    return fd;
}

static void up(enum strategy s, uint32_t shard_size, enum dtype wire, enum dtype kept) {
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

static void connect_ranks(void) {
    for (unsigned a = 0; a < RANKS; a++) {
        for (unsigned b = 0; b < RANKS; b++) {
            if (a != b) {
                connect_two(a, b);
            }
        }
    }
}

static void down(void) {
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

static float *kept_of(unsigned rank) {
    return (float *)(void *)(ranks[rank].memory.base + 64);
}

static void expect_none(uint64_t wrong) { /* one assertion for many elements */
    ck_assert_msg(!wrong, "%lu elements are wrong", (unsigned long)wrong);
}

/* Unit 0's one range, whole or a rank's share of it. */
static uint64_t padded(void) {
    return layout.ranges[0].padded;
}

static struct traffic sent_by(unsigned rank, enum comm_group group) {
    struct traffic by[COMM_GROUPS];
    ranks[rank].comm->ops->sent(ranks[rank].comm, by);
    return by[group];
}

static struct comm_tag tag_of(struct fence f, uint32_t sequence, uint32_t unit) {
    return (struct comm_tag){
        f, 7, sequence, unit, layout.units[unit].grad_elements, sequence % SLOTS};
}

START_TEST(a_gather_takes_the_version_it_wants) {
    up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
    struct comm *c = ranks[0].comm;
    const struct comm_ops *o = c->ops;
    ck_assert(!o->can_gather(c, COMM_INNER, 0, 4)); /* nobody is mapped */
    connect_ranks();
    o->put_version(ranks[1].comm, 0, 4);
    o->put_version(ranks[3].comm, 0, 4);
    ck_assert(!o->can_gather(c, COMM_INNER, 0, 4));
    o->put_version(ranks[2].comm, 0, 5);
    ck_assert(!o->can_gather(c, COMM_INNER, 0, 4)); /* nor a newer one */
    o->put_version(ranks[2].comm, 0, 4);
    ck_assert(o->can_gather(c, COMM_INNER, 0, 4));
    ck_assert(!o->can_gather(c, COMM_INNER, 1, 4));
    ck_assert(o->can_gather(c, COMM_OUTER, 1, 4)); /* a group of one */
    down();
}
END_TEST

START_TEST(a_gather_puts_parts_in_order) {
    up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
    connect_ranks();
    uint64_t n = padded(), part = n / RANKS;
    float *whole = calloc(n, sizeof *whole);
    for (unsigned r = 0; r < RANKS; r++) {
        for (uint64_t i = 0; i < part; i++) {
            kept_of(r)[i] = (float)(r * 1000000 + i);
        }
    }
    struct comm *c = ranks[1].comm;
    const struct comm_copy w = {.memory = COMM_MASTER, .count = part, .element = 4, .to = whole};
    ck_assert(c->ops->all_gather(c, &w));
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++) {
        wrong += whole[i] != (float)(i / part * 1000000 + i % part);
    }
    expect_none(wrong);
    ck_assert_uint_eq(sent_by(0, COMM_INNER).all_gather_elements, part);
    ck_assert_uint_eq(sent_by(0, COMM_INNER).all_gather_bytes, 4 * part);
    ck_assert_uint_eq(sent_by(1, COMM_INNER).all_gather_bytes, 0); /* its own is not traffic */
    c->ops->abort(c);
    ck_assert(!c->ops->all_gather(c, &w));
    c->ops->resume(c);
    ck_assert(c->ops->all_gather(c, &w));
    free(whole);
    down();
}
END_TEST

START_TEST(a_reduce_takes_the_exact_tag) {
    up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
    connect_ranks();
    struct comm *c = ranks[0].comm;
    const struct fence f = {3, 5, 2};
    struct comm_tag tag = tag_of(f, 4, 1);
    for (unsigned r = 1; r < RANKS; r++) {
        c->ops->put_tag(ranks[r].comm, &tag);
    }
    ck_assert(c->ops->can_reduce(c, &tag));
    for (int i = 0; i < 8; i++) { /* each difference alone makes it another tag */
        struct comm_tag other = tag;
        uint64_t *words[] = {&other.fence.generation, &other.fence.step, &other.fence.attempt,
                             &other.attachment, &other.elements};
        if (i < 5) {
            *words[i] += 1;
        } else {
            other.sequence += i == 5 ? SLOTS : 0; /* of the same place */
            other.unit -= i == 6;
            other.slot = i == 7 ? SLOTS : other.slot; /* there is no such slot */
        }
        c->ops->put_tag(ranks[2].comm, &other);
        ck_assert_msg(!c->ops->can_reduce(c, &tag), "difference %d was not seen", i);
    }
    tag.slot = 1; /* where it is, is the owner's choice */
    c->ops->put_tag(ranks[2].comm, &tag);
    ck_assert(c->ops->can_reduce(c, &tag));
    tag.slot = COMM_ABSENT;
    c->ops->put_tag(ranks[2].comm, &tag);
    ck_assert(c->ops->can_reduce(c, &tag));
    down();
}
END_TEST

static void put_value(unsigned rank, uint32_t slot, float value) {
    uint64_t n = layout.largest_grad_elements;
    for (uint64_t i = 0; i < n; i++) {
        if (model.wire_dtype == DTYPE_FP32) {
            ((float *)(void *)ranks[rank].grads.base)[slot * n + i] = value;
        } else {
            kernels->to_bf16(1, &value, (uint16_t *)(void *)ranks[rank].grads.base + slot * n + i);
        }
    }
}

/* Every rank's part of sequence 1; expects each element to be |expected|. */
static void reduce_all(const struct comm_tag tags[RANKS], bool add, float before, float expected) {
    uint64_t part = padded() / RANKS, wrong = 0;
    float *sum = calloc(part, sizeof *sum), wide;
    for (unsigned r = 0; r < RANKS; r++) {
        ranks[r].comm->ops->put_tag(ranks[r].comm, &tags[r]);
    }
    for (unsigned r = 0; r < RANKS; r++) {
        struct comm *c = ranks[r].comm;
        for (uint64_t i = 0; i < part; i++) {
            if (model.kept_dtype == DTYPE_FP32) {
                sum[i] = before;
            } else {
                kernels->to_bf16(1, &before, (uint16_t *)(void *)sum + i);
            }
        }
        const struct comm_sum w = {.at = r * part,
                                   .count = part,
                                   .from = model.wire_dtype,
                                   .kept = model.kept_dtype,
                                   .add = add,
                                   .to = sum};
        ck_assert(c->ops->can_reduce(c, &tags[r]));
        ck_assert(c->ops->reduce_scatter(c, &tags[r], &w));
        c->ops->put_mark(c, &tags[r]);
        for (uint64_t i = 0; i < part; i++) {
            wide = sum[i];
            if (model.kept_dtype == DTYPE_BF16) {
                kernels->from_bf16(1, (uint16_t *)(void *)sum + i, &wide);
            }
            wrong += wide != expected;
        }
    }
    expect_none(wrong);
    free(sum);
}

START_TEST(sums_are_in_rank_order_and_marked) {
    up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
    connect_ranks();
    const struct fence f = {3, 5, 2};
    struct comm_tag tags[RANKS];
    const float value[RANKS] = {1e8f, 1.0f, -1e8f, 0}; /* (1e8 + 1) - 1e8 is 0 in fp32 */
    for (unsigned r = 0; r < RANKS; r++) {
        put_value(r, 1, value[r]);
        tags[r] = tag_of(f, 1, 0);
    }
    struct comm *owner = ranks[2].comm;
    ck_assert(!owner->ops->is_read(owner, &f, 1));
    reduce_all(tags, true, 5, 5);
    ck_assert(owner->ops->is_read(owner, &f, 1));
    ck_assert(owner->ops->is_read(owner, &(struct fence){3, 5, 1}, 9));
    ck_assert(!owner->ops->is_read(owner, &f, 3));
    ck_assert(!owner->ops->is_read(owner, &(struct fence){3, 5, 3}, 1)); /* another try's */
    ck_assert(!owner->ops->is_read(owner, &f, 2));
    ck_assert_uint_eq(sent_by(2, COMM_INNER).reduce_scatter_bytes, 3 * 4 * padded() / RANKS);
    down();
}
END_TEST

/* Summed in fp32 and rounded once: 1 + 2^-8 + 2^-8 is 1 when each sum is rounded to bf16. */
START_TEST(bf16_is_rounded_once) {
    const float tiny = 0x1p-8f;
    enum dtype wire = _i & 1 ? DTYPE_BF16 : DTYPE_FP32, kept = _i & 2 ? DTYPE_BF16 : DTYPE_FP32;
    up(STRATEGY_ZERO2, 0, wire, kept);
    connect_ranks();
    struct comm_tag tags[RANKS];
    for (unsigned r = 0; r < RANKS; r++) {
        put_value(r, 1, r ? tiny : 1);
        tags[r] = tag_of((struct fence){1, 1, 1}, 1, 0);
    }
    float sum = 1 + 3 * tiny, rounded = 1 + 4 * tiny; /* a tie to even: 1.0117 is 1.015625 */
    reduce_all(tags, false, 77, kept == DTYPE_FP32 ? sum : rounded);
    reduce_all(tags, true, 1, kept == DTYPE_FP32 ? 1 + sum : 2 + 4 * tiny);
    ck_assert_uint_eq(sent_by(1, COMM_INNER).reduce_scatter_bytes,
                      2 * 3 * dtype_bytes(wire) * padded() / RANKS);
    down();
}
END_TEST

START_TEST(absent_ranks_count_as_zeros) {
    up(STRATEGY_ZERO2, 0, _i ? DTYPE_BF16 : DTYPE_FP32, DTYPE_FP32);
    connect_ranks();
    struct comm_tag tags[RANKS];
    for (unsigned r = 0; r < RANKS; r++) {
        put_value(r, 0, 64);
        put_value(r, 1, (float)(1u << r));
        tags[r] = tag_of((struct fence){1, 1, 1}, 1, 0);
        tags[r].slot = r % 2 ? 1 : COMM_ABSENT;
    }
    reduce_all(tags, false, 77, 2 + 8);
    ck_assert_uint_eq(sent_by(0, COMM_INNER).reduce_scatter_bytes, 0);
    ck_assert_uint_eq(sent_by(1, COMM_INNER).reduce_scatter_elements, 3 * padded() / RANKS);
    for (unsigned r = 0; r < RANKS; r++) {
        tags[r].slot = COMM_ABSENT;
    }
    reduce_all(tags, false, 77, 0);
    reduce_all(tags, true, 77, 77);
    down();
}
END_TEST

/* ddp: over all ranks; hybrid: over ranks 0 and 2, and 1 and 3, each of its half. */
START_TEST(an_all_reduce_is_in_place) {
    up(_i ? STRATEGY_HYBRID_SHARD : STRATEGY_DDP, 2, DTYPE_FP32, DTYPE_FP32);
    connect_ranks();
    const struct fence f = {1, 1, 1};
    const struct comm_ops *o = ranks[0].comm->ops;
    unsigned outer = layout.outer;
    uint64_t share = padded() / layout.inner, piece = share / outer, wrong = 0;
    for (unsigned r = 0; r < RANKS; r++) {
        for (uint64_t i = 0; i < share; i++) {
            kept_of(r)[i] = (float)((1u << r) * (i % 1000));
        }
    }
    for (unsigned r = 0; r < RANKS; r++) {
        ck_assert_int_eq(o->can_sum(ranks[0].comm, 0, &f), _i ? r > 2 : r > 3);
        o->put_kept(ranks[r].comm, 0, &f);
    }
    for (unsigned r = 0; r < RANKS; r++) {
        struct comm *c = ranks[r].comm;
        uint64_t at = r / layout.inner * piece;
        const struct comm_sum w = {.at = at,
                                   .count = piece,
                                   .from = DTYPE_FP32,
                                   .kept = DTYPE_FP32,
                                   .to = kept_of(r) + at};
        ck_assert(o->can_sum(c, 0, &f));
        ck_assert_int_eq(o->can_share(ranks[0].comm, 0, &f), _i && r > 2);
        ck_assert(o->sum(c, COMM_ALL_REDUCE, &w));
        o->put_reduced(c, 0, &f);
    }
    for (unsigned r = 0; r < RANKS; r++) {
        struct comm *c = ranks[r].comm;
        const struct comm_copy w = {COMM_OUTER, COMM_KEPT, COMM_ALL_REDUCE, 0, 4 * piece,
                                    piece,      4,         kept_of(r)};
        unsigned sum = _i ? r % 2 ? 2 + 8 : 1 + 4 : 15;
        ck_assert(o->can_share(c, 0, &f));
        ck_assert(o->all_gather(c, &w));
        for (uint64_t i = 0; i < share; i++) {
            wrong += kept_of(r)[i] != (float)(sum * (i % 1000));
        }
    }
    expect_none(wrong);
    ck_assert_uint_eq(sent_by(1, COMM_OUTER).all_reduce_elements, 2 * (outer - 1) * piece);
    ck_assert_uint_eq(sent_by(1, COMM_INNER).all_reduce_elements, 0);
    down();
}
END_TEST

/* Of 4 ranks in 2 x 2, rank 0 has 1 in its inner group, 2 in its outer, and nothing of 3. */
START_TEST(only_what_is_read_is_mapped) {
    up(_i ? STRATEGY_HYBRID_SHARD : STRATEGY_HYBRID_ZERO2, 2, DTYPE_FP32, DTYPE_FP32);
    struct comm *c = ranks[0].comm;
    const int garbage[SHM_FDS] = {-1, -1, -1};
    struct err e = {0};
    ck_assert_int_eq(shm_peer_state(c, 3, garbage, &e), 0);
    ck_assert_int_eq(shm_peer_grads(c, 3, 1, -1, &e), 0);
    ck_assert_int_eq(shm_peer_grads(c, 2, 1, -1, &e), 0); /* of an outer peer: never read */
    ck_assert_int_eq(shm_peer_grads(c, 1, 1, -1, &e), -ST_INVALID_ARGUMENT);
    const int outer[SHM_FDS] = {readonly(&ranks[2].page), readonly(&ranks[2].memory), -1};
    ck_assert_int_eq(shm_peer_state(c, 2, outer, &e), 0);
    const int inner[SHM_FDS] = {readonly(&ranks[1].page), _i ? readonly(&ranks[1].memory) : -1,
                                _i ? -1 : readonly(&ranks[1].replica)};
    ck_assert_int_eq(shm_peer_state(c, 1, inner, &e), 0);
    const int page[SHM_FDS] = {readonly(&ranks[1].page), -1, -1};
    ck_assert_int_eq(shm_peer_state(c, 1, page, &e), -ST_INVALID_ARGUMENT);
    down();
}
END_TEST

static void expect_refusal(struct arena *page, enum status code, const char *text) {
    struct err e = {0};
    const int fds[SHM_FDS] = {readonly(page), readonly(&ranks[1].memory),
                              readonly(&ranks[1].replica)};
    int rc = shm_peer_state(ranks[0].comm, 1, fds, &e);
    ck_assert_int_eq(rc, -(int)code);
    ck_assert_str_eq(e.text, text);
}

START_TEST(garbage_pages_are_refused) {
    up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
    struct arena *page = &ranks[1].page;
    struct control_header *h = (void *)page->base, good = *h;
    char text[ERR_TEXT];
    expect_refusal(&ranks[2].page, ST_INVALID_ARGUMENT,
                   "rank 1's control page: is of rank 2 of 4, must be of rank 1 of 4");
    h->magic = 0;
    expect_refusal(page, ST_DATA_LOSS, "rank 1's control page: starts with 0, not with 0x5a44434f");
    h->magic = good.magic;
    h->version = 9;
    expect_refusal(page, ST_INVALID_ARGUMENT,
                   "rank 1's control page: version 9, this daemon's is 2");
    h->version = good.version;
    h->layout++;
    expect_refusal(page, ST_INVALID_ARGUMENT, "rank 1's control page: is of another layout");
    h->layout = good.layout;
    h->grad_slots = 5;
    expect_refusal(page, ST_INVALID_ARGUMENT,
                   "rank 1's control page: 5 gradient slots, here are 2");
    h->grad_slots = good.grad_slots;
    h->offsets[COMM_MASTER] = UINT64_MAX - 63;
    (void)snprintf(text, sizeof text,
                   "rank 1's masters: %lu bytes at offset 18446744073709551552 do not lie in its "
                   "memory of %lu",
                   (unsigned long)(layout.padded * 4), (unsigned long)ranks[1].memory.bytes);
    expect_refusal(page, ST_INVALID_ARGUMENT, text);
    h->offsets[COMM_MASTER] = good.offsets[COMM_MASTER];
    ck_assert(!ranks[0].comm->ops->can_gather(ranks[0].comm, COMM_INNER, 0, 0));
    down();
}
END_TEST

int main(void) {
    Suite *s = suite_create("shm");
    TCase *c = tcase_create("shm");
    tcase_add_test(c, a_gather_takes_the_version_it_wants);
    tcase_add_test(c, a_gather_puts_parts_in_order);
    tcase_add_test(c, a_reduce_takes_the_exact_tag);
    tcase_add_test(c, sums_are_in_rank_order_and_marked);
    tcase_add_loop_test(c, bf16_is_rounded_once, 0, 4);
    tcase_add_loop_test(c, absent_ranks_count_as_zeros, 0, 2);
    tcase_add_loop_test(c, an_all_reduce_is_in_place, 0, 2);
    tcase_add_loop_test(c, only_what_is_read_is_mapped, 0, 2);
    tcase_add_test(c, garbage_pages_are_refused);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
