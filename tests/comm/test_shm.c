/* Three ranks in one process: what may be read when, and that exactly that is read and counted. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "comm/control.h"
#include "comm/shm.h"

enum { RANKS = 3, SLOTS = 2 };

static struct model model;
static struct layout layout;
static struct device *device;
static const struct kernels *kernels;

struct rank {
    struct arena page, params, grads;
    struct comm *comm;
};
static struct rank ranks[RANKS];

static void make_model(enum strategy s, enum dtype param) {
    const uint64_t shapes[] = {900000, 5}; /* sums of the first are written past the caches */
    for (int u = 0; u < 2; u++) {
        char name[] = "unit0", tensor[] = "tensor0";
        name[4] = tensor[6] = (char)('0' + u);
        ck_assert_int_eq(model_add_unit(&model, name, NULL), 0);
        ck_assert_int_eq(model_add_tensor(&model, tensor, 1, &shapes[u], 1, NULL), 0);
    }
    ck_assert_int_eq(model_add_plan(&model, "train", NULL), 0);
    for (uint64_t u = 0; u < 2; u++) {
        ck_assert_int_eq(model_add_op(&model, PLAN_GATHER, u, NULL), 0);
        ck_assert_int_eq(model_add_op(&model, PLAN_REDUCE, u, NULL), 0);
    }
    model.strategy = s;
    model.param_dtype = param;
    model.micro_batches = 1;
    model.adamw = (struct adamw_options){0.9, 0.95, 1e-8, 0.1};
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

static void up(enum strategy s, enum dtype param) {
    make_model(s, param);
    ck_assert_int_eq(device_cpu(2, &device, NULL), 0);
    ck_assert_int_eq(kernels_select("plain", &kernels, NULL), 0);
    for (unsigned r = 0; r < RANKS; r++) {
        struct rank *k = &ranks[r];
        alloc(&k->page, control_bytes(&layout, SLOTS));
        alloc(&k->params, 64 + layout.padded * sizeof(float));
        alloc(&k->grads, SLOTS * layout.largest * sizeof(float));
        k->comm = shm_new(&(struct shm_options){&layout, r, SLOTS, kernels, device, k->page.base,
                                                k->params.base + 64, 64});
        shm_own_grads(k->comm, k->grads.base);
    }
}

static void connect_ranks(void) {
    for (unsigned a = 0; a < RANKS; a++) {
        for (unsigned b = 0; b < RANKS; b++) {
            if (a != b) {
                ck_assert_int_eq(shm_peer_state(ranks[a].comm, b, readonly(&ranks[b].page),
                                                readonly(&ranks[b].params), NULL),
                                 0);
                ck_assert_int_eq(
                    shm_peer_grads(ranks[a].comm, b, 7, readonly(&ranks[b].grads), NULL), 0);
            }
        }
    }
}

static void down(void) {
    for (unsigned r = 0; r < RANKS; r++) {
        ranks[r].comm->ops->del(ranks[r].comm);
        arena_free(&ranks[r].page);
        arena_free(&ranks[r].params);
        arena_free(&ranks[r].grads);
    }
    device->ops->del(device);
    layout_free(&layout);
    model_free(&model);
    memset(&model, 0, sizeof model);
}

static struct comm_tag tag_of(struct fence f, uint32_t sequence, uint32_t unit) {
    return (struct comm_tag){f, 7, sequence, unit, layout.units[unit].padded};
}

START_TEST(a_gather_takes_the_version_it_wants) {
    up(STRATEGY_ZERO3, DTYPE_FP32);
    const struct comm_ops *o = ranks[0].comm->ops;
    ck_assert(!o->can_gather(ranks[0].comm, 0, 4)); /* nobody is mapped */
    connect_ranks();
    o->put_version(ranks[1].comm, 0, 4);
    ck_assert(!o->can_gather(ranks[0].comm, 0, 4));
    o->put_version(ranks[2].comm, 0, 5);
    ck_assert(!o->can_gather(ranks[0].comm, 0, 4)); /* nor a newer one */
    o->put_version(ranks[2].comm, 0, 4);
    ck_assert(o->can_gather(ranks[0].comm, 0, 4));
    ck_assert(!o->can_gather(ranks[0].comm, 1, 4));
    down();
}
END_TEST

START_TEST(a_gather_puts_parts_in_order) {
    up(STRATEGY_ZERO3, DTYPE_FP32);
    connect_ranks();
    uint64_t n = layout.units[0].padded, part = layout.units[0].part;
    float *whole = calloc(n, sizeof *whole);
    for (unsigned r = 0; r < RANKS; r++) {
        float *p = (float *)(void *)(ranks[r].params.base + 64);
        for (uint64_t i = 0; i < layout.part; i++) {
            p[i] = (float)(r * 1000000 + i);
        }
    }
    ck_assert(ranks[1].comm->ops->all_gather(ranks[1].comm, 0, whole));
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++) {
        wrong += whole[i] != (float)(i / part * 1000000 + i % part);
    }
    ck_assert_uint_eq(wrong, 0);
    struct traffic t;
    ranks[0].comm->ops->sent(ranks[0].comm, &t);
    ck_assert_uint_eq(t.all_gather_elements, part);
    ck_assert_uint_eq(t.all_gather_bytes, 4 * part);
    ranks[1].comm->ops->sent(ranks[1].comm, &t);
    ck_assert_uint_eq(t.all_gather_bytes, 0); /* its own part is not traffic */
    ranks[1].comm->ops->abort(ranks[1].comm);
    ck_assert(!ranks[1].comm->ops->all_gather(ranks[1].comm, 0, whole));
    ranks[1].comm->ops->resume(ranks[1].comm);
    ck_assert(ranks[1].comm->ops->all_gather(ranks[1].comm, 0, whole));
    free(whole);
    down();
}
END_TEST

START_TEST(a_reduce_takes_the_exact_tag) {
    up(STRATEGY_ZERO3, DTYPE_FP32);
    connect_ranks();
    struct comm *c = ranks[0].comm;
    const struct fence f = {3, 5, 2};
    struct comm_tag tag = tag_of(f, 4, 1);
    c->ops->put_tag(ranks[1].comm, 0, &tag);
    c->ops->put_tag(ranks[2].comm, 0, &tag);
    ck_assert(c->ops->can_reduce(c, 0, &tag));
    ck_assert(!c->ops->can_reduce(c, 1, &tag));
    for (int i = 0; i < 7; i++) { /* each difference alone makes it another tag */
        struct comm_tag other = tag;
        uint64_t *words[] = {&other.fence.generation, &other.fence.step, &other.fence.attempt,
                             &other.attachment, &other.elements};
        if (i < 5) {
            *words[i] += 1;
        } else {
            other.sequence += i == 5;
            other.unit -= i == 6;
        }
        c->ops->put_tag(ranks[2].comm, 0, &other);
        ck_assert_msg(!c->ops->can_reduce(c, 0, &tag), "difference %d was not seen", i);
    }
    c->ops->put_tag(ranks[2].comm, 0, &tag);
    ck_assert(c->ops->can_reduce(c, 0, &tag));
    down();
}
END_TEST

START_TEST(sums_are_in_rank_order_and_marked) {
    up(STRATEGY_ZERO3, DTYPE_FP32);
    connect_ranks();
    const struct fence f = {3, 5, 2};
    struct comm_tag tag = tag_of(f, 1, 0);
    uint64_t part = layout.units[0].part;
    const float value[RANKS] = {1e8f, 1.0f, -1e8f}; /* (1e8 + 1) - 1e8 is 0 in fp32 */
    for (unsigned r = 0; r < RANKS; r++) {
        float *slot = (float *)(void *)ranks[r].grads.base + layout.largest;
        for (uint64_t i = 0; i < layout.units[0].padded; i++) {
            slot[i] = value[r];
        }
        ranks[r].comm->ops->put_tag(ranks[r].comm, 1, &tag);
    }
    float *sum = malloc(part * sizeof *sum); /* what is not added to is not read */
    memset(sum, 0xFF, part * sizeof *sum);
    struct comm *owner = ranks[2].comm;
    for (unsigned r = 0; r < RANKS; r++) {
        ck_assert(!owner->ops->slot_is_read(owner, 1, &f, 1) || r == 2);
        ck_assert(ranks[r].comm->ops->reduce_scatter(ranks[r].comm, 1, &tag, r == 2, sum));
    }
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < part; i++) {
        wrong += sum[i] != 0.0f;
    }
    ck_assert_uint_eq(wrong, 0);
    ck_assert(owner->ops->slot_is_read(owner, 1, &f, 1));
    ck_assert(owner->ops->slot_is_read(owner, 1, &(struct fence){3, 5, 1}, 9));
    ck_assert(!owner->ops->slot_is_read(owner, 1, &f, 3));
    ck_assert(!owner->ops->slot_is_read(owner, 1, &(struct fence){3, 5, 3}, 0)); /* another try's */
    ck_assert(!owner->ops->slot_is_read(owner, 0, &f, 1));
    struct traffic t;
    owner->ops->sent(owner, &t);
    ck_assert_uint_eq(t.reduce_scatter_bytes, 2 * 4 * part);
    free(sum);
    down();
}
END_TEST

START_TEST(an_all_reduce_is_in_place) {
    up(STRATEGY_DDP, DTYPE_FP32);
    connect_ranks();
    const struct fence f = {1, 1, 1};
    const struct comm_ops *o = ranks[0].comm->ops;
    for (unsigned r = 0; r < RANKS; r++) {
        float *kept = (float *)(void *)(ranks[r].params.base + 64);
        for (uint64_t i = 0; i < layout.padded; i++) {
            kept[i] = (float)((r + 1) * (i % 1000));
        }
        ck_assert_int_eq(o->can_sum(ranks[0].comm, 0, &f), r > 2);
        o->put_kept(ranks[r].comm, 0, &f);
    }
    for (unsigned r = 0; r < RANKS; r++) {
        ck_assert(o->can_sum(ranks[r].comm, 0, &f));
        ck_assert_int_eq(o->can_share(ranks[2].comm, 0, &f), r >= 2);
        ck_assert(o->sum_part(ranks[r].comm, 0, &f));
    }
    for (unsigned r = 0; r < RANKS; r++) {
        ck_assert(o->can_share(ranks[r].comm, 0, &f));
        ck_assert(o->share_parts(ranks[r].comm, 0));
        const float *kept = (const float *)(const void *)(ranks[r].params.base + 64);
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < layout.units[0].padded; i++) {
            wrong += kept[i] != (float)(6 * (i % 1000));
        }
        ck_assert_uint_eq(wrong, 0);
    }
    struct traffic t;
    o->sent(ranks[1].comm, &t);
    ck_assert_uint_eq(t.all_reduce_elements, 4 * layout.units[0].part);
    down();
}
END_TEST

static void expect_refusal(struct arena *page, enum status code, const char *text) {
    struct err e = {0};
    int rc = shm_peer_state(ranks[0].comm, 1, readonly(page), readonly(&ranks[1].params), &e);
    ck_assert_int_eq(rc, -(int)code);
    ck_assert_str_eq(e.text, text);
}

START_TEST(garbage_pages_are_refused) {
    up(STRATEGY_ZERO3, DTYPE_FP32);
    struct arena *page = &ranks[1].page;
    struct control_header *h = (void *)page->base, good = *h;
    expect_refusal(&ranks[2].page, ST_INVALID_ARGUMENT,
                   "rank 1's control page: is of rank 2 of 3, must be of rank 1 of 3");
    h->magic = 0;
    expect_refusal(page, ST_DATA_LOSS, "rank 1's control page: starts with 0, not with 0x5a44434f");
    h->magic = good.magic;
    h->version = 9;
    expect_refusal(page, ST_INVALID_ARGUMENT,
                   "rank 1's control page: version 9, this daemon's is 1");
    h->version = good.version;
    h->layout++;
    expect_refusal(page, ST_INVALID_ARGUMENT, "rank 1's control page: is of another layout");
    h->layout = good.layout;
    h->grad_slots = 5;
    expect_refusal(page, ST_INVALID_ARGUMENT,
                   "rank 1's control page: 5 gradient slots, here are 2");
    h->grad_slots = good.grad_slots;
    h->source_offset = UINT64_MAX - 63;
    struct err e;
    ck_assert_int_eq(
        shm_peer_state(ranks[0].comm, 1, readonly(page), readonly(&ranks[1].params), &e),
        -ST_INVALID_ARGUMENT);
    h->source_offset = good.source_offset;
    ck_assert_int_eq(shm_peer_state(ranks[0].comm, 1, readonly(page), -1, &e),
                     -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(shm_peer_grads(ranks[0].comm, 1, 7, readonly(page), &e), -ST_INVALID_ARGUMENT);
    ck_assert(!ranks[0].comm->ops->can_gather(ranks[0].comm, 0, 0));
    down();
}
END_TEST

int main(void) {
    Suite *s = suite_create("shm");
    TCase *c = tcase_create("shm");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_gather_takes_the_version_it_wants);
    tcase_add_test(c, a_gather_puts_parts_in_order);
    tcase_add_test(c, a_reduce_takes_the_exact_tag);
    tcase_add_test(c, sums_are_in_rank_order_and_marked);
    tcase_add_test(c, an_all_reduce_is_in_place);
    tcase_add_test(c, garbage_pages_are_refused);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
