/* The decision of a step from its votes (decide.h). */
#include "job/decide.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "job/faults.h"

static int differs(struct err *e, const struct vote *v, size_t rank, const char *what, double here,
                   double first) {
    return err_set(e, ST_FAILED_PRECONDITION,
                   "step %llu: rank %zu gave %s %.17g, rank 0 gave %.17g",
                   (unsigned long long)v->fence.step, rank, what, here, first);
}

/* Nothing is computed from numbers that the ranks do not agree on. */
static int check_scalars(const struct vote *votes, size_t ranks, struct err *e) {
    const struct scalars *a = &votes[0].scalars;
    if (!isfinite(a->learning_rate) || !isfinite(a->clip) || a->clip < 0) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "step %llu: rank 0 gave learning rate %g and clip %g: they must be finite "
                       "and the clip not negative",
                       (unsigned long long)votes[0].fence.step, a->learning_rate, a->clip);
    }
    for (size_t r = 1; r < ranks; r++) {
        const struct scalars *b = &votes[r].scalars;
        if (!(a->learning_rate == b->learning_rate)) {
            return differs(e, &votes[r], r, "learning rate", b->learning_rate, a->learning_rate);
        }
        if (!(a->clip == b->clip)) {
            return differs(e, &votes[r], r, "clip", b->clip, a->clip);
        }
        if (a->micro_batches != b->micro_batches) {
            return differs(e, &votes[r], r, "micro-batches", b->micro_batches, a->micro_batches);
        }
        if (votes[0].user_count != votes[r].user_count) {
            return differs(e, &votes[r], r, "a number of user values", votes[r].user_count,
                           votes[0].user_count);
        }
    }
    return 0;
}

/* The first unit whose lists differ; the count of the shorter list when none does. */
static size_t first_difference(const struct vote *a, const struct vote *b) {
    size_t u = 0;
    while (u < a->checksum_count && u < b->checksum_count && a->checksums[u] == b->checksums[u]) {
        u++;
    }
    return u;
}

/* "rank 2", or "rank 2 and 1 more" from the first one that is not like rank 0. */
static void name_others(const struct vote *votes, size_t ranks, size_t first, char *to,
                        size_t room) {
    size_t more = 0;
    for (size_t r = first + 1; r < ranks; r++) {
        more += votes[r].checksum != votes[0].checksum;
    }
    if (more) {
        (void)snprintf(to, room, "rank %zu and %zu more", first, more);
    } else {
        (void)snprintf(to, room, "rank %zu", first);
    }
}

/* The unit is named where the lists are known: they come with votes, but not with records. What is
 * decided must not depend on them, or a successor would compute another outcome. */
static int initial_values_differ(const struct decide_options *o, const struct vote *votes,
                                 size_t ranks, size_t rank, struct err *e) {
    char unit[MODEL_NAME + 32] = "", others[64];
    const size_t u = first_difference(&votes[0], &votes[rank]);
    name_others(votes, ranks, rank, others, sizeof others);
    if (u < votes[0].checksum_count && u < votes[rank].checksum_count) {
        if (u < o->unit_count) {
            (void)snprintf(unit, sizeof unit, " of unit \"%s\"", o->units[u].name);
        } else {
            (void)snprintf(unit, sizeof unit, " of unit %zu", u);
        }
    }
    return err_set(e, ST_FAILED_PRECONDITION, "the initial values%s differ between rank 0 and %s",
                   unit, others);
}

static int check_initial_values(const struct decide_options *o, const struct vote *votes,
                                size_t ranks, struct err *e) {
    for (size_t r = 0; r < ranks; r++) {
        if (votes[r].non_finite) {
            return err_set(e, ST_FAILED_PRECONDITION,
                           "the initial values of rank %zu are not all finite", r);
        }
        if (votes[r].checksum != votes[0].checksum) {
            return initial_values_differ(o, votes, ranks, r, e);
        }
    }
    return 0;
}

struct sums {
    double squares, weights, user[JOB_USER];
    bool non_finite;
};

static struct sums add_up(const struct vote *votes, size_t ranks) {
    struct sums s = {0};
    for (size_t r = 0; r < ranks; r++) {
        const struct vote *v = &votes[r];
        s.squares += v->sum_squares;
        s.weights += v->weight == 0 ? 1 : v->weight;
        s.non_finite |= v->non_finite;
        for (uint32_t i = 0; i < votes[0].user_count; i++) {
            s.user[i] += v->user[i];
        }
    }
    s.non_finite |= !isfinite(s.squares);
    return s;
}

/* What the ranks' sums are divided by: their weights, or what is registered in their stead, and the
 * scale that their losses were multiplied with. False, with |e|: it divides nothing. */
static bool find_divisor(const struct decide_options *o, const struct decision *d,
                         const struct sums *s, double *divisor, struct err *e) {
    const double by = o->gradient_divisor > 0 ? o->gradient_divisor : s->weights;
    *divisor = by * d->scale.scale;
    if (by > 0 && *divisor > 0 && isfinite(*divisor)) {
        return true;
    }
    (void)err_set(e, ST_FAILED_PRECONDITION,
                  "step %llu: the weights add up to %g, the gradient divisor is %g, the loss scale "
                  "%g: that divides no sum",
                  (unsigned long long)d->fence.step, s->weights, o->gradient_divisor,
                  d->scale.scale);
    return false;
}

/* Too many in a row, or a scale that can fall no further: the try is void, and with it the change
 * of scale. */
static int may_skip(const struct decide_options *o, struct decision *d, struct err *e) {
    const unsigned long long step = d->fence.step;
    if (d->skips_in_row > o->max_skips_in_row) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "step %llu would be skipped as the %llu before it (gradients that are not "
                       "finite), the limit is %llu in a row; the state is that of the last commit",
                       step, (unsigned long long)(d->skips_in_row - 1),
                       (unsigned long long)o->max_skips_in_row);
    }
    if (!scaling_next(&o->scaling, true, &d->scale)) {
        return err_set(e, ST_FAILED_PRECONDITION,
                       "step %llu: the gradients are not finite, and the loss scale %g is at its "
                       "floor %g; the state is that of the last commit",
                       step, d->scale.scale, o->scaling.floor);
    }
    return 0;
}

/* A step whose gradients are no numbers changes nothing but the cursors and the loss scale. */
static int skip(const struct decide_options *o, struct decision *d, const struct sums *s,
                double divisor, struct err *e) {
    d->outcome = OUTCOME_SKIP;
    d->skips_in_row++;
    d->scalars = (struct step_scalars){.grad_norm = sqrt(s->squares) / divisor};
    return may_skip(o, d, e);
}

/* The scale in |d| is still that of this step, which its gradients were made with. */
static int train(const struct decide_options *o, const struct vote *votes, size_t ranks,
                 struct decision *d, struct err *e) {
    const struct sums s = add_up(votes, ranks);
    double divisor;
    memcpy(d->user, s.user, sizeof d->user);
    if (!find_divisor(o, d, &s, &divisor, e)) {
        return -ST_FAILED_PRECONDITION;
    }
    if (s.non_finite) {
        return skip(o, d, &s, divisor, e);
    }
    d->outcome = OUTCOME_COMMIT;
    d->t++;
    d->skips_in_row = 0;
    d->scalars = step_scalars(&o->optimizer, s.squares, divisor, votes[0].scalars.clip,
                              votes[0].scalars.learning_rate, d->t);
    (void)scaling_next(&o->scaling, false, &d->scale);
    return 0;
}

/* Step 0 has values and no gradients. */
static int load(const struct decide_options *o, const struct vote *votes, size_t ranks,
                struct decision *d, struct err *e) {
    const struct sums s = add_up(votes, ranks);
    memcpy(d->user, s.user, sizeof d->user);
    d->outcome = OUTCOME_COMMIT;
    return check_initial_values(o, votes, ranks, e);
}

struct decision decide(const struct decide_options *o, const struct vote *votes, size_t ranks,
                       const struct decision *before, struct err *e) {
    assert(ranks > 0 && votes[0].user_count <= JOB_USER);
    struct decision d = {
        .fence = votes[0].fence,
        .t = before ? before->t : 0,
        .skips_in_row = before ? before->skips_in_row : 0,
        .learning_rate = votes[0].scalars.learning_rate,
        .scale = before ? before->scale : scaling_start(&o->scaling),
        .user_count = votes[0].user_count,
        .shared_cursor_bytes = votes[0].shared_cursor_bytes,
        .shared_cursor = votes[0].shared_cursor,
    };
    int code = RULE(scalars_decide) ? check_scalars(votes, ranks, e) : 0;
    if (code == 0) {
        code = d.fence.step == 0 ? load(o, votes, ranks, &d, e) : train(o, votes, ranks, &d, e);
    }
    if (code) {
        d.outcome = OUTCOME_ABORT;
    }
    return d;
}
