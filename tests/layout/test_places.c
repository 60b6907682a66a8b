#include <stdlib.h>

#include "base/buf.h"
#include "tests/base/suite.h"
#include "tests/layout/sizes.h"

/* Marks every element that rank r's part of a unit covers; each must be new. */
static void mark(const struct layout *l, size_t unit, unsigned r, uint8_t **seen) {
    struct segment s[2 * SIZES];
    uint64_t part = l->units[unit].part, from = part * r, last = 0;
    size_t n = layout_segments(l, unit, from, from + part, s, 2 * SIZES);
    ck_assert_uint_le(n, SIZES);
    ck_assert_uint_eq(layout_segments(l, unit, from, from + part, NULL, 0), n);
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_gt(s[i].count, 0);
        ck_assert_uint_ge(s[i].range_offset, last);
        ck_assert_uint_le(s[i].range_offset + s[i].count, part);
        ck_assert_uint_le(s[i].tensor_offset + s[i].count, l->model->tensors[s[i].tensor].elements);
        ck_assert_uint_eq(from + s[i].range_offset,
                          l->tensors[s[i].tensor].offset + s[i].tensor_offset);
        last = s[i].range_offset + s[i].count;
        for (uint64_t j = 0; j < s[i].count; j++) {
            seen[s[i].tensor][s[i].tensor_offset + j]++;
        }
    }
}

static void check_cover(const struct layout *l) {
    const struct model *m = l->model;
    uint8_t **seen = mem_zeroed(m->tensor_count, sizeof *seen);
    for (size_t i = 0; i < m->tensor_count; i++) {
        seen[i] = mem_zeroed(m->tensors[i].elements, 1);
    }
    for (size_t u = 0; u < m->unit_count; u++) {
        for (unsigned r = 0; r < l->world; r++) {
            mark(l, u, r, seen);
        }
    }
    for (size_t i = 0; i < m->tensor_count; i++) {
        uint64_t wrong = 0;
        for (uint64_t j = 0; j < m->tensors[i].elements; j++) {
            wrong += seen[i][j] != 1;
        }
        ck_assert_msg(wrong == 0, "%u ranks: %llu elements of %s are not covered exactly once",
                      l->world, (unsigned long long)wrong, m->tensors[i].name);
        free(seen[i]);
    }
    free(seen);
}

static void check_places(const struct layout *l) {
    const struct model *m = l->model;
    uint64_t flat = 0, part = 0, real = 0, largest = 0;
    for (size_t u = 0; u < m->unit_count; u++) {
        const struct unit_place *p = &l->units[u];
        uint64_t own = 0, end = 0;
        for (size_t i = m->units[u].first; i < m->units[u].first + m->units[u].tensors; i++) {
            ck_assert_uint_eq(l->tensors[i].offset % 64, 0);
            ck_assert_uint_ge(l->tensors[i].offset, end);
            ck_assert_uint_lt(l->tensors[i].offset, end + 64); /* no more padding than needed */
            ck_assert_uint_eq(l->tensors[i].model_start, real + own);
            end = l->tensors[i].offset + m->tensors[i].elements;
            own += m->tensors[i].elements;
        }
        ck_assert_uint_eq(p->padded % (64 * (uint64_t)l->world), 0);
        ck_assert_uint_ge(p->padded, end);
        ck_assert_uint_lt(p->padded, end + 64 * (uint64_t)l->world);
        ck_assert_uint_eq(p->part * l->world, p->padded);
        ck_assert_uint_eq(p->elements, own);
        ck_assert_uint_eq(p->flat_start, flat);
        ck_assert_uint_eq(p->part_start, part);
        ck_assert_uint_eq(p->model_start, real);
        flat += p->padded;
        part += p->part;
        real += own;
        largest = p->padded > largest ? p->padded : largest;
    }
    ck_assert_uint_eq(l->padded, flat);
    ck_assert_uint_eq(l->part, part);
    ck_assert_uint_eq(l->elements, real);
    ck_assert_uint_eq(l->largest, largest);
}

START_TEST(every_element_once) {
    for (unsigned n = 1; n <= MOST_RANKS; n++) {
        struct model m = sizes_model(n, STRATEGY_ZERO3, DTYPE_FP32, 1);
        struct layout l;
        struct err e;
        ck_assert_int_eq(layout_init(&l, &m, n, &e), 0);
        ck_assert(l.params_sharded && l.grads_sharded && l.optimizer_sharded);
        check_places(&l);
        check_cover(&l);
        layout_free(&l);
        model_free(&m);
    }
}
END_TEST

START_TEST(segments_of_any_range) {
    struct model m = fixture_empty(STRATEGY_ZERO2, DTYPE_FP32, 1);
    struct segment s[4];
    struct layout l;
    struct err e;
    ck_assert_int_eq(model_add_unit(&m, "u", &e), 0);
    fixture_tensor(&m, "a", 100); /* at 0 */
    fixture_tensor(&m, "b", 0);   /* nowhere */
    fixture_tensor(&m, "c", 10);  /* at 128 */
    fixture_tensor(&m, "d", 70);  /* at 192 */
    fixture_plans(&m);
    fixture_good(&m);
    ck_assert_int_eq(layout_init(&l, &m, 3, &e), 0);
    ck_assert(!l.params_sharded && l.grads_sharded && l.optimizer_sharded);
    ck_assert_uint_eq(l.padded, 384);
    ck_assert_uint_eq(layout_segments(&l, 0, 90, 200, s, 4), 3);
    ck_assert(s[0].tensor == 0 && s[0].tensor_offset == 90 && s[0].range_offset == 0 &&
              s[0].count == 10);
    ck_assert(s[1].tensor == 2 && s[1].tensor_offset == 0 && s[1].range_offset == 38 &&
              s[1].count == 10);
    ck_assert(s[2].tensor == 3 && s[2].tensor_offset == 0 && s[2].range_offset == 102 &&
              s[2].count == 8);
    ck_assert_uint_eq(layout_segments(&l, 0, 100, 128, s, 4), 0); /* padding only */
    ck_assert_uint_eq(layout_segments(&l, 0, 50, 50, s, 4), 0);
    ck_assert_uint_eq(layout_segments(&l, 0, 384, 384, s, 4), 0);
    s[1].count = 777;
    ck_assert_uint_eq(layout_segments(&l, 0, 0, 384, s, 1), 3); /* says how many, writes one */
    ck_assert_uint_eq(s[0].count, 100);
    ck_assert_uint_eq(s[1].count, 777);
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
    ck_assert_str_eq(e.text, "0 ranks: must be 1 to 64");
    ck_assert_int_eq(layout_init(&l, &m, 65, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(layout_init(&l, &m, 64, &e), 0);
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
    tcase_add_test(t, segments_of_any_range);
    tcase_add_test(t, limits);
    suite_add_tcase(s, t);
    return run_suite(s);
}
