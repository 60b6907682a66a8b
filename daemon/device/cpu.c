/* The CPU as a device: memfds, and a pool of threads. */
#include <stdlib.h>

#include "base/buf.h"
#include "device/device.h"

struct cpu {
    struct device device; /* first: the ops get a pointer to it */
    struct pool *pool;
};

static int cpu_alloc(struct device *d, struct arena *a, const char *name, enum arena_use use,
                     struct err *e) {
    (void)d;
    return arena_alloc(a, name, use, e);
}

static void cpu_free(struct device *d, struct arena *a) {
    (void)d;
    arena_free(a);
}

static int cpu_readonly(struct device *d, const struct arena *a, int *fd, struct err *e) {
    (void)d;
    return arena_readonly(a, fd, e);
}

static int cpu_import(struct device *d, int fd, uint64_t least, const char *what, struct mapping *m,
                      struct err *e) {
    (void)d;
    return mapping_import(fd, least, what, m, e);
}

static void cpu_drop(struct device *d, struct mapping *m) {
    (void)d;
    mapping_drop(m);
}

static void cpu_launch(struct device *d, unsigned threads,
                       void (*part)(void *ctx, unsigned thread, unsigned threads), void *ctx) {
    pool_run(((struct cpu *)d)->pool, threads, part, ctx);
}

static void cpu_del(struct device *d) {
    struct cpu *c = (struct cpu *)d;
    pool_del(c->pool);
    free(c);
}

static const struct device_ops cpu_ops = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .readonly = cpu_readonly,
    .import = cpu_import,
    .drop = cpu_drop,
    .launch = cpu_launch,
    .del = cpu_del,
};

int device_cpu(unsigned threads, struct device **d, struct err *e) {
    struct pool *pool;
    int rc = pool_new(threads, &pool, e);
    if (rc) {
        return rc;
    }
    struct cpu *c = mem_zeroed(1, sizeof *c);
    *c = (struct cpu){.device = {.ops = &cpu_ops, .threads = threads}, .pool = pool};
    *d = &c->device;
    return 0;
}
