#include "proto/unix_address.h"

#include <string.h>
#include <sys/socket.h>

_Static_assert(UNIX_PATH_LONGEST == sizeof((struct sockaddr_un){0}.sun_path) - 1, "socket paths");

int unix_address(const char *path, struct sockaddr_un *address, struct err *e) {
    size_t n = path ? strlen(path) : 0;
    if (n == 0) {
        return err_set(e, ST_INVALID_ARGUMENT, "socket path is empty");
    }
    if (n > UNIX_PATH_LONGEST) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "socket path %s has %zu bytes, the limit is %d: choose a shorter folder",
                       path, n, UNIX_PATH_LONGEST);
    }
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, path, n + 1);
    return 0;
}
