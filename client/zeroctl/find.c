/* Which job is meant when none is named. */
#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/unix_address.h"
#include "zeroctl.h"

static int take(const char *from, const char *path, char to[static 108], struct err *e) {
    struct sockaddr_un address;
    struct err why;
    if (unix_address(path, &address, &why)) {
        return err_set(e, ST_INVALID_ARGUMENT, "%s: %.280s", from, why.text);
    }
    memcpy(to, path, strlen(path) + 1);
    return 0;
}

/* Ours, and somebody listens there: a folder that was left behind is no job. */
static bool is_job(const char *path) {
    struct sockaddr_un address;
    struct stat s;
    if (lstat(path, &s) || s.st_uid != geteuid() || unix_address(path, &address, NULL)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return yes;
}

static int choose(const glob_t *found, const char *parent, char path[static 108], struct err *e) {
    const char *only = NULL;
    unsigned jobs = 0;
    char list[220] = "";
    for (size_t i = 0; i < found->gl_pathc; i++) {
        if (is_job(found->gl_pathv[i])) {
            size_t n = strlen(list);
            only = found->gl_pathv[i];
            jobs++;
            (void)snprintf(list + n, sizeof list - n, "\n  --address %s", only);
        }
    }
    if (jobs == 0) {
        return err_set(e, ST_NOT_FOUND,
                       "no running job in %.100s; zerorun starts one, --address names another",
                       parent);
    }
    if (jobs > 1) {
        return err_set(e, ST_FAILED_PRECONDITION, "%u jobs run here; choose one:%s", jobs, list);
    }
    return take("the job found", only, path, e);
}

int find_coordinator(const char *given, char path[static 108], struct err *e) {
    const char *named = getenv("ZEROD_COORDINATOR");
    if (given) {
        return take("--address", given, path, e);
    }
    if (named && *named) {
        return take("ZEROD_COORDINATOR", named, path, e);
    }
    const char *parent = getenv("TMPDIR");
    parent = parent && *parent ? parent : "/tmp";
    char pattern[4200];
    (void)snprintf(pattern, sizeof pattern, "%.4000s/zerorun-*/coordinator.sock", parent);
    glob_t found;
    if (glob(pattern, 0, NULL, &found)) {
        return err_set(e, ST_NOT_FOUND,
                       "no running job in %.100s; zerorun starts one, --address names another",
                       parent);
    }
    int rc = choose(&found, parent, path, e);
    globfree(&found);
    return rc;
}
