#include "tests/base/suite.h"
#include "tests/kernels/data.h"

/* One element by the words of design §14, every rounding in a place of its own. */
static void reference(const struct adamw *a, float g, float p, float m, float v, float out[3]) {
    volatile float scaled = g * a->multiplier;
    volatile float gap = scaled - m;
    volatile float m_new = fmaf(a->one_minus_b1, gap, m);
    volatile float square = scaled * scaled;
    volatile float share = a->one_minus_b2 * square;
    volatile float v_new = fmaf(a->beta2, v, share);
    volatile float root = sqrtf(v_new);
    volatile float den = fmaf(root, a->inv_sqrt_c2, a->epsilon);
    volatile float decayed = fmaf(a->decay, p, p);
    volatile float ratio = m_new / den;
    volatile float p_new = fmaf(a->step_size, ratio, decayed);
    out[0] = isnan(p_new) ? NAN : p_new;
    out[1] = isnan(m_new) ? NAN : m_new;
    out[2] = isnan(v_new) ? NAN : v_new;
}

static const struct adamw numbers = {
    .multiplier = 0.37f,
    .beta2 = 0.95f,
    .one_minus_b1 = 0.1f,
    .one_minus_b2 = 0.05f,
    .epsilon = 1e-8f,
    .decay = -1e-3f * 0.1f,
    .step_size = -1e-3f / 0.1f,
    .inv_sqrt_c2 = 4.4721360f,
};

enum { G, P, M, V, INPUTS };
enum { P_OUT, M_OUT, V_OUT, OUTPUTS };

/* Which input an output shares its memory with; INPUTS: none. */
static const int sharing[][OUTPUTS] = {
    {INPUTS, INPUTS, INPUTS}, {P, M, V},      {P, INPUTS, INPUTS},
    {INPUTS, M, V},           {G, M, INPUTS}, {V, P, M}, /* nobody does, but the header allows it */
};

static void check_case(const struct kernels *k, size_t n, size_t shift, const int share[OUTPUTS],
                       float (*source)(void)) {
    struct array in[INPUTS], out[OUTPUTS], expected[OUTPUTS];
    float *to[OUTPUTS];
    for (int i = 0; i < INPUTS; i++) {
        in[i] = array_new(n, (shift + (size_t)i) % 16);
        fill(in[i].at, n + 1, source);
    }
    for (int i = 0; i < OUTPUTS; i++) {
        out[i] = array_new(n, (shift * 3 + (size_t)i) % 16);
        expected[i] = array_new(n, 0);
        to[i] = share[i] == INPUTS ? out[i].at : in[share[i]].at;
        to[i][n] = 12345; /* must stay */
    }
    for (size_t i = 0; i < n; i++) {
        float one[OUTPUTS];
        reference(&numbers, in[G].at[i], in[P].at[i], in[M].at[i], in[V].at[i], one);
        for (int j = 0; j < OUTPUTS; j++) {
            expected[j].at[i] = one[j];
        }
    }
    k->adamw(&numbers, n, in[G].at, in[P].at, in[M].at, in[V].at, to[0], to[1], to[2]);
    for (int i = 0; i < OUTPUTS; i++) {
        static const char *const names[] = {"p", "m", "v"};
        same_bits(k->isa, names[i], n, to[i], expected[i].at);
        ck_assert_msg(to[i][n] == 12345, "%s wrote behind %s", k->isa, names[i]);
        free(out[i].base);
        free(expected[i].base);
    }
    for (int i = 0; i < INPUTS; i++) {
        free(in[i].base);
    }
}

START_TEST(equals_reference_everywhere) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    data_seed("adamw");
    for (size_t i = 0; i < LENGTHS; i++) {
        for (size_t c = 0; c < sizeof sharing / sizeof sharing[0]; c++) {
            for (size_t s = 0; s < sets; s++) {
                check_case(list[s], data_length(i), i % 16, sharing[c], data_hostile);
                check_case(list[s], data_length(i), c, sharing[c], data_plain);
            }
        }
    }
}
END_TEST

/* Against the textbook in double: ten steps of one element, relative to the size of the update. */
START_TEST(is_adamw) {
    const struct kernels *list[3];
    size_t sets = data_sets(list);
    double b1 = 0.9, b2 = 0.999, lr = 1e-2, wd = 0.1, eps = 1e-8;
    for (size_t s = 0; s < sets; s++) {
        double p = 0.5, m = 0, v = 0;
        float fp = 0.5f, fm = 0, fv = 0;
        for (int t = 1; t <= 10; t++) {
            double g = sin(t), c1 = 1 - pow(b1, t), c2 = 1 - pow(b2, t);
            struct adamw a = {
                1,          (float)b2,         (float)(1 - b1),   (float)(1 - b2),
                (float)eps, (float)(-lr * wd), (float)(-lr / c1), (float)(1 / sqrt(c2))};
            float fg = (float)g;
            m = b1 * m + (1 - b1) * g;
            v = b2 * v + (1 - b2) * g * g;
            p -= lr * wd * p;
            p -= lr * (m / c1) / (sqrt(v / c2) + eps);
            list[s]->adamw(&a, 1, &fg, &fp, &fm, &fv, &fp, &fm, &fv);
            ck_assert_double_eq_tol((double)fp, p, 1e-6);
        }
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("adamw");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, equals_reference_everywhere);
    tcase_add_test(t, is_adamw);
    suite_add_tcase(s, t);
    return run_suite(s);
}
