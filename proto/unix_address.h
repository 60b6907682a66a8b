/* Addresses of unix sockets, with the one thing that can go wrong said clearly: the length. */
#ifndef ZD_PROTO_UNIX_ADDRESS_H
#define ZD_PROTO_UNIX_ADDRESS_H

#include <sys/un.h>

#include "base/err.h"

enum { UNIX_PATH_LONGEST = 107 }; /* bytes without the NUL: sizeof sun_path - 1 */

/* 0 or -ST_INVALID_ARGUMENT: empty, or longer than UNIX_PATH_LONGEST (path, length and limit are
 * named). */
int unix_address(const char *path, struct sockaddr_un *address, struct err *e);

#endif
