#include "rpc/listen.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/unix_address.h"

enum { BACKLOG = 1024, OVERFLOW_UID = 65534 };

static int refuse(const char *path, const char *step, struct err *e) {
    enum status code = errno == EACCES || errno == EPERM ? ST_PERMISSION_DENIED : ST_UNAVAILABLE;
    return err_set(e, code, "socket %s: %s: %s", path, step, strerror(errno));
}

/* Something has the path already: removes it if it is a socket that nobody listens on. */
static int clear_stale(const struct sockaddr_un *a, int type, struct err *e) {
    struct stat st;
    if (lstat(a->sun_path, &st)) {
        return errno == ENOENT ? 0 : refuse(a->sun_path, "stat", e);
    }
    if (!S_ISSOCK(st.st_mode)) {
        return err_set(e, ST_ALREADY_EXISTS, "%s exists and is no socket", a->sun_path);
    }
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return refuse(a->sun_path, "socket", e);
    }
    bool stale = connect(fd, (const struct sockaddr *)a, sizeof *a) && errno == ECONNREFUSED;
    close(fd);
    if (!stale) {
        return err_set(e, ST_ALREADY_EXISTS, "another process listens on %s", a->sun_path);
    }
    return unlink(a->sun_path) && errno != ENOENT ? refuse(a->sun_path, "unlink", e) : 0;
}

/* Linux gives the file the rights of the unbound socket, less the umask: so no moment with wider
 * ones, and no change of the process's umask under other threads. */
static int bind_private(int fd, const struct sockaddr_un *a) {
    return fchmod(fd, S_IRUSR | S_IWUSR) || bind(fd, (const struct sockaddr *)a, sizeof *a) ? -1
                                                                                            : 0;
}

static int bind_listen(int fd, int type, const struct sockaddr_un *a, struct stat *st,
                       struct err *e) {
    if (bind_private(fd, a)) {
        if (errno != EADDRINUSE) {
            return refuse(a->sun_path, "bind", e);
        }
        int rv = clear_stale(a, type, e);
        if (rv) {
            return rv;
        }
        if (bind_private(fd, a)) {
            return refuse(a->sun_path, "bind", e);
        }
    }
    if (listen(fd, BACKLOG) || lstat(a->sun_path, st)) {
        int rv = refuse(a->sun_path, "listen", e);
        unlink(a->sun_path);
        return rv;
    }
    return 0;
}

/* ---- the way to the socket ---- */

/* In a user namespace whoever does not belong to it, the host's root among them, is shown as the
 * overflow user. Nobody in the namespace can act as that one. */
static bool is_outside(uid_t uid) {
    FILE *f = uid == OVERFLOW_UID ? fopen("/proc/self/uid_map", "re") : NULL;
    bool outside = f != NULL;
    unsigned first, parent, count;
    while (outside && fscanf(f, "%u %u %u", &first, &parent, &count) == 3) {
        outside = uid < first || uid - first >= count;
    }
    if (f) {
        (void)fclose(f);
    }
    return outside;
}

/* Whoever owns |folder| or may write in it could take away what is in it, and put other things in
 * its place. */
static int check_folder(const char *path, const char *folder, struct err *e) {
    struct stat st;
    if (stat(folder, &st)) {
        return refuse(path, "folder", e);
    }
    if (st.st_uid != 0 && st.st_uid != geteuid() && !is_outside(st.st_uid)) {
        return err_set(e, ST_PERMISSION_DENIED,
                       "socket %s: the folder %.100s is user %ld's, who could replace the socket; "
                       "it must be user %ld's or root's",
                       path, folder, (long)st.st_uid, (long)geteuid());
    }
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX)) {
        return err_set(e, ST_PERMISSION_DENIED,
                       "socket %s: others may write in the folder %.100s (mode %04o) and replace "
                       "the socket; chmod go-w it, or give it the sticky bit",
                       path, folder, (unsigned)st.st_mode & 07777);
    }
    return 0;
}

/* The socket's folder and all above it, links followed. */
static int check_way(const char *path, struct err *e) {
    char copy[sizeof((struct sockaddr_un){0}.sun_path)], folder[PATH_MAX];
    (void)snprintf(copy, sizeof copy, "%s", path);
    if (!realpath(dirname(copy), folder)) {
        return refuse(path, "folder", e);
    }
    for (;;) {
        int rv = check_folder(path, folder, e);
        if (rv || strcmp(folder, "/") == 0) {
            return rv;
        }
        char *last = strrchr(folder, '/');
        last[last == folder] = '\0';
    }
}

/* ---- the socket ---- */

int listen_open_to(const struct listen_path *where, gid_t group, struct err *e) {
    /* In this order there is no moment at which another group may connect. */
    if (lchown(where->path, (uid_t)-1, group) || chmod(where->path, 0660)) {
        return refuse(where->path, "opening it to the observers' group", e);
    }
    return 0;
}

int listen_unix(const char *path, int type, struct listen_path *where, int *fd, struct err *e) {
    struct sockaddr_un a;
    struct stat st;
    int rv = unix_address(path, &a, e);
    rv = rv ? rv : check_way(path, e);
    if (rv) {
        return rv;
    }
    int s = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) {
        return refuse(path, "socket", e);
    }
    rv = bind_listen(s, type, &a, &st, e);
    if (rv) {
        close(s);
        return rv;
    }
    memcpy(where->path, a.sun_path, sizeof where->path);
    where->device = st.st_dev;
    where->inode = st.st_ino;
    *fd = s;
    return 0;
}

void listen_unlink(const struct listen_path *where) {
    struct stat st;
    if (lstat(where->path, &st) == 0 && st.st_dev == where->device && st.st_ino == where->inode) {
        unlink(where->path);
    }
}
