/* See handover.h. A guest is a connection that has not shown its ticket yet; it is answered with
 * one packet and hung up on. */
#include "rpc/handover.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "rpc/access.h"
#include "rpc/listen.h"

enum { SWEEP_MS = 100 }; /* how late an expired ticket or a silent guest may be seen */
#define TICKET_NS INT64_C(30000000000)
#define SILENCE_NS INT64_C(5000000000)

struct ticket {
    uint8_t token[HANDOVER_TOKEN];
    int fds[HANDOVER_DESCRIPTORS]; /* owned */
    size_t count;
    int64_t until;
    struct ticket *next;
};

struct guest {
    uv_poll_t poll;
    struct handover *h;
    int fd;
    int64_t until;
    struct guest *prev, *next;
};

struct handover {
    uv_loop_t *loop;
    uv_poll_t listener;
    uv_timer_t sweep; /* runs while there is something to expire */
    int fd;
    struct listen_path where;
    int64_t ticket_ns, silence_ns;
    struct ticket *tickets;
    struct guest *guests;
    size_t ticket_count, guest_count;
    int handles; /* not closed yet, guests included */
    bool paused; /* no descriptors left: not accepting until the next sweep */
    bool closing;
    void (*on_closed)(void *user);
    void *user;
};

static void on_handle_closed(struct handover *h) {
    if (--h->handles > 0) {
        return;
    }
    void (*tell)(void *) = h->on_closed;
    void *user = h->user;
    free(h);
    if (tell) {
        tell(user);
    }
}

/* ---- tickets ---- */

static void ticket_free(struct ticket *t) {
    for (size_t i = 0; i < t->count; i++) {
        close(t->fds[i]);
    }
    free(t);
}

/* Takes the ticket with |token| out of the list; NULL: none, or expired. */
static struct ticket *ticket_redeem(struct handover *h, const uint8_t token[HANDOVER_TOKEN]) {
    for (struct ticket **at = &h->tickets; *at; at = &(*at)->next) {
        struct ticket *t = *at;
        if (memcmp(t->token, token, HANDOVER_TOKEN) != 0) {
            continue;
        }
        *at = t->next;
        h->ticket_count--;
        if (t->until > clock_ns()) {
            return t;
        }
        ticket_free(t);
        return NULL;
    }
    return NULL;
}

static void expire_tickets(struct handover *h, int64_t now) {
    struct ticket **at = &h->tickets;
    while (*at) {
        struct ticket *t = *at;
        if (t->until > now) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        h->ticket_count--;
        ticket_free(t);
    }
}

static int duplicate(struct ticket *t, const int *fds, size_t n, struct err *e) {
    for (size_t i = 0; i < n; i++) {
        t->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (t->fds[i] < 0) {
            enum status code = errno == EBADF ? ST_INVALID_ARGUMENT : ST_RESOURCE_EXHAUSTED;
            return err_set(e, code, "duplicating descriptor %d: %s", fds[i], strerror(errno));
        }
        t->count++;
    }
    return 0;
}

static void start_sweep(struct handover *h);

int handover_ticket(struct handover *h, const int *fds, size_t n, uint8_t token[HANDOVER_TOKEN],
                    struct err *e) {
    if (n < 1 || n > HANDOVER_DESCRIPTORS) {
        return err_set(e, ST_INVALID_ARGUMENT, "a ticket is for 1 to %d descriptors, not %zu",
                       HANDOVER_DESCRIPTORS, n);
    }
    if (h->ticket_count >= HANDOVER_TICKETS) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%d tickets are outstanding, the limit",
                       HANDOVER_TICKETS);
    }
    struct ticket *t = mem_zeroed(1, sizeof *t);
    int rv = duplicate(t, fds, n, e);
    if (rv == 0 && getrandom(t->token, HANDOVER_TOKEN, 0) != HANDOVER_TOKEN) {
        rv = err_set(e, ST_UNAVAILABLE, "no random bytes for a ticket: %s", strerror(errno));
    }
    if (rv) {
        ticket_free(t);
        return rv;
    }
    t->until = clock_ns() + h->ticket_ns;
    t->next = h->tickets;
    h->tickets = t;
    h->ticket_count++;
    start_sweep(h);
    memcpy(token, t->token, HANDOVER_TOKEN);
    return 0;
}

size_t handover_tickets(const struct handover *h) {
    return h->ticket_count;
}

/* ---- answers ---- */

static void send_text(int fd, enum status code, const char *text) {
    uint8_t answer[HANDOVER_ANSWER];
    answer[0] = (uint8_t)code;
    int n = snprintf((char *)answer + 1, sizeof answer - 1, "%s", text);
    size_t len = n < (int)sizeof answer - 1 ? (size_t)n : sizeof answer - 2;
    (void)send(fd, answer, 1 + len, MSG_NOSIGNAL | MSG_DONTWAIT); /* gone: nobody to tell */
}

static void send_descriptors(int fd, const struct ticket *t) {
    union {
        char bytes[CMSG_SPACE(HANDOVER_DESCRIPTORS * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    uint8_t ok = ST_OK;
    struct iovec iov = {.iov_base = &ok, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(t->count * sizeof(int))};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(t->count * sizeof(int));
    memcpy(CMSG_DATA(c), t->fds, t->count * sizeof(int));
    if (sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        log_warn("handing over %zu descriptors: %s", t->count, strerror(errno));
    }
}

/* ---- guests ---- */

static void on_guest_closed(uv_handle_t *handle) {
    struct guest *g = handle->data;
    struct handover *h = g->h;
    close(g->fd);
    free(g);
    on_handle_closed(h);
}

static void guest_leave(struct guest *g) {
    struct handover *h = g->h;
    *(g->prev ? &g->prev->next : &h->guests) = g->next;
    if (g->next) {
        g->next->prev = g->prev;
    }
    h->guest_count--;
    uv_close((uv_handle_t *)&g->poll, on_guest_closed);
}

static void answer(struct handover *h, int fd, const uint8_t *packet, ssize_t len) {
    char text[160], rule[96];
    if (len != HANDOVER_TOKEN) {
        (void)snprintf(text, sizeof text, "a ticket is one packet of %d bytes, not %zd",
                       HANDOVER_TOKEN, len);
        send_text(fd, ST_INVALID_ARGUMENT, text);
        return;
    }
    struct access access = {.observed = false};
    struct grpc_peer peer = access_peer(fd);
    if (access_role(&access, &peer, fd) < GRPC_TRAIN) {
        access_rule(&access, sizeof rule, rule);
        (void)snprintf(text, sizeof text, "user %ld may not take descriptors; %s",
                       peer.known ? (long)peer.uid : -1L, rule);
        send_text(fd, ST_PERMISSION_DENIED, text);
        return;
    }
    struct ticket *t = ticket_redeem(h, packet);
    if (!t) {
        send_text(fd, ST_NOT_FOUND, "no such ticket: used, expired or never given");
        return;
    }
    send_descriptors(fd, t);
    ticket_free(t);
}

static void on_guest(uv_poll_t *poll, int status, int events) {
    struct guest *g = poll->data;
    uint8_t packet[HANDOVER_TOKEN];
    (void)events;
    if (status == 0) {
        ssize_t len = recv(g->fd, packet, sizeof packet, MSG_TRUNC | MSG_DONTWAIT);
        if (len < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (len > 0) {
            answer(g->h, g->fd, packet, len);
        }
    }
    guest_leave(g);
}

static void guest_enter(struct handover *h, int fd) {
    struct guest *g = mem_zeroed(1, sizeof *g);
    g->h = h;
    g->fd = fd;
    g->until = clock_ns() + h->silence_ns;
    g->poll.data = g;
    if (uv_poll_init(h->loop, &g->poll, fd)) {
        close(fd);
        free(g);
        return;
    }
    h->handles++;
    h->guest_count++;
    g->next = h->guests;
    if (h->guests) {
        h->guests->prev = g;
    }
    h->guests = g;
    if (uv_poll_start(&g->poll, UV_READABLE, on_guest)) {
        guest_leave(g);
        return;
    }
    start_sweep(h);
}

static void on_listener(uv_poll_t *poll, int status, int events) {
    struct handover *h = poll->data;
    (void)events;
    int fd = status < 0 ? -1 : accept4(h->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && h->guest_count >= HANDOVER_PENDING) {
        send_text(fd, ST_RESOURCE_EXHAUSTED, "too many connections without a ticket");
        close(fd);
    } else if (fd >= 0) {
        guest_enter(h, fd);
    } else if (status < 0 || errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        log_warn("accepting on %s: %s", h->where.path,
                 status < 0 ? uv_strerror(status) : strerror(errno));
        uv_poll_stop(&h->listener); /* else the loop would spin; the sweep starts it again */
        h->paused = true;
        start_sweep(h);
    }
}

static void on_sweep(uv_timer_t *timer) {
    struct handover *h = timer->data;
    int64_t now = clock_ns();
    expire_tickets(h, now);
    struct guest *next;
    for (struct guest *g = h->guests; g; g = next) {
        next = g->next;
        if (g->until <= now) {
            guest_leave(g);
        }
    }
    if (h->paused) {
        h->paused = uv_poll_start(&h->listener, UV_READABLE, on_listener) != 0;
    }
    if (!h->tickets && !h->guests && !h->paused) {
        uv_timer_stop(timer);
    }
}

static void start_sweep(struct handover *h) {
    if (!h->closing && !uv_is_active((uv_handle_t *)&h->sweep)) {
        (void)uv_timer_start(&h->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    }
}

/* ---- the socket ---- */

int handover_listen(uv_loop_t *loop, const char *path, const struct handover_options *options,
                    struct handover **handover, struct err *e) {
    struct handover *h = mem_zeroed(1, sizeof *h);
    int rv = listen_unix(path, SOCK_SEQPACKET, &h->where, &h->fd, e);
    if (rv) {
        free(h);
        return rv;
    }
    rv = uv_poll_init(loop, &h->listener, h->fd);
    if (rv) {
        rv = err_set(e, ST_UNAVAILABLE, "socket %s: %s", path, uv_strerror(rv));
        listen_unlink(&h->where);
        close(h->fd);
        free(h);
        return rv;
    }
    h->loop = loop;
    h->ticket_ns = options && options->ticket_ns > 0 ? options->ticket_ns : TICKET_NS;
    h->silence_ns = options && options->silence_ns > 0 ? options->silence_ns : SILENCE_NS;
    rv = uv_timer_init(loop, &h->sweep);
    assert(rv == 0); /* only fills a structure */
    h->handles = 2;
    h->listener.data = h->sweep.data = h;
    rv = uv_poll_start(&h->listener, UV_READABLE, on_listener);
    assert(rv == 0); /* only changes the loop's tables */
    *handover = h;
    return 0;
}

const char *handover_path(const struct handover *h) {
    return h->where.path;
}

static void on_listener_closed(uv_handle_t *handle) {
    struct handover *h = handle->data;
    close(h->fd);
    on_handle_closed(h);
}

static void on_sweep_closed(uv_handle_t *handle) {
    on_handle_closed(handle->data);
}

void handover_close(struct handover *h, void (*on_closed)(void *user), void *user) {
    h->on_closed = on_closed;
    h->user = user;
    if (h->closing) {
        return;
    }
    h->closing = true;
    listen_unlink(&h->where);
    expire_tickets(h, INT64_MAX);
    while (h->guests) {
        guest_leave(h->guests);
    }
    uv_close((uv_handle_t *)&h->listener, on_listener_closed);
    uv_close((uv_handle_t *)&h->sweep, on_sweep_closed);
}
