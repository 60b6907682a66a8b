/* Ranges, stretches and segments: every element of the model has one place, and one rank. */
#include <stdlib.h>

#include "base/buf.h"
#include "tests/base/suite.h"
#include "tests/layout/reference.h"

enum { MOST_SEGMENTS = KINDS * SIZES };

typedef struct stretch stretch_of(const struct layout *l, size_t range, unsigned rank);

/* Counts, for every tensor's every element, in how many ranks' stretches it is. */
static uint8_t **count_owners(const struct layout *l, stretch_of *of) {
    const struct model *m = l->model;
    struct segment s[MOST_SEGMENTS];
    uint8_t **seen = mem_zeroed(m->tensor_count, sizeof *seen);
    for (size_t i = 0; i < m->tensor_count; i++) {
        seen[i] = mem_zeroed(m->tensors[i].elements, 1);
    }
    for (size_t g = 0; g < l->range_count; g++) {
        for (unsigned r = 0; r < l->world; r++) {
            const struct stretch x = of(l, g, r);
            uint64_t last = 0;
            size_t n = layout_segments(l, g, x, s, MOST_SEGMENTS);
            ck_assert_uint_le(n, MOST_SEGMENTS);
            ck_assert_uint_eq(layout_segments(l, g, x, NULL, 0), n);
            for (size_t i = 0; i < n; i++) {
                const struct tensor_place *p = &l->tensors[s[i].tensor];
                ck_assert_uint_gt(s[i].count, 0);
                ck_assert_uint_ge(s[i].range_offset, last);
                ck_assert_uint_le(s[i].range_offset + s[i].count, x.count);
                ck_assert_uint_eq(p->range, g);
                ck_assert_uint_eq(x.from + s[i].range_offset, p->offset + s[i].tensor_offset);
                ck_assert_uint_le(s[i].tensor_offset + s[i].count,
                                  m->tensors[s[i].tensor].elements);
                last = s[i].range_offset + s[i].count;
                for (uint64_t j = 0; j < s[i].count; j++) {
                    seen[s[i].tensor][s[i].tensor_offset + j]++;
                }
            }
        }
    }
    return seen;
}

static void check_owners(const struct layout *l, stretch_of *of, unsigned owners,
                         unsigned of_frozen) {
    const struct model *m = l->model;
    uint8_t **seen = count_owners(l, of);
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct tensor *t = &m->tensors[i];
        uint64_t wrong = 0;
        unsigned due = t->frozen ? of_frozen : owners;
        due = t->alias[0] || t->ignored ? 0 : due;
        for (uint64_t j = 0; j < t->elements; j++) {
            wrong += seen[i][j] != due;
        }
        ck_assert_msg(wrong == 0, "%s on %u ranks: %llu elements of %s are not with %u ranks",
                      strategy_name(m->strategy), l->world, (unsigned long long)wrong, t->name,
                      due);
        free(seen[i]);
    }
    free(seen);
}

/* A range's numbers against sizes; |next| is where the unit's next range starts. */
static void check_range(const struct layout *l, size_t g, uint64_t *params, uint64_t *grads,
                        uint64_t *load) {
    const struct range *r = &l->ranges[g];
    const struct kind k = {r->dtype, r->frozen};
    ck_assert_uint_eq(r->padded, padded_of(l->model, r->unit, k, l->world));
    ck_assert_uint_eq(r->elements, real_of(l->model, r->unit, k, l->world, 0, 1));
    ck_assert_uint_eq(r->param_offset, *params);
    ck_assert_uint_eq(r->param_offset % 64, 0);
    ck_assert_uint_eq(r->load_offset, *load);
    ck_assert_uint_eq(r->grad_offset, r->frozen ? 0 : *grads);
    *params += r->padded * bytes_of(r->dtype);
    *load += r->padded;
    *grads += r->frozen ? 0 : r->padded;
}

static void check_unit(const struct layout *l, size_t u) {
    const struct unit_place *p = &l->units[u];
    uint64_t params = 0, grads = 0, load = 0;
    for (size_t i = 0; i < p->ranges; i++) {
        const struct range *r = &l->ranges[p->first + i];
        ck_assert_uint_eq(r->unit, u);
        ck_assert(r->frozen == (i >= p->trainable)); /* trainable ones first */
        for (size_t j = 0; j < i; j++) {
            const struct range *q = &l->ranges[p->first + j];
            ck_assert(q->frozen != r->frozen || q->dtype != r->dtype);
        }
        check_range(l, p->first + i, &params, &grads, &load);
    }
    ck_assert_uint_eq(p->param_bytes, params);
    ck_assert_uint_eq(p->grad_elements, grads);
    ck_assert_uint_eq(p->load_elements, load);
    ck_assert_uint_le(params, l->largest_param_bytes);
    ck_assert_uint_le(grads, l->largest_grad_elements);
}

/* Tensors follow each other in their range, and elements are numbered in registration order. */
static void check_tensors(const struct layout *l) {
    const struct model *m = l->model;
    uint64_t *end = mem_zeroed(l->range_count, sizeof *end), next = 0, trainable = 0;
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct tensor *t = &m->tensors[i];
        const struct tensor_place *p = &l->tensors[i];
        if (t->ignored || t->alias[0]) {
            continue;
        }
        ck_assert(
            is_of(m, t, (struct kind){l->ranges[p->range].dtype, l->ranges[p->range].frozen}));
        ck_assert_uint_eq(p->offset, up(end[p->range], 64));
        ck_assert_uint_eq(p->model_start, next);
        end[p->range] = p->offset + t->elements;
        next += t->elements;
        trainable += t->frozen ? 0 : t->elements;
    }
    ck_assert_uint_eq(l->elements, next);
    ck_assert_uint_eq(l->trainable, trainable);
    free(end);
}

static void check_places(const struct layout *l) {
    uint64_t padded = 0;
    size_t range = 0;
    for (size_t u = 0; u < l->model->unit_count; u++) {
        ck_assert_uint_eq(l->units[u].first, range);
        range += l->units[u].ranges;
        check_unit(l, u);
    }
    ck_assert_uint_eq(l->range_count, range);
    for (size_t g = 0; g < l->range_count; g++) {
        padded += l->ranges[g].padded;
    }
    ck_assert_uint_eq(l->padded, padded);
    check_tensors(l);
}

/* kept holds piece and updated; the piece is where the rank's turn in the outer group says. */
static void check_inside(const struct layout *l) {
    for (size_t g = 0; g < l->range_count; g++) {
        for (unsigned r = 0; r < l->world && !l->ranges[g].frozen; r++) {
            const struct group in = layout_inner(l, r), out = layout_outer(l, r);
            const struct stretch k = layout_kept(l, g, r), u = layout_updated(l, g, r);
            const struct stretch p = layout_piece(l, g, r);
            ck_assert(k.from % 64 == 0 && p.from % 64 == 0 && u.from % 64 == 0);
            ck_assert_uint_eq(k.from, group_index(&in, r) * k.count);
            ck_assert_uint_eq(k.count * in.count, l->ranges[g].padded);
            ck_assert_uint_eq(p.count * out.count, k.count);
            ck_assert_uint_eq(p.from, k.from + group_index(&out, r) * p.count);
            ck_assert(u.from == (l->optimizer_split ? p.from : k.from));
            ck_assert(u.count == (l->optimizer_split ? p.count : k.count));
        }
    }
}

static void check_case(enum strategy s, unsigned n, unsigned shard) {
    struct model m = sizes_model(n, s, DTYPE_BF16, 1);
    struct layout l;
    struct err e;
    m.shard_size = shard;
    ck_assert_int_eq(layout_init(&l, &m, n, &e), 0);
    const struct cut cut = cut_of(s, n, shard);
    ck_assert(l.params_sharded == gathers_shards(s));
    check_places(&l);
    check_inside(&l);
    check_owners(&l, layout_piece, 1, 1);
    check_owners(&l, layout_kept, n / cut.grads, 0);
    check_owners(&l, layout_updated, n / cut.optimizer, 0);
    check_owners(&l, layout_held, n / cut.params, n / cut.params);
    layout_free(&l);
    model_free(&m);
}

START_TEST(every_element_once) {
    sizes_each(check_case);
}
END_TEST

/* Every stretch of |a| is |b|'s. */
static void same_stretches(enum strategy a, unsigned shard_a, enum strategy b, unsigned shard_b,
                           unsigned n) {
    struct model ma = sizes_model(n, a, DTYPE_BF16, 1), mb = sizes_model(n, b, DTYPE_BF16, 1);
    static stretch_of *const all[] = {layout_kept, layout_updated, layout_piece, layout_held};
    struct layout la, lb;
    struct err e;
    ma.shard_size = shard_a;
    mb.shard_size = shard_b;
    ck_assert_int_eq(layout_init(&la, &ma, n, &e), 0);
    ck_assert_int_eq(layout_init(&lb, &mb, n, &e), 0);
    ck_assert_uint_eq(la.range_count, lb.range_count);
    for (size_t i = 0; i < la.range_count * n * 4; i++) {
        const size_t g = i / 4 / n;
        const unsigned r = (unsigned)(i / 4 % n);
        const struct stretch x = all[i % 4](&la, g, r), y = all[i % 4](&lb, g, r);
        ck_assert(x.from == y.from && x.count == y.count);
    }
    layout_free(&la);
    layout_free(&lb);
    model_free(&ma);
    model_free(&mb);
}

START_TEST(degenerate_groups) {
    for (unsigned n = 1; n <= MOST_RANKS; n++) {
        same_stretches(STRATEGY_HYBRID_SHARD, 1, STRATEGY_DDP, 0, n);
        same_stretches(STRATEGY_HYBRID_ZERO2, 1, STRATEGY_DDP, 0, n);
        same_stretches(STRATEGY_HYBRID_SHARD, n, STRATEGY_ZERO3, 0, n);
        same_stretches(STRATEGY_HYBRID_SHARD, 0, STRATEGY_ZERO3, 3, n); /* 3: not a hybrid's */
        same_stretches(STRATEGY_HYBRID_ZERO2, n, STRATEGY_ZERO2, 0, n);
    }
    same_stretches(STRATEGY_ZERO1, 0, STRATEGY_DDP, 0, 1);
    same_stretches(STRATEGY_ZERO3, 0, STRATEGY_DDP, 0, 1);
}
END_TEST

START_TEST(groups) {
    struct model m = fixture_model();
    struct layout l;
    struct err e;
    m.strategy = STRATEGY_HYBRID_SHARD;
    m.shard_size = 2;
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 8, &e), 0);
    ck_assert(l.inner == 2 && l.outer == 4);
    struct group in = layout_inner(&l, 5), out = layout_outer(&l, 5);
    ck_assert(in.first == 4 && in.stride == 1 && in.count == 2);
    ck_assert(out.first == 1 && out.stride == 2 && out.count == 4);
    ck_assert_uint_eq(group_index(&in, 5), 1);
    ck_assert_uint_eq(group_index(&out, 5), 2);
    ck_assert_uint_eq(group_at(&out, 3), 7);
    layout_free(&l);
    m.shard_size = 3;
    ck_assert_int_eq(layout_init(&l, &m, 8, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "shard size 3 does not divide the world size 8");
    m.shard_size = 16;
    ck_assert_int_eq(layout_init(&l, &m, 8, &e), -ST_INVALID_ARGUMENT);
    model_free(&m);
}
END_TEST

START_TEST(aliases_and_ignored) {
    struct model m = sizes_model(4, STRATEGY_ZERO3, DTYPE_BF16, 1);
    struct layout l;
    struct err e;
    ck_assert_int_eq(layout_init(&l, &m, 4, &e), 0);
    size_t alias = m.units[SIZES].first, all = m.units[SIZES + 1].first;
    ck_assert_str_eq(m.tensors[alias].name, "tied.alias");
    ck_assert_str_eq(m.tensors[all].name, "all.w8");
    ck_assert_uint_eq(l.tensors[alias].range, l.tensors[all].range);
    ck_assert_uint_eq(l.tensors[alias].offset, l.tensors[all].offset);
    ck_assert_uint_eq(l.tensors[alias].model_start, l.tensors[all].model_start);
    ck_assert(l.tensors[alias + 1].range == SIZE_MAX);
    ck_assert_uint_eq(l.units[SIZES].ranges, 0);
    ck_assert_uint_eq(l.units[SIZES].param_bytes, 0);
    layout_free(&l);
    model_free(&m);
}
END_TEST

START_TEST(segments_of_any_stretch) {
    struct model m = fixture_empty(STRATEGY_ZERO2, DTYPE_FP32, 1);
    struct segment s[4];
    struct layout l;
    struct err e;
    fixture_unit(&m, "u");
    fixture_tensor(&m, "a", 100);     /* at 0 */
    fixture_tensor(&m, "b", 0);       /* nowhere */
    sizes_kind(&m, "frozen", 500, 1); /* in another range */
    fixture_tensor(&m, "c", 10);      /* at 128 */
    fixture_tensor(&m, "d", 70);      /* at 192 */
    fixture_plans(&m);
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 3, &e), 0);
    ck_assert_uint_eq(l.ranges[0].padded, 384);
    ck_assert_uint_eq(l.ranges[1].padded, 576);
    ck_assert_uint_eq(layout_segments(&l, 0, (struct stretch){90, 110}, s, 4), 3);
    ck_assert(s[0].tensor == 0 && s[0].tensor_offset == 90 && s[0].range_offset == 0 &&
              s[0].count == 10);
    ck_assert(s[1].tensor == 3 && s[1].tensor_offset == 0 && s[1].range_offset == 38 &&
              s[1].count == 10);
    ck_assert(s[2].tensor == 4 && s[2].tensor_offset == 0 && s[2].range_offset == 102 &&
              s[2].count == 8);
    ck_assert_uint_eq(layout_segments(&l, 0, (struct stretch){100, 28}, s, 4), 0); /* padding */
    ck_assert_uint_eq(layout_segments(&l, 0, (struct stretch){50, 0}, s, 4), 0);
    ck_assert_uint_eq(layout_segments(&l, 0, (struct stretch){384, 0}, s, 4), 0);
    s[1].count = 777;
    ck_assert_uint_eq(layout_segments(&l, 0, (struct stretch){0, 384}, s, 1), 3); /* writes one */
    ck_assert_uint_eq(s[0].count, 100);
    ck_assert_uint_eq(s[1].count, 777);
    ck_assert_uint_eq(layout_segments(&l, 1, (struct stretch){0, 576}, s, 4), 1);
    ck_assert(s[0].tensor == 2 && s[0].count == 500);
    layout_free(&l);
    model_free(&m);
}
END_TEST

START_TEST(limits) {
    struct model m = fixture_model();
    struct layout l;
    struct err e;
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 0, &e), -ST_INVALID_ARGUMENT);
    ck_assert_str_eq(e.text, "0 ranks: must be 1 to 1048576");
    ck_assert_int_eq(layout_init(&l, &m, LAYOUT_PLAN_RANKS + 1, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(layout_init(&l, &m, LAYOUT_PLAN_RANKS, &e), 0);
    layout_free(&l);
    m.tensors[0].shape[0] = MODEL_MAX_ELEMENTS / 16 - 16; /* fits alone */
    m.tensors[3].shape[0] = 100;                          /* 64 too many */
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 1, &e), -ST_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(e.text, "with unit \"head\" the model has more than 17592186044416 elements, "
                             "padding included");
    m.tensors[2].shape[0] = 0;
    m.tensors[3].shape[0] = 0;
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 1, &e), 0); /* 2^44 - 256 + 1, padded to 2^44 - 192 */
    ck_assert_uint_eq(l.padded, MODEL_MAX_ELEMENTS - 192);
    layout_free(&l);
    model_free(&m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("places");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_element_once);
    tcase_add_test(t, degenerate_groups);
    tcase_add_test(t, groups);
    tcase_add_test(t, aliases_and_ignored);
    tcase_add_test(t, segments_of_any_stretch);
    tcase_add_test(t, limits);
    suite_add_tcase(s, t);
    return run_suite(s);
}
