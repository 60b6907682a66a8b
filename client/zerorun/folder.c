#include "folder.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* No file name in the folder is longer than this one; rank63.sock is not. */
static const char longest[] = "coordinator.sock";

static void join(const struct folder *f, const char *name, char path[static FOLDER_PATH]) {
    size_t n = strlen(f->path), more = strlen(name);
    assert(n + 1 + more < FOLDER_PATH && "folder_make has checked it");
    memcpy(path, f->path, n);
    path[n] = '/';
    memcpy(path + n + 1, name, more + 1);
}

int folder_make(struct folder *f, struct err *e) {
    const char *parent = getenv("TMPDIR");
    parent = parent && *parent ? parent : "/tmp";
    char whole[8192];
    int n = snprintf(whole, sizeof whole, "%s/zerorun-XXXXXX/%s", parent, longest);
    if (n >= FOLDER_PATH) {
        return err_set(e, ST_INVALID_ARGUMENT,
                       "socket path %.150s would be %d bytes, the limit is %d: set TMPDIR to a "
                       "folder with a shorter path",
                       whole, n, FOLDER_PATH - 1);
    }
    (void)snprintf(f->path, sizeof f->path, "%.80s/zerorun-XXXXXX", parent);
    if (!mkdtemp(f->path)) {
        return err_set(e, errno == ENOENT || errno == ENOTDIR ? ST_NOT_FOUND : ST_PERMISSION_DENIED,
                       "cannot make a folder for sockets in %.80s (TMPDIR): %s", parent,
                       strerror(errno));
    }
    return 0;
}

int folder_open_to(const struct folder *f, gid_t group, struct err *e) {
    /* In this order there is no moment at which another group may pass. */
    if (lchown(f->path, (uid_t)-1, group) || chmod(f->path, 0710)) {
        return err_set(e, errno == EPERM ? ST_PERMISSION_DENIED : ST_UNAVAILABLE,
                       "--observers %ld: cannot open %.80s to that group: %s", (long)group, f->path,
                       strerror(errno));
    }
    return 0;
}

void folder_coordinator(const struct folder *f, char path[static FOLDER_PATH]) {
    join(f, longest, path);
}

void folder_rank(const struct folder *f, unsigned rank, char path[static FOLDER_PATH]) {
    char name[sizeof longest + 16];
    (void)snprintf(name, sizeof name, "rank%u.sock", rank);
    join(f, name, path);
}

void folder_handover(const struct folder *f, unsigned rank, char path[static FOLDER_PATH]) {
    char name[sizeof longest + 16];
    (void)snprintf(name, sizeof name, "rank%u.fd", rank);
    join(f, name, path);
}

void folder_remove(const struct folder *f) {
    int fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(fd, entry->d_name, 0);
        }
    }
    closedir(d);
    (void)rmdir(f->path);
}
