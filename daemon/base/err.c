#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

int err_set(struct err *e, enum status code, const char *fmt, ...) {
    if (e) {
        va_list args;
        va_start(args, fmt);
        e->code = (int)code;
        (void)vsnprintf(e->text, sizeof e->text, fmt, args);
        va_end(args);
    }
    return -(int)code;
}

const char *status_name(int code) {
    static const char *const names[] = {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    };
    if (code < 0 || code >= (int)(sizeof names / sizeof names[0])) {
        return "UNKNOWN";
    }
    return names[code];
}
