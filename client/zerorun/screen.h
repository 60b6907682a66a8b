/* What people see: lines, and on a terminal one progress line below them that is redrawn in place.
 * The progress line and zerorun's own lines go to standard error, so that standard output is the
 * trainers'. One per program. */
#ifndef ZD_ZERORUN_SCREEN_H
#define ZD_ZERORUN_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

void screen_init(void);
bool screen_is_terminal(void); /* standard error is one: screen_progress shows something */

/* |n| bytes to |fd| (1 or 2) as they are. The progress line comes back after the next newline. */
void screen_write(int fd, const char *bytes, size_t n);

/* "zerorun: " and a line. */
void screen_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Replaces the progress line, cut to the terminal's width; "" takes it away. */
void screen_progress(const char *text);
/* Leaves the progress line standing as an ordinary line. */
void screen_keep_progress(void);

#endif
