/* The fake daemon's sockets and thread. */
#include "fake.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/unpack.h"

enum { TOKEN = 16, WAIT_MS = 5000, SLOT_BYTES = 4096 };

/* ---- gRPC ---- */

static void on_open(struct grpc_call *call) {
    struct fake *f = grpc_call_context(call);
    f->call = call;
    f->attachments++;
}

static void on_message(struct grpc_call *call, const uint8_t *bytes, size_t len) {
    struct fake *f = grpc_call_context(call);
    ProtobufCMessage *m = unpack_message(&zerod__v1__trainer_request__descriptor, bytes, len);
    assert(m);
    const Zerod__V1__TrainerRequest *r = (const Zerod__V1__TrainerRequest *)m;
    f->got[r->call_case]++;
    if (!f->o.hook || !f->o.hook(f, r)) {
        fake_request(f, r);
    }
    protobuf_c_message_free_unpacked(m, NULL);
}

static void on_done(struct grpc_call *call) {
    struct fake *f = grpc_call_context(call);
    f->call = NULL;
    f->open = false;
    f->ended++;
}

static const struct grpc_method methods[] = {{
    .path = "/zerod.v1.Trainer/Attach",
    .kind = GRPC_BIDI,
    .role = GRPC_TRAIN,
    .on_open = on_open,
    .on_message = on_message,
    .on_done = on_done,
}};

void fake_send(struct fake *f, Zerod__V1__TrainerReply *r) {
    if (f->call) {
        f->sent[r->answer_case]++;
        assert(grpc_call_send(f->call, &r->base) == 0);
    }
}

/* ---- sockets ---- */

static void drop_connection(struct fake *f) {
    if (f->conn) {
        grpc_server_free(f->conn);
        close(f->conn_fd);
        f->conn = NULL;
        f->conn_fd = -1;
    }
}

static void write_out(struct fake *f) {
    const uint8_t *bytes;
    size_t n;
    while (f->conn && (n = grpc_server_output(f->conn, &bytes)) > 0) {
        ssize_t m = send(f->conn_fd, bytes, n, MSG_NOSIGNAL);
        if (m < 0) {
            drop_connection(f);
            return;
        }
        grpc_server_sent(f->conn, (size_t)m);
    }
}

static void read_in(struct fake *f) {
    uint8_t bytes[16384];
    struct err e;
    ssize_t n = recv(f->conn_fd, bytes, sizeof bytes, 0);
    if (n <= 0 || grpc_server_receive(f->conn, bytes, (size_t)n, clock_ns(), &e)) {
        drop_connection(f);
    }
}

static void accept_connection(struct fake *f) {
    static struct grpc_service service; /* borrowed by the connection */
    service = (struct grpc_service){methods, 1, f};
    struct grpc_server_options o = {
        .services = &service, .service_count = 1, .unix_socket = true, .role = GRPC_TRAIN};
    int fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    drop_connection(f);
    f->conn_fd = fd;
    f->conn = grpc_server_new(&o, clock_ns());
}

static void hand_over(struct fake *f) {
    uint8_t token[TOKEN], zero = 0;
    int fds[2] = {f->memfds[f->o.swapped], f->memfds[!f->o.swapped]};
    size_t n = f->o.one_descriptor ? 1 : 2;
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec iov = {&zero, 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    int fd = accept4(f->handover_fd, NULL, NULL, SOCK_CLOEXEC);
    if (recv(fd, token, sizeof token, 0) == TOKEN) {
        control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS,
                                        .cmsg_len = CMSG_LEN(n * sizeof(int))};
        memcpy(CMSG_DATA(&control.head), fds, n * sizeof(int));
        assert(sendmsg(fd, &m, MSG_NOSIGNAL) == 1);
    }
    close(fd);
}

static void run_order(struct fake *f) {
    uint64_t count;
    (void)!read(f->wake_fd, &count, sizeof count);
    pthread_mutex_lock(&f->lock);
    if (f->run) {
        f->run(f, f->run_arg);
        f->run = NULL;
        write_out(f);
        pthread_cond_broadcast(&f->done);
    }
    pthread_mutex_unlock(&f->lock);
}

static bool stopped(struct fake *f) {
    pthread_mutex_lock(&f->lock);
    bool stop = f->stop;
    pthread_mutex_unlock(&f->lock);
    return stop;
}

static void *serve(void *arg) {
    struct fake *f = arg;
    while (!stopped(f)) {
        struct pollfd p[] = {
            {f->wake_fd, POLLIN, 0},
            {f->listen_fd, POLLIN, 0},
            {f->handover_fd, POLLIN, 0},
            {f->conn ? f->conn_fd : -1, POLLIN, 0},
        };
        poll(p, 4, -1);
        if (p[0].revents) { /* first: whoever pauses us expects that nothing is read after it */
            run_order(f);
            continue;
        }
        if (p[3].revents) {
            read_in(f);
            write_out(f);
        }
        if (p[2].revents) {
            hand_over(f);
        }
        if (p[1].revents) {
            accept_connection(f);
        }
    }
    drop_connection(f);
    return NULL;
}

static int listen_at(const char *path, int type) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    assert(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 8) == 0);
    return fd;
}

static int make_memory(uint64_t bytes, bool sealed) {
    int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    assert(!sealed || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

struct fake *fake_start(const struct fake_options *o) {
    struct fake *f = calloc(1, sizeof *f);
    assert(f);
    f->o = o ? *o : (struct fake_options){.start_step = 1};
    f->o.gather_slots = f->o.gather_slots ? f->o.gather_slots : 2;
    f->o.grad_slots = f->o.grad_slots ? f->o.grad_slots : 2;
    f->slot_bytes = SLOT_BYTES;
    f->param_bytes = f->o.gather_slots * f->slot_bytes;
    f->grad_bytes = f->o.grad_slots * f->slot_bytes;
    f->memfds[0] = make_memory(f->param_bytes, !f->o.unsealed);
    f->memfds[1] = make_memory(f->grad_bytes, !f->o.unsealed);
    f->params = mmap(NULL, f->param_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->memfds[0], 0);
    f->grads = mmap(NULL, f->grad_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->memfds[1], 0);
    assert(f->params != MAP_FAILED && (void *)f->grads != MAP_FAILED);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/zerod-fake-XXXXXX");
    assert(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof f->path, "%s/d.sock", f->dir);
    (void)snprintf(f->handover_path, sizeof f->handover_path, "%s/d.fd", f->dir);
    f->listen_fd = listen_at(f->path, SOCK_STREAM);
    f->handover_fd = listen_at(f->handover_path, SOCK_SEQPACKET);
    f->wake_fd = eventfd(0, EFD_CLOEXEC);
    f->conn_fd = -1;
    zerod__v1__fence__init(&f->fence);
    f->fence.generation = 7;
    f->fence.step = (uint64_t)f->o.start_step;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->done, NULL);
    assert(pthread_create(&f->thread, NULL, serve, f) == 0);
    return f;
}

static void wake(struct fake *f) {
    uint64_t one = 1;
    assert(write(f->wake_fd, &one, sizeof one) == sizeof one);
}

void fake_stop(struct fake *f) {
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_mutex_unlock(&f->lock);
    wake(f);
    pthread_join(f->thread, NULL);
    int fds[] = {f->listen_fd, f->handover_fd, f->wake_fd, f->memfds[0], f->memfds[1]};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    munmap(f->params, f->param_bytes);
    munmap(f->grads, f->grad_bytes);
    unlink(f->path);
    unlink(f->handover_path);
    rmdir(f->dir);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->done);
    free(f);
}

/* ---- orders ---- */

void fake_on_thread(struct fake *f, void (*fn)(struct fake *f, void *arg), void *arg) {
    pthread_mutex_lock(&f->lock);
    f->run = fn;
    f->run_arg = arg;
    wake(f);
    while (f->run) {
        pthread_cond_wait(&f->done, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

/* A paused fake waits for |lock| in its loop. */
static void nothing(struct fake *f, void *arg) {
    (void)f, (void)arg;
}

void fake_pause(struct fake *f) {
    fake_on_thread(f, nothing, NULL);
    pthread_mutex_lock(&f->lock);
    wake(f);
}

void fake_resume(struct fake *f) {
    pthread_mutex_unlock(&f->lock);
}

static void hang_up(struct fake *f, void *arg) {
    (void)arg;
    drop_connection(f);
    close(f->listen_fd);
    close(f->handover_fd);
    f->listen_fd = f->handover_fd = -1;
}

void fake_hang_up(struct fake *f) {
    fake_on_thread(f, hang_up, NULL);
}

struct reason {
    int code;
    const char *text;
};

static void void_try(struct fake *f, void *arg) {
    const struct reason *r = arg;
    (void)snprintf(f->void_reason, sizeof f->void_reason, "%s", r->text);
    fake_refuse(f, 0, r->code, r->text, true);
}

void fake_void(struct fake *f, int code, const char *text) {
    struct reason r = {code, text};
    fake_on_thread(f, void_try, &r);
}

struct span {
    const void *bytes;
    size_t n;
};

static void send_bytes(struct fake *f, void *arg) {
    const struct span *s = arg;
    assert(send(f->conn_fd, s->bytes, s->n, MSG_NOSIGNAL) == (ssize_t)s->n);
}

void fake_bytes(struct fake *f, const void *bytes, size_t n) {
    struct span s = {bytes, n};
    fake_on_thread(f, send_bytes, &s);
}

void fake_wait_ended(struct fake *f, unsigned attachments) {
    for (int ms = 0; ms < WAIT_MS && f->ended < attachments; ms++) {
        usleep(1000);
    }
    assert(f->ended >= attachments);
}
