/* What a job was: a short summary for people and a JSON file for programs. */
#ifndef ZD_ZERORUN_REPORT_H
#define ZD_ZERORUN_REPORT_H

#include "base/err.h"

struct job;

/* Before anything starts: can |path| be written? NOT_FOUND or PERMISSION_DENIED. */
int report_check_file(const char *path, struct err *e);

/* Writes the file of --json, if asked for, under another name and then renames it. UNAVAILABLE. */
int report_json(const struct job *j, struct err *e);

void report_summary(const struct job *j);

#endif
