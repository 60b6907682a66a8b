/* The folder that holds a job's sockets: made fresh with rights 0700, removed with all in it. */
#ifndef ZD_ZERORUN_FOLDER_H
#define ZD_ZERORUN_FOLDER_H

#include <sys/types.h>

#include "base/err.h"

enum { FOLDER_PATH = 108 }; /* bytes with the NUL: what a socket address holds */

struct folder {
    char path[FOLDER_PATH];
};

/* Makes zerorun-XXXXXX under $TMPDIR, or /tmp. INVALID_ARGUMENT before anything is made: a socket
 * in it would have a path that is too long (it, its length and the limit are named). NOT_FOUND or
 * PERMISSION_DENIED: $TMPDIR is no folder that we may write to. */
int folder_make(struct folder *f, struct err *e);

/* Lets |group| pass through to the sockets (0710), not look into it. PERMISSION_DENIED: we are no
 * member of it. */
int folder_open_to(const struct folder *f, gid_t group, struct err *e);

/* Paths of sockets in it; folder_make has checked their lengths. */
void folder_coordinator(const struct folder *f, char path[static FOLDER_PATH]);
void folder_rank(const struct folder *f, unsigned rank, char path[static FOLDER_PATH]);
void folder_handover(const struct folder *f, unsigned rank, char path[static FOLDER_PATH]);

/* Files that processes left behind, and the folder. Quiet when it is gone already. */
void folder_remove(const struct folder *f);

#endif
