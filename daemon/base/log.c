#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 32, LINE = 1024 };

static char program[NAME_MAX_BYTES] = "zerod";

void log_name(const char *name) {
    (void)snprintf(program, sizeof program, "%s", name);
}

static void write_line(const char *level, const char *fmt, va_list args) {
    char line[LINE];
    struct timespec now;
    struct tm day;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &day);
    int n = snprintf(line, sizeof line, "%s %02d:%02d:%02d.%03ld %s", program, day.tm_hour,
                     day.tm_min, day.tm_sec, now.tv_nsec / 1000000, level);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, args);
    size_t length = (size_t)n + (size_t)(m < 0 ? 0 : m);
    if (length > sizeof line - 2) {
        length = sizeof line - 2;
    }
    line[length++] = '\n';
    (void)!write(STDERR_FILENO, line, length); /* a log that cannot be written has no other place */
}

void log_info(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    write_line("", fmt, args);
    va_end(args);
}

void log_warn(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    write_line("warning: ", fmt, args);
    va_end(args);
}

void log_error(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    write_line("error: ", fmt, args);
    va_end(args);
}
