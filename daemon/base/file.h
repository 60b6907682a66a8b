/* Reading regular files that may be anything: whole pieces, or an error that names the file. */
#ifndef ZD_BASE_FILE_H
#define ZD_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* What an errno about a path is: NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE. */
enum status file_status(int error);

/* Opens for reading: |*fd|, close-on-exec, the caller's to close, and |*size| in bytes. A FIFO or
 * device does not keep us waiting. NOT_FOUND; PERMISSION_DENIED; UNAVAILABLE (the system's words);
 * INVALID_ARGUMENT (no regular file). */
int file_open(const char *path, int *fd, uint64_t *size, struct err *e);

/* |bytes| from |from| on, all of them. |path| is for texts. UNAVAILABLE: the system's words, or the
 * file became shorter. */
int file_read(int fd, const char *path, uint64_t from, void *to, size_t bytes, struct err *e);

#endif
