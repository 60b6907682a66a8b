/* What a job was: a short summary for people and a JSON file for programs. */
#ifndef ZD_ZERORUN_REPORT_H
#define ZD_ZERORUN_REPORT_H

#include <stdio.h>

#include "base/err.h"

struct job;
struct plan_table;

/* Before anything starts: can |path| be written? NOT_FOUND or PERMISSION_DENIED. */
int report_check_file(const char *path, struct err *e);

/* Writes the file of --json, if asked for, under another name and then renames it. UNAVAILABLE. */
int report_json(const struct job *j, struct err *e);

void report_summary(const struct job *j);

/* Of a dry run, from j->results.ranks: the first rank's bytes, for people; and the file of --json,
 * whose ranks have the same keys as those of a job that ran. UNAVAILABLE. */
void report_dry(const struct job *j, FILE *to);
int report_dry_json(const struct job *j, const struct plan_table *table, struct err *e);

#endif
