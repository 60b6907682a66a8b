#include "talk.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "screen.h"

struct line {
    struct line *next;
    const void *owner;
    uint64_t due; /* ms, the loop's clock */
    int fd;
    size_t n;
    char text[];
};

struct talk {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct line *first, **end;
    bool silent, paused, quarantine;
};

struct talk *talk_new(uv_loop_t *loop) {
    struct talk *t = mem_zeroed(1, sizeof *t);
    t->loop = loop;
    t->end = &t->first;
    (void)uv_timer_init(loop, &t->timer);
    t->timer.data = t;
    return t;
}

static void closed(uv_handle_t *handle) {
    free(handle->data);
}

/* Prints |owner|'s lines; the others stay, or are dropped. */
static void sift(struct talk *t, const void *owner, bool drop_others) {
    struct line **at = &t->first;
    while (*at) {
        struct line *l = *at;
        bool print = l->owner == owner;
        if (!print && !drop_others) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        if (print) {
            screen_write(l->fd, l->text, l->n);
        }
        free(l);
    }
    t->end = at;
}

void talk_close(struct talk *t) {
    if (t->quarantine) {
        sift(t, NULL, true);
    }
    talk_flush(t);
    t->silent = true;
    uv_close((uv_handle_t *)&t->timer, closed);
}

/* Prints and forgets the first line. */
static void print_first(struct talk *t) {
    struct line *l = t->first;
    t->first = l->next;
    if (!t->first) {
        t->end = &t->first;
    }
    screen_write(l->fd, l->text, l->n);
    free(l);
}

static void on_due(uv_timer_t *timer) {
    struct talk *t = timer->data;
    while (t->first && t->first->due <= uv_now(t->loop)) {
        print_first(t);
    }
    if (t->first) {
        (void)uv_timer_start(timer, on_due, t->first->due - uv_now(t->loop), 0);
    }
}

static void hold(struct talk *t, const void *owner, int fd, const char *prefix, const char *text,
                 size_t n) {
    if (t->silent) {
        return;
    }
    size_t before = strlen(prefix);
    struct line *l = mem_zeroed(1, sizeof *l + before + n + 1);
    l->owner = owner;
    l->fd = fd;
    l->due = uv_now(t->loop) + TALK_DELAY_MS;
    l->n = before + n + 1;
    memcpy(l->text, prefix, before);
    memcpy(l->text + before, text, n);
    l->text[before + n] = '\n';
    *t->end = l;
    t->end = &l->next;
    if (!t->paused && !t->quarantine && !uv_is_active((uv_handle_t *)&t->timer)) {
        (void)uv_timer_start(&t->timer, on_due, TALK_DELAY_MS, 0);
    }
}

void talk_hear(struct talk *t, struct speaker *s, const char *bytes, size_t n) {
    if (t->silent) {
        return;
    }
    if (s->as_it_comes) {
        screen_write(s->fd, bytes, n);
        return;
    }
    buf_append(&s->unfinished, bytes, n);
    for (;;) {
        const char *text = (const char *)buf_bytes(&s->unfinished);
        size_t left = buf_unread(&s->unfinished);
        const char *newline = left ? memchr(text, '\n', left) : NULL;
        if (!newline && left < TALK_LINE_MAX) {
            return;
        }
        size_t length = newline ? (size_t)(newline - text) : TALK_LINE_MAX;
        hold(t, s->owner, s->fd, s->prefix, text, length);
        buf_consume(&s->unfinished, length + (newline ? 1 : 0));
    }
}

void talk_end(struct talk *t, struct speaker *s) {
    if (buf_unread(&s->unfinished)) {
        hold(t, s->owner, s->fd, s->prefix, (const char *)buf_bytes(&s->unfinished),
             buf_unread(&s->unfinished));
    }
    buf_free(&s->unfinished);
}

void talk_say(struct talk *t, const char *fmt, ...) {
    char text[1024];
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    hold(t, t, 2, "zerorun: ", text, strlen(text));
}

void talk_flush(struct talk *t) {
    while (t->first) {
        print_first(t);
    }
    (void)uv_timer_stop(&t->timer);
    t->paused = false;
}

void talk_pause(struct talk *t) {
    (void)uv_timer_stop(&t->timer);
    t->paused = true;
}

size_t talk_place(const struct talk *t, const void *owner) {
    size_t place = 0;
    for (const struct line *l = t->first; l; l = l->next, place++) {
        if (l->owner == owner) {
            return place;
        }
    }
    return SIZE_MAX;
}

void talk_first_cause(struct talk *t, const void *owner) {
    sift(t, owner, true);
    (void)uv_timer_stop(&t->timer);
    t->silent = true;
}

void talk_quarantine(struct talk *t) {
    talk_flush(t);
    t->quarantine = true;
}

void talk_release(struct talk *t, const void *owner) {
    sift(t, owner, false);
}

void talk_silence(struct talk *t) {
    talk_flush(t);
    t->silent = true;
}
