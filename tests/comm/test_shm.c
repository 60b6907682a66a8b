/* Four ranks in one process: what may be read when, what is mapped, and that exactly what was asked
 * for is fetched and counted. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/base/suite.h"
#include "ranks.h"

START_TEST(a_gather_takes_the_version_it_wants) {
    ranks_up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
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
    ranks_down();
}
END_TEST

START_TEST(a_gather_puts_parts_in_order) {
    ranks_up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
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
    ranks_down();
}
END_TEST

START_TEST(a_reduce_takes_the_exact_tag) {
    ranks_up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
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
    ranks_down();
}
END_TEST

/* Of 4 ranks in 2 x 2, rank 0 has 1 in its inner group, 2 in its outer, and nothing of 3. */
START_TEST(only_what_is_read_is_mapped) {
    ranks_up(_i ? STRATEGY_HYBRID_SHARD : STRATEGY_HYBRID_ZERO2, 2, DTYPE_FP32, DTYPE_FP32);
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
    ranks_down();
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
    ranks_up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
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
    ranks_down();
}
END_TEST

int main(void) {
    Suite *s = suite_create("shm");
    TCase *c = tcase_create("shm");
    tcase_add_test(c, a_gather_takes_the_version_it_wants);
    tcase_add_test(c, a_gather_puts_parts_in_order);
    tcase_add_test(c, a_reduce_takes_the_exact_tag);
    tcase_add_loop_test(c, only_what_is_read_is_mapped, 0, 2);
    tcase_add_test(c, garbage_pages_are_refused);
    suite_add_tcase(s, c);
    return run_suite(s);
}
