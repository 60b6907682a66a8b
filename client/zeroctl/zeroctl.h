/* zeroctl's subcommands; each is a file. They get their own name as argv[0]. */
#ifndef ZD_ZEROCTL_H
#define ZD_ZEROCTL_H

#include "base/err.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

int status_main(int argc, char **argv);
int plan_main(int argc, char **argv);

/* Where the job's coordinator listens: |given| if not NULL, else $ZEROD_COORDINATOR, else the only
 * job that zerorun has running here as our user. NOT_FOUND: none; FAILED_PRECONDITION: several,
 * which are listed. */
int find_coordinator(const char *given, char path[static 108], struct err *e);

#endif
