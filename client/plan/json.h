/* The JSON of model files, trusting nothing. */
#ifndef ZD_PLAN_JSON_H
#define ZD_PLAN_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    JSON_CONFIG_MAX = 1 << 20,           /* bytes of a config.json */
    JSON_HEADER_MAX = 100 * 1000 * 1000, /* of a safetensors header or an index */
    JSON_DEPTH = 32,                     /* objects and lists in each other */
};

/* One JSON object and nothing else, |bytes| long; |text| has a NUL after them. The caller deletes
 * it. INVALID_ARGUMENT: with the byte. */
int json_parse(const char *text, size_t bytes, cJSON **object, struct err *e);

/* A whole number, exact in a double: 0 to 2^53. False: it is none. */
bool json_whole(const cJSON *item, uint64_t *n);

/* |object|'s number |key|, |min| to |max|. Absent or null: |standard|; UINT64_MAX: it is needed.
 * INVALID_ARGUMENT naming key and limits. */
int json_count(const cJSON *object, const char *key, uint64_t standard, uint64_t min, uint64_t max,
               uint64_t *n, struct err *e);
/* A truth value; absent or null: |standard|. */
int json_flag(const cJSON *object, const char *key, bool standard, bool *flag, struct err *e);

#endif
