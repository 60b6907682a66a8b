/* What the layers above ask of the place where memory lies and arithmetic runs: only what they
 * call. cpu.c is the only device so far; a GPU's stands beside it, with device memory in its arenas
 * and launches that are enqueued on a stream.
 *
 * The stream itself, operations one after another and each begun only when it is ready, is the
 * engine's worker: on a CPU a launch runs at once, on the worker's thread and its helpers.
 */
#ifndef ZD_DEVICE_DEVICE_H
#define ZD_DEVICE_DEVICE_H

#include "device/arena.h"
#include "device/pool.h"

struct device {
    const struct device_ops *ops;
    unsigned threads; /* that a launch may use */
};

struct device_ops {
    int (*alloc)(struct device *d, struct arena *a, const char *name, enum arena_use use,
                 struct err *e);
    void (*free)(struct device *d, struct arena *a);
    /* A descriptor for another process that cannot write; the caller closes it. */
    int (*readonly)(struct device *d, const struct arena *a, int *fd, struct err *e);
    /* Another process's memory; takes |fd|. See mapping_import. */
    int (*import)(struct device *d, int fd, uint64_t least, const char *what, struct mapping *m,
                  struct err *e);
    void (*drop)(struct device *d, struct mapping *m);
    /* Runs part(ctx, i, threads) for each i; done when it returns. One caller at a time. */
    void (*launch)(struct device *d, unsigned threads,
                   void (*part)(void *ctx, unsigned thread, unsigned threads), void *ctx);
    void (*del)(struct device *d);
};

/* |threads| from 1: the caller and threads - 1 helpers. INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
int device_cpu(unsigned threads, struct device **d, struct err *e);

#endif
