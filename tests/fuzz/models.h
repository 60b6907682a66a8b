/* The model that the targets' trainers register. */
#ifndef ZD_FUZZ_MODELS_H
#define ZD_FUZZ_MODELS_H

#include "zerod.pb-c.h"

enum { MODELS_UNITS = 3 };

/* Three small units, the middle one may be absent; a plan to train and one to evaluate. Bit 3 of
 * |shape|: two micro-batches. Static; the caller may change it until the next call. */
Zerod__V1__Model *models_small(unsigned shape);

#endif
