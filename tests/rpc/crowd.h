/* Looking at a server under test (host.h) from outside, and peers made of bytes (raw.h). All of it
 * fails the running check when something is not as it should be. */
#ifndef ZD_TESTS_CROWD_H
#define ZD_TESTS_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "tests/rpc/host.h"

/* ---- looking ---- */

long look_rss_kib(void); /* resident, after giving back what is free */
/* Prints |before| and now, in KiB; now is at most |growth| more (not under sanitizers, which keep
 * what was freed). */
void look_limited(const char *what, long before, long growth);

struct look {
    size_t connections;
    struct echo echo;
};
struct look look_at(struct host *h);

void look_serves(struct host *h);   /* a call on a connection of its own, within a second */
void look_all_gone(struct host *h); /* no connection is left, within ten */

/* ---- raw peers ---- */

int raw_connect(const char *path);
bool raw_send(int fd, const void *bytes, size_t n); /* false once the server hung up, like ... */
bool raw_flush(int fd, struct buf *b);              /* ... these; empties |b| */
bool raw_await(int fd, size_t n);                   /* takes |n| bytes at least */
bool raw_read(int fd);                              /* takes what is there */
void raw_put_request(struct buf *b, uint32_t id, const char *path, uint8_t flags);

#endif
