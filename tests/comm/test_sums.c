/* Four ranks in one process: sums of slots and of kept gradients. */
#include <stdlib.h>

#include "tests/base/suite.h"
#include "ranks.h"

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
    ranks_up(STRATEGY_ZERO3, 0, DTYPE_FP32, DTYPE_FP32);
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
    ranks_down();
}
END_TEST

/* Summed in fp32 and rounded once: 1 + 2^-8 + 2^-8 is 1 when each sum is rounded to bf16. */
START_TEST(bf16_is_rounded_once) {
    const float tiny = 0x1p-8f;
    enum dtype wire = _i & 1 ? DTYPE_BF16 : DTYPE_FP32, kept = _i & 2 ? DTYPE_BF16 : DTYPE_FP32;
    ranks_up(STRATEGY_ZERO2, 0, wire, kept);
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
    ranks_down();
}
END_TEST

START_TEST(absent_ranks_count_as_zeros) {
    ranks_up(STRATEGY_ZERO2, 0, _i ? DTYPE_BF16 : DTYPE_FP32, DTYPE_FP32);
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
    ranks_down();
}
END_TEST

/* ddp: over all ranks; hybrid: over ranks 0 and 2, and 1 and 3, each of its half. */
START_TEST(an_all_reduce_is_in_place) {
    ranks_up(_i ? STRATEGY_HYBRID_SHARD : STRATEGY_DDP, 2, DTYPE_FP32, DTYPE_FP32);
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
    ranks_down();
}
END_TEST

int main(void) {
    Suite *s = suite_create("sums");
    TCase *c = tcase_create("sums");
    tcase_add_test(c, sums_are_in_rank_order_and_marked);
    tcase_add_loop_test(c, bf16_is_rounded_once, 0, 4);
    tcase_add_loop_test(c, absent_ranks_count_as_zeros, 0, 2);
    tcase_add_loop_test(c, an_all_reduce_is_in_place, 0, 2);
    suite_add_tcase(s, c);
    return run_suite(s);
}
