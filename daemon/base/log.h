/* Lines for people on stderr: "zerod[2] 12:03:04.567 warning: text". One write(2) a line, so lines
 * of processes that share a terminal do not mix. Lower case, "device %s" not "device=%s". */
#ifndef ZD_BASE_LOG_H
#define ZD_BASE_LOG_H

/* Sets what each line starts with, e.g. "zerod[2]"; copied. Call once at start. */
void log_name(const char *name);

void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
