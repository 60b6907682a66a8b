/* When and how a daemon process ends: SIGTERM and SIGINT, and the holder's pipe.
 *
 * `zerorun` keeps the write end of a pipe whose read end is --holder-fd: end of file means that the
 * holder died, and with it the job. The owner is told once, by |on_end|; it closes its handles, and
 * life_leave removes the sockets' folder when that is empty (the last process of the job wins).
 * Should closing take longer than LIFE_GRACE_NS the process exits anyway. */
#ifndef ZD_PROCESS_LIFE_H
#define ZD_PROCESS_LIFE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"

enum { LIFE_NO_HOLDER = -1 };
#define LIFE_GRACE_NS INT64_C(1500000000)

enum life_cause { LIFE_SIGNAL, LIFE_HOLDER_DIED };

struct life;

/* Ignores SIGPIPE. |holder_fd| is taken (LIFE_NO_HOLDER: none). INVALID_ARGUMENT: not a descriptor.
 */
int life_start(uv_loop_t *loop, int holder_fd, void (*on_end)(void *user, enum life_cause cause),
               void *user, struct life **l, struct err *e);

/* True as soon as the holder is gone, also before the loop has told: whoever hears of the job's end
 * from elsewhere may ask whether this is why. */
bool life_holder_died(const struct life *l);

/* Closes its handles and arms the last resort: a timer that exits with |status|. Call when the
 * owner begins to close; the rest of the loop then runs out. Frees itself. */
void life_leave(struct life *l, int status);

/* Removes the folder of |socket_path| if it is empty now. */
void life_remove_folder(const char *socket_path);

#endif
