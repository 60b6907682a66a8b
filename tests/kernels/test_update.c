/* Every optimizer's update against the words of kernels.h, bit for bit: all instruction sets, all
 * lengths, outputs that are inputs, states that are NULL, hostile numbers. */
#include "tests/base/suite.h"
#include "tests/kernels/data.h"

enum { G, P, S1, S2, INPUTS };
enum { P_OUT, S1_OUT, S2_OUT, OUTPUTS };

/* ---- one element, every rounding in a place of its own ---- */

static float gradient(const struct update_numbers *u, float g) {
    volatile float scaled = g * u->multiplier;
    if (u->clip_value > 0 && scaled > u->clip_value) {
        scaled = u->clip_value;
    }
    if (u->clip_value > 0 && scaled < -u->clip_value) {
        scaled = -u->clip_value;
    }
    return scaled;
}

static void adam(const struct update_numbers *u, float g, bool decoupled, const float in[INPUTS],
                 float out[OUTPUTS]) {
    volatile float gap = g - in[S1];
    volatile float m = fmaf(u->one_minus_b1, gap, in[S1]);
    volatile float square = g * g;
    volatile float share = u->one_minus_b2 * square;
    volatile float v = fmaf(u->beta2, in[S2], share);
    volatile float root = sqrtf(v);
    volatile float den = fmaf(root, u->inv_sqrt_c2, u->epsilon);
    volatile float decayed = decoupled ? fmaf(u->decay, in[P], in[P]) : in[P];
    volatile float ratio = m / den;
    out[P_OUT] = fmaf(u->step_size, ratio, decayed);
    out[S1_OUT] = m;
    out[S2_OUT] = v;
}

static void sgd(const struct update_numbers *u, float g, const float in[INPUTS],
                float out[OUTPUTS]) {
    volatile float d = g;
    if (u->momentum > 0) {
        out[S1_OUT] = u->first ? g : fmaf(u->momentum, in[S1], g);
        d = u->nesterov ? fmaf(u->momentum, out[S1_OUT], g) : out[S1_OUT];
    }
    out[P_OUT] = fmaf(u->step_size, d, in[P]);
}

static void lion(const struct update_numbers *u, float g, const float in[INPUTS],
                 float out[OUTPUTS]) {
    volatile float gap = g - in[S1];
    volatile float c = fmaf(u->one_minus_b1, gap, in[S1]);
    volatile float sign = isnan(c) ? NAN : (float)((c > 0) - (c < 0));
    volatile float decayed = fmaf(u->decay, in[P], in[P]);
    volatile float move = u->step_size * sign;
    out[P_OUT] = decayed + move;
    out[S1_OUT] = fmaf(u->one_minus_b2, gap, in[S1]);
}

static void reference(enum optimizer kind, const struct update_numbers *u, const float in[INPUTS],
                      float out[OUTPUTS]) {
    const float g = gradient(u, in[G]);
    volatile float with_l2 = fmaf(u->l2, in[P], g);
    switch (kind) {
    case OPTIMIZER_ADAMW:
        adam(u, g, true, in, out);
        break;
    case OPTIMIZER_ADAM:
        adam(u, with_l2, false, in, out);
        break;
    case OPTIMIZER_SGD:
        sgd(u, with_l2, in, out);
        break;
    default:
        lion(u, g, in, out);
    }
    for (int i = 0; i < OUTPUTS; i++) {
        out[i] = isnan(out[i]) ? NAN : out[i];
    }
}

/* ---- what is tried ---- */

#define NUMBERS                                                                                    \
    .multiplier = 0.37f, .beta1 = 0.9f, .beta2 = 0.95f, .one_minus_b1 = 0.1f,                      \
    .one_minus_b2 = 0.05f, .epsilon = 1e-8f, .decay = -1e-3f * 0.1f, .l2 = 0.03f,                  \
    .step_size = -1e-3f / 0.1f, .inv_sqrt_c2 = 4.4721360f

static const struct variation {
    const char *name;
    enum optimizer kind;
    int states;
    struct update_numbers u;
} variations[] = {
    {"adamw", OPTIMIZER_ADAMW, 2, {NUMBERS}},
    {"adamw clamped", OPTIMIZER_ADAMW, 2, {NUMBERS, .clip_value = 0.25f}},
    {"adam", OPTIMIZER_ADAM, 2, {NUMBERS}},
    {"adam clamped", OPTIMIZER_ADAM, 2, {NUMBERS, .clip_value = 0.25f}},
    {"sgd", OPTIMIZER_SGD, 0, {NUMBERS}},
    {"sgd clamped", OPTIMIZER_SGD, 0, {NUMBERS, .clip_value = 0.25f, .first = true}},
    {"sgd momentum", OPTIMIZER_SGD, 1, {NUMBERS, .momentum = 0.9f}},
    {"sgd momentum clamped", OPTIMIZER_SGD, 1, {NUMBERS, .momentum = 0.9f, .clip_value = 0.25f}},
    {"sgd momentum first", OPTIMIZER_SGD, 1, {NUMBERS, .momentum = 0.9f, .first = true}},
    {"sgd nesterov", OPTIMIZER_SGD, 1, {NUMBERS, .momentum = 0.9f, .nesterov = true}},
    {"sgd nesterov first",
     OPTIMIZER_SGD,
     1,
     {NUMBERS, .momentum = 0.9f, .nesterov = true, .first = true}},
    {"lion", OPTIMIZER_LION, 1, {NUMBERS}},
    {"lion clamped", OPTIMIZER_LION, 1, {NUMBERS, .clip_value = 0.25f}},
};
enum { VARIATIONS = sizeof variations / sizeof variations[0] };

/* Which input an output shares its memory with; INPUTS: none. */
static const int sharing[][OUTPUTS] = {
    {INPUTS, INPUTS, INPUTS}, {P, S1, S2},     {P, INPUTS, INPUTS},
    {INPUTS, S1, S2},         {G, S1, INPUTS}, {S2, P, S1}, /* nobody does, but it is allowed */
};

struct arrays {
    struct array in[INPUTS], out[OUTPUTS], expected[OUTPUTS];
    float *to[OUTPUTS];
};

static void arrays_new(struct arrays *a, size_t n, size_t shift, const int share[OUTPUTS],
                       float (*source)(void)) {
    for (size_t i = 0; i < INPUTS; i++) {
        a->in[i] = array_new(n, (shift + i) % 16);
        fill(a->in[i].at, n + 1, source);
    }
    for (size_t i = 0; i < OUTPUTS; i++) {
        a->out[i] = array_new(n, (shift * 3 + i) % 16);
        a->expected[i] = array_new(n, 0);
        a->to[i] = share[i] == INPUTS ? a->out[i].at : a->in[share[i]].at;
        a->to[i][n] = 12345; /* must stay */
    }
}

static void arrays_del(struct arrays *a) {
    for (int i = 0; i < INPUTS; i++) {
        free(a->in[i].base);
    }
    for (int i = 0; i < OUTPUTS; i++) {
        free(a->out[i].base);
        free(a->expected[i].base);
    }
}

static void expect(struct arrays *a, size_t n, const struct variation *v) {
    for (size_t i = 0; i < n; i++) {
        const float in[INPUTS] = {a->in[G].at[i], a->in[P].at[i], a->in[S1].at[i], a->in[S2].at[i]};
        float out[OUTPUTS] = {0};
        reference(v->kind, &v->u, in, out);
        for (int j = 0; j < OUTPUTS; j++) {
            a->expected[j].at[i] = out[j];
        }
    }
}

static void check_case(const struct kernels *k, const struct variation *v, size_t n, size_t shift,
                       const int share[OUTPUTS], float (*source)(void)) {
    struct arrays a;
    arrays_new(&a, n, shift, share, source);
    expect(&a, n, v);
    const bool s1 = v->states > 0, s2 = v->states > 1;
    k->update[v->kind](&v->u, n, a.in[G].at, a.in[P].at, s1 ? a.in[S1].at : NULL,
                       s2 ? a.in[S2].at : NULL, a.to[P_OUT], s1 ? a.to[S1_OUT] : NULL,
                       s2 ? a.to[S2_OUT] : NULL);
    for (int i = 0; i <= v->states; i++) {
        static const char *const outputs[] = {"p", "s1", "s2"};
        char what[64];
        (void)snprintf(what, sizeof what, "%s %s", v->name, outputs[i]);
        same_bits(k->isa, what, n, a.to[i], a.expected[i].at);
        ck_assert_msg(a.to[i][n] == 12345, "%s wrote behind %s", k->isa, what);
    }
    arrays_del(&a);
}

/* A state that is not touched may be shared with anything, so sharings that need it are left out.
 */
static bool fits(const struct variation *v, const int share[OUTPUTS]) {
    for (int i = 0; i <= v->states; i++) {
        if (share[i] != INPUTS && share[i] > P + v->states) {
            return false;
        }
    }
    return true;
}

START_TEST(equals_reference_everywhere) {
    const struct variation *v = &variations[_i];
    const struct kernels *list[3];
    const size_t sets = data_sets(list);
    data_seed(v->name);
    for (size_t i = 0; i < LENGTHS; i++) {
        for (size_t c = 0; c < sizeof sharing / sizeof sharing[0]; c++) {
            for (size_t s = 0; s < sets && fits(v, sharing[c]); s++) {
                check_case(list[s], v, data_length(i), i % 16, sharing[c], data_hostile);
                check_case(list[s], v, data_length(i), c, sharing[c], data_plain);
            }
        }
    }
}
END_TEST

START_TEST(lion_without_a_sign_only_decays) {
    const struct kernels *list[3];
    const size_t sets = data_sets(list);
    for (size_t s = 0; s < sets; s++) {
        const struct update_numbers u = {NUMBERS};
        float g[2] = {0, -0.0f}, p[2] = {-2, 3}, m[2] = {0, -0.0f};
        list[s]->update[OPTIMIZER_LION](&u, 2, g, p, m, NULL, p, m, NULL);
        ck_assert_float_eq(p[0], fmaf(u.decay, -2, -2));
        ck_assert_float_eq(p[1], fmaf(u.decay, 3, 3));
    }
}
END_TEST

START_TEST(none_has_no_kernel) {
    const struct kernels *list[3];
    const size_t sets = data_sets(list);
    for (size_t s = 0; s < sets; s++) {
        ck_assert(!list[s]->update[OPTIMIZER_NONE]);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("update");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, equals_reference_everywhere, 0, VARIATIONS);
    tcase_add_test(t, lion_without_a_sign_only_decays);
    tcase_add_test(t, none_has_no_kernel);
    suite_add_tcase(s, t);
    return run_suite(s);
}
