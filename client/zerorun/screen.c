#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE = 512 };

static struct {
    bool terminal, output_too; /* standard error, standard output is a terminal */
    bool drawn;                /* the progress line stands there */
    bool middle;               /* the cursor is inside an unfinished line of somebody's */
    char text[LINE];
} screen;

void screen_init(void) {
    screen.terminal = isatty(STDERR_FILENO) == 1;
    screen.output_too = isatty(STDOUT_FILENO) == 1;
}

bool screen_is_terminal(void) {
    return screen.terminal;
}

/* A reader that went away is no reason to end the job. */
static void put(int fd, const char *bytes, size_t n) {
    while (n) {
        ssize_t done = write(fd, bytes, n);
        if (done > 0) {
            bytes += done;
            n -= (size_t)done;
        } else if (errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            (void)poll(&wait, 1, -1);
        } else if (errno != EINTR) {
            return;
        }
    }
}

static void erase(void) {
    if (screen.drawn) {
        put(STDERR_FILENO, "\r\033[K", 4);
        screen.drawn = false;
    }
}

static void draw(void) {
    if (!screen.terminal || screen.middle || !*screen.text) {
        return;
    }
    struct winsize size = {.ws_col = 0};
    (void)ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    size_t width = size.ws_col > 1 ? size.ws_col - 1U : 79U;
    size_t n = strlen(screen.text);
    put(STDERR_FILENO, "\r\033[K", 4);
    put(STDERR_FILENO, screen.text, n < width ? n : width);
    screen.drawn = true;
}

void screen_write(int fd, const char *bytes, size_t n) {
    if (!n) {
        return;
    }
    bool shared = fd == STDERR_FILENO || screen.output_too;
    if (shared) {
        erase();
        screen.middle = bytes[n - 1] != '\n';
    }
    put(fd, bytes, n);
    if (shared) {
        draw();
    }
}

void screen_say(const char *fmt, ...) {
    char line[1024] = "zerorun: ";
    size_t start = strlen(line);
    va_list list;
    va_start(list, fmt);
    int n = vsnprintf(line + start, sizeof line - start - 1, fmt, list);
    va_end(list);
    size_t length = n < 0 ? start : start + (size_t)n;
    length = length < sizeof line - 1 ? length : sizeof line - 2;
    line[length++] = '\n';
    screen_write(STDERR_FILENO, line, length);
}

void screen_progress(const char *text) {
    (void)snprintf(screen.text, sizeof screen.text, "%s", text);
    if (*text) {
        draw();
    } else {
        erase();
    }
}

void screen_keep_progress(void) {
    if (screen.drawn) {
        put(STDERR_FILENO, "\n", 1);
    }
    screen.drawn = false;
    *screen.text = 0;
}
