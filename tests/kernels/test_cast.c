#include "tests/base/suite.h"
#include "tests/kernels/data.h"

static float wide(uint16_t b) {
    return float_of((uint32_t)b << 16);
}

/* The nearer of the two bf16 around x, by distance in double; even mantissa on a tie. */
static uint16_t reference(float x) {
    uint16_t down = (uint16_t)(bits_of(x) >> 16); /* towards zero */
    uint16_t up = (uint16_t)(down + 1);           /* away from zero; may be the infinity */
    if (isnan(x)) {
        return down | 0x40;
    }
    if (isinf(x) || wide(down) == x) {
        return down;
    }
    double limit = isinf(wide(up)) ? copysign(0x1p128, (double)x) : (double)wide(up);
    double to_down = fabs((double)x - (double)wide(down)), to_up = fabs(limit - (double)x);
    if (to_down == to_up) {
        return down & 1 ? up : down;
    }
    return to_down < to_up ? down : up;
}

START_TEST(to_bf16_is_nearest_even) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    data_seed("to_bf16");
    for (size_t i = 0; i < LENGTHS; i++) {
        size_t n = data_length(i), shift = i % 16;
        struct array from = array_new(n, shift);
        fill(from.at, n, data_hostile);
        uint16_t *to = mem_zeroed(n + shift + 1, sizeof *to);
        for (size_t s = 0; s < sets; s++) {
            to[shift + n] = 0xABCD;
            list[s]->to_bf16(n, from.at, to + shift);
            for (size_t j = 0; j < n; j++) {
                if (to[shift + j] != reference(from.at[j])) {
                    ck_abort_msg("%s: %a became %04x, not %04x", list[s]->isa, (double)from.at[j],
                                 to[shift + j], reference(from.at[j]));
                }
            }
            ck_assert_uint_eq(to[shift + n], 0xABCD);
        }
        free(to);
        free(from.base);
    }
}
END_TEST

START_TEST(from_bf16_is_exact) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    enum { ALL = 65536 };
    uint16_t *from = mem_zeroed(ALL, sizeof *from), *back = mem_zeroed(ALL, sizeof *back);
    float *to = mem_zeroed(ALL, sizeof *to);
    for (size_t i = 0; i < ALL; i++) {
        from[i] = (uint16_t)i;
    }
    for (size_t s = 0; s < sets; s++) {
        size_t bad = 0;
        for (size_t n = 0; n <= ALL; n = n < 130 ? n + 1 : n * 2 + 1) {
            size_t here = n > 60000 ? ALL : n;
            memset(to, 0, ALL * sizeof *to);
            list[s]->from_bf16(here, from, to);
            for (size_t i = 0; i < ALL; i++) {
                bad += bits_of(to[i]) != (i < here ? (uint32_t)from[i] << 16 : 0);
            }
        }
        list[s]->from_bf16(ALL, from, to);
        list[s]->to_bf16(ALL, to, back);
        for (size_t i = 0; i < ALL; i++) {
            bool nan = (i & 0x7FFF) > 0x7F80;
            bad += back[i] != (nan ? i | 0x40 : i);
        }
        ck_assert_msg(bad == 0, "%s: %zu elements differ", list[s]->isa, bad);
    }
    free(from);
    free(back);
    free(to);
}
END_TEST

/* ---- fp16; check_fp16.py goes further, but not under sanitizers ---- */

/* The infinity counts as what would come next, 65536. */
static double half_value(uint16_t h) {
    const int exponent = h >> 10, mantissa = h & 0x3FF;
    return exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
}

static uint16_t half_reference(float x) {
    const uint16_t sign = bits_of(x) >> 16 & 0x8000;
    if (isnan(x)) {
        return (uint16_t)(sign | 0x7E00 | (bits_of(x) >> 13 & 0x3FF));
    }
    const double size = fmin(fabs((double)x), 65536);
    uint16_t low = 0, high = 0x7C00; /* halves order as their bits do */
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)((low + high) / 2);
        *(half_value(middle) <= size ? &low : &high) = middle;
    }
    const double below = size - half_value(low), beyond = half_value(high) - size;
    const bool up = below > beyond || (below == beyond && (low & 1));
    return sign | (up ? high : low);
}

/* Around every half and halfway to the next. */
static float near_half(void) {
    const uint16_t h = (uint16_t)(data_bits() % 0x7C00), next = (uint16_t)(h + 1);
    const double between = (half_value(h) + half_value(next)) / 2;
    const float x = (float)(data_bits() % 2 ? half_value(h) : between);
    const float y = float_of(bits_of(x) + (uint32_t)(data_bits() % 3) - (x > 0));
    return data_bits() % 2 ? y : -y;
}

static void check_fp16(const struct kernels *k, size_t n, size_t shift, float (*source)(void)) {
    struct array from = array_new(n, shift), back = array_new(n, shift);
    uint16_t *to = mem_zeroed(n + shift + 1, sizeof *to);
    fill(from.at, n, source);
    to[shift + n] = 0xABCD;
    k->to_fp16(n, from.at, to + shift);
    k->from_fp16(n, to + shift, back.at);
    for (size_t i = 0; i < n; i++) {
        const uint16_t h = to[shift + i], expected = half_reference(from.at[i]);
        if (h != expected) {
            ck_abort_msg("%s: %a became %04x, not %04x", k->isa, (double)from.at[i], h, expected);
        }
        if ((h & 0x7FFF) < 0x7C00 &&
            (double)back.at[i] != copysign(half_value(h & 0x7FFF), h & 0x8000 ? -1 : 1)) {
            ck_abort_msg("%s: %04x became %a", k->isa, h, (double)back.at[i]);
        }
    }
    ck_assert_uint_eq(to[shift + n], 0xABCD);
    free(to);
    free(back.base);
    free(from.base);
}

START_TEST(fp16_is_nearest_even) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    data_seed("fp16");
    for (size_t i = 0; i < LENGTHS; i++) {
        for (size_t s = 0; s < sets; s++) {
            check_fp16(list[s], data_length(i), i % 16, data_hostile);
            check_fp16(list[s], data_length(i), i % 16, near_half);
        }
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("cast");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, to_bf16_is_nearest_even);
    tcase_add_test(t, from_bf16_is_exact);
    tcase_add_test(t, fp16_is_nearest_even);
    suite_add_tcase(s, t);
    return run_suite(s);
}
