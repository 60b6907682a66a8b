/* Status codes and error texts.
 *
 * One enum from end to end: the gRPC status codes are what a function returns (negated), what an
 * answer carries and what zerod.h shows its user. A function that a person may have to understand
 * takes a `struct err *` last; the first function that knows the cause fills it, callers pass it
 * on.
 */
#ifndef ZD_BASE_ERR_H
#define ZD_BASE_ERR_H

enum status {
    ST_OK = 0,
    ST_CANCELLED = 1,
    ST_UNKNOWN = 2,
    ST_INVALID_ARGUMENT = 3,
    ST_DEADLINE_EXCEEDED = 4,
    ST_NOT_FOUND = 5,
    ST_ALREADY_EXISTS = 6,
    ST_PERMISSION_DENIED = 7,
    ST_RESOURCE_EXHAUSTED = 8,
    ST_FAILED_PRECONDITION = 9,
    ST_ABORTED = 10,
    ST_OUT_OF_RANGE = 11,
    ST_UNIMPLEMENTED = 12,
    ST_INTERNAL = 13,
    ST_UNAVAILABLE = 14,
    ST_DATA_LOSS = 15,
    ST_UNAUTHENTICATED = 16,
};

enum { ERR_TEXT = 320 }; /* bytes with the final NUL; longer texts are cut */

struct err {
    int code; /* enum status, not negated */
    char text[ERR_TEXT];
};

/* Fills |e| (may be NULL) and returns -code, so that `return err_set(e, ...)` reads well. */
int err_set(struct err *e, enum status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number that is none. Static storage. */
const char *status_name(int code);

#endif
