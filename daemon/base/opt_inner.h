/* What opt.c and opt_help.c share: how limits and sizes read. */
#ifndef ZD_BASE_OPT_INNER_H
#define ZD_BASE_OPT_INNER_H

#include "base/opt.h"

enum { OPT_LIMITS = 128 };

/* "1 to 64", "at least 1 MiB", "at most 2.5", each with the unit; "" without limits. */
const char *opt_limits(const struct opt *o, char text[static OPT_LIMITS]);

#endif
