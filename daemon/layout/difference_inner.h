/* What the files of model_difference share. */
#ifndef ZD_LAYOUT_DIFFERENCE_INNER_H
#define ZD_LAYOUT_DIFFERENCE_INNER_H

#include "layout/model_inner.h"

/* Two models and who registered them. */
struct pair {
    const struct model *a, *b;
    unsigned rank_a, rank_b;
    struct err *e;
};

/* FAILED_PRECONDITION "...: <what>: <one> on rank 0, <other> on rank 1". The others: the same when
 * the two differ, else 0. */
int differ(const struct pair *p, const char *what, const char *one, const char *other);
int compare_counts(const struct pair *p, const char *what, uint64_t a, uint64_t b);
int compare_reals(const struct pair *p, const char *what, double a, double b);
int compare_names(const struct pair *p, const char *what, const char *a, const char *b);
int compare_flags(const struct pair *p, const char *what, bool a, bool b);

/* One tensor, |i| in both models; its unit and position are |unit| and |at|. */
int compare_tensors(const struct pair *p, size_t i, const char *unit, size_t at);
/* All that is not about units: optimizer, dtypes, strategy, micro-batches, loss scaling. */
int compare_numbers(const struct pair *p);

#endif
