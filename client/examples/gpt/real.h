/* The number type of the layers: float in the trainer, double (-DGPT_DOUBLE) in the gradient check.
 * Files that include this compile for either; one program uses one of them. */
#ifndef GPT_REAL_H
#define GPT_REAL_H

#include <cblas.h>

#ifdef GPT_DOUBLE
typedef double real;
#define REAL(x) x
#define real_gemm cblas_dgemm
#define real_sqrt sqrt
#else
typedef float real;
#define REAL(x) x##f
#define real_gemm cblas_sgemm
#define real_sqrt sqrtf
#endif

#endif
