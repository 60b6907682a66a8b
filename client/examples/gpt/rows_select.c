/* The table of rows.h by name. */
#include "rows.h"

#include <string.h>

extern const struct rows rows_plain;
#ifdef GPT_ROWS_X86
extern const struct rows rows_avx2, rows_avx512;
#endif

const struct rows *rows_select(const char *isa) {
    if (strcmp(isa, "plain") == 0) {
        return &rows_plain;
    }
#ifdef GPT_ROWS_X86
    if (strcmp(isa, "avx2") == 0) {
        return &rows_avx2;
    }
    if (strcmp(isa, "avx512") == 0) {
        return &rows_avx512;
    }
#endif
    return NULL;
}
