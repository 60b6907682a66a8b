/* Whole optimizers over 100 steps, through step_scalars and update_numbers as the daemons call
 * them, against the published formulas in fp64.
 *
 * What fp32 may differ by: each step rounds a parameter of size P twice, and moves it by the
 * learning rate times a direction of size D, whose own error is some 16 roundings (multiplier,
 * state, root, division; the states' errors die away with the betas):
 * steps * 2^-24 * (2 P + 16 lr D). */
#include "kernels/scalars.h"
#include "tests/base/suite.h"
#include "tests/kernels/data.h"

enum { N = 1003, STEPS = 100, RANKS = 3 };
static const double rounding = 0x1p-24;

static const struct recipe {
    const char *name;
    struct optimizer_options o;
    double clip, decay_multiplier, lr_multiplier;
} recipes[] = {
    {"adamw", {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8}, 0, 1, 1},
    {"adamw with all",
     {.kind = OPTIMIZER_ADAMW,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .epsilon = 1e-6,
      .weight_decay = 0.1,
      .clip_value = 0.01},
     1,
     0.5,
     3},
    {"adam", {.kind = OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8}, 0, 1, 1},
    {"adam with all",
     {.kind = OPTIMIZER_ADAM,
      .beta1 = 0.8,
      .beta2 = 0.99,
      .epsilon = 1e-6,
      .weight_decay = 0.1,
      .clip_value = 0.01},
     1,
     0.5,
     3},
    {"sgd", {.kind = OPTIMIZER_SGD}, 0, 1, 1},
    {"sgd with decay", {.kind = OPTIMIZER_SGD, .weight_decay = 0.1, .clip_value = 1}, 10, 2, 0.5},
    {"sgd with momentum", {.kind = OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = 0.1}, 0, 1, 1},
    {"sgd with nesterov",
     {.kind = OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
     5,
     1,
     2},
    {"lion", {.kind = OPTIMIZER_LION, .beta1 = 0.9, .beta2 = 0.99}, 0, 1, 1},
    {"lion with all",
     {.kind = OPTIMIZER_LION,
      .beta1 = 0.95,
      .beta2 = 0.98,
      .weight_decay = 0.1,
      .clip_value = 0.01},
     1,
     0.5,
     3},
};
enum { RECIPES = sizeof recipes / sizeof recipes[0] };

/* ---- fp64 ---- */

struct state {
    double p, s1, s2;
    bool unclear;          /* a sign that rounding may have turned */
    double largest, moved; /* P and D of the head comment, of this element */
};

static double clamped(double g, double limit) {
    return limit > 0 ? fmin(fmax(g, -limit), limit) : g;
}

/* The direction to go against, times the learning rate; |g| is averaged and clipped. */
static double direction(const struct optimizer_options *o, struct state *x, double g, int t) {
    switch (o->kind) {
    case OPTIMIZER_ADAMW:
    case OPTIMIZER_ADAM:
        x->s1 = o->beta1 * x->s1 + (1 - o->beta1) * g;
        x->s2 = o->beta2 * x->s2 + (1 - o->beta2) * g * g;
        return x->s1 / (1 - pow(o->beta1, t)) / (sqrt(x->s2 / (1 - pow(o->beta2, t))) + o->epsilon);
    case OPTIMIZER_SGD:
        x->s1 = t == 1 ? g : o->momentum * x->s1 + g;
        return o->momentum == 0 ? g : o->nesterov ? g + o->momentum * x->s1 : x->s1;
    default: {
        const double c = o->beta1 * x->s1 + (1 - o->beta1) * g;
        x->unclear |= fabs(c) < 16 * rounding * (fabs(x->s1) + fabs(g));
        x->s1 = o->beta2 * x->s1 + (1 - o->beta2) * g;
        return (c > 0) - (c < 0);
    }
    }
}

static void step64(const struct recipe *r, struct state *x, double g, double lr, int t) {
    const bool decoupled = r->o.kind == OPTIMIZER_ADAMW || r->o.kind == OPTIMIZER_LION;
    const double wd = r->o.weight_decay * r->decay_multiplier, rate = lr * r->lr_multiplier;
    g = clamped(g, r->o.clip_value);
    const double d = direction(&r->o, x, decoupled ? g : g + wd * x->p, t);
    x->p -= decoupled ? rate * wd * x->p : 0;
    x->p -= rate * d;
}

/* ---- both ---- */

struct run {
    struct state exact[N];
    float p[N], s1[N], s2[N], g[N];
};

static void both(const struct kernels *k, const struct recipe *r, struct run *run, int t) {
    const double lr = 1e-2 / (1 + t % 10), divisor = RANKS * 1024.0; /* with a loss scale */
    for (size_t i = 0; i < N; i++) {
        run->g[i] = 1024 * (data_plain() + (i % 3 ? 0.0f : 0.1f));
    }
    const double squares = kernels_norm(k, N, run->g);
    const struct step_scalars s = step_scalars(&r->o, squares, divisor, r->clip, lr, (uint64_t)t);
    const struct update_numbers u =
        update_numbers(&r->o, &s, (float)r->decay_multiplier, (float)r->lr_multiplier);
    k->update[r->o.kind](&u, N, run->g, run->p, run->s1, run->s2, run->p, run->s1, run->s2);
    const double norm = sqrt(squares) / divisor;
    const double clip = r->clip > 0 ? fmin(1, r->clip / (norm + 1e-6)) : 1;
    for (size_t i = 0; i < N; i++) {
        struct state *x = &run->exact[i];
        const double before = x->p;
        step64(r, x, (double)run->g[i] / divisor * clip, lr, t);
        x->largest = fmax(x->largest, fabs(x->p));
        x->moved = fmax(x->moved, fabs(x->p - before) / (lr * r->lr_multiplier));
    }
}

static void check_run(const struct kernels *k, const struct recipe *r, const struct run *run) {
    size_t clear = 0;
    double worst = 0;
    const double rate = 1e-2 * r->lr_multiplier;
    for (size_t i = 0; i < N; i++) {
        const struct state *x = &run->exact[i];
        const double may = STEPS * rounding * (2 * x->largest + 16 * rate * x->moved);
        clear += !x->unclear;
        worst = fmax(worst, x->unclear ? 0 : fabs((double)run->p[i] - x->p) / may);
    }
    printf("%s %s: %.2f of what rounding may do\n", k->isa, r->name, worst);
    ck_assert_uint_gt(clear, N * 9 / 10);
    ck_assert_double_le(worst, 1);
    ck_assert_double_gt(worst, 0.001); /* else the test would see nothing */
}

START_TEST(follows_fp64_for_100_steps) {
    const struct recipe *r = &recipes[_i];
    const struct kernels *list[3];
    const size_t sets = data_sets(list);
    struct err e;
    ck_assert_msg(optimizer_check(&r->o, &e) == 0, "%s", e.text);
    data_seed(r->name);
    const uint64_t seed = data_state;
    for (size_t s = 0; s < sets; s++) {
        static struct run run;
        memset(&run, 0, sizeof run);
        data_state = seed;
        for (size_t i = 0; i < N; i++) {
            run.p[i] = data_plain();
            run.exact[i].p = (double)run.p[i];
        }
        for (int t = 1; t <= STEPS; t++) {
            both(list[s], r, &run, t);
        }
        check_run(list[s], r, &run);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("optimizers");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, follows_fp64_for_100_steps, 0, RECIPES);
    suite_add_tcase(s, t);
    return run_suite(s);
}
