/* Command-line options from a table: one row holds an option's name, default, unit, limits, one
 * sentence of help and where its value goes, so parsing and `--help` cannot disagree.
 *
 *     static struct { uint64_t ranks; const char *strategy; bool help; } o;
 *     static struct opt options[] = {
 *         OPT_UNSIGNED('n', "ranks", "N", "4", NULL, 1, 64, &o.ranks, "Number of ranks."),
 *         OPT_CHOICE(0, "strategy", "S", "zero3", "ddp|zero2|zero3", &o.strategy, "How to shard."),
 *         OPT_FLAG('h', "help", &o.help, "Print this help."),
 *         OPT_END,
 *     };
 *
 * Understood are `--name value`, `--name=value`, `-n value`, `-nvalue`; flags take no value.
 * Options end at the first word that is none, or after `--`. An option given twice: the last
 * counts. No abbreviations, no bundles of letters. Does not print and does not exit.
 */
#ifndef ZD_BASE_OPT_H
#define ZD_BASE_OPT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum opt_kind {
    OPT_KIND_END = 0,
    OPT_KIND_FLAG,
    OPT_KIND_UNSIGNED, /* decimal digits */
    OPT_KIND_BYTES,    /* digits and an optional unit: KiB to TiB, kB to TB */
    OPT_KIND_REAL,     /* finite */
    OPT_KIND_TEXT,
    OPT_KIND_CHOICE, /* a text that is one of |choices| */
};

struct opt {
    enum opt_kind kind;
    char letter;          /* 'n' for -n; 0: none */
    const char *name;     /* "ranks" for --ranks, at most OPT_NAME bytes */
    const char *argument; /* what help calls the value, "N" */
    const char *standard; /* the default as one would type it; NULL: the store keeps what it has */
    const char *unit;     /* of the value, "ms"; NULL: none */
    const char *choices;  /* "ddp|zero2|zero3" */
    uint64_t min, max;    /* unsigned and bytes, both allowed; UINT64_MAX: no limit to speak of */
    double low, high;     /* real, both allowed; may be infinite */
    union {
        bool *flag;
        uint64_t *number;
        double *real;
        const char **text; /* points into argv or at the default */
    } to;
    const char *doc; /* one sentence */
    bool given;      /* set by opt_parse: the command line had it */
};

enum { OPT_NAME = 40 };

#define OPT_FLAG(letter_, name_, to_, doc_)                                                        \
    { .kind = OPT_KIND_FLAG, .letter = (letter_), .name = (name_), .to.flag = (to_), .doc = (doc_) }

#define OPT_UNSIGNED(letter_, name_, argument_, standard_, unit_, min_, max_, to_, doc_)           \
    {                                                                                              \
        .kind = OPT_KIND_UNSIGNED, .letter = (letter_), .name = (name_), .argument = (argument_),  \
        .standard = (standard_), .unit = (unit_), .min = (min_), .max = (max_),                    \
        .to.number = (to_), .doc = (doc_)                                                          \
    }

#define OPT_BYTES(letter_, name_, argument_, standard_, min_, max_, to_, doc_)                     \
    {                                                                                              \
        .kind = OPT_KIND_BYTES, .letter = (letter_), .name = (name_), .argument = (argument_),     \
        .standard = (standard_), .min = (min_), .max = (max_), .to.number = (to_), .doc = (doc_)   \
    }

#define OPT_REAL(letter_, name_, argument_, standard_, unit_, low_, high_, to_, doc_)              \
    {                                                                                              \
        .kind = OPT_KIND_REAL, .letter = (letter_), .name = (name_), .argument = (argument_),      \
        .standard = (standard_), .unit = (unit_), .low = (low_), .high = (high_),                  \
        .to.real = (to_), .doc = (doc_)                                                            \
    }

#define OPT_TEXT(letter_, name_, argument_, standard_, to_, doc_)                                  \
    {                                                                                              \
        .kind = OPT_KIND_TEXT, .letter = (letter_), .name = (name_), .argument = (argument_),      \
        .standard = (standard_), .to.text = (to_), .doc = (doc_)                                   \
    }

#define OPT_CHOICE(letter_, name_, argument_, standard_, choices_, to_, doc_)                      \
    {                                                                                              \
        .kind = OPT_KIND_CHOICE, .letter = (letter_), .name = (name_), .argument = (argument_),    \
        .standard = (standard_), .choices = (choices_), .to.text = (to_), .doc = (doc_)            \
    }

#define OPT_END                                                                                    \
    { .kind = OPT_KIND_END }

/* Stores all defaults, then what argv[1] and on say; *rest is the index of the first word that
 * belongs to no option (argc: none). INVALID_ARGUMENT: unknown option (names the nearest known
 * one), a missing value, a value for a flag, a malformed value or choice. OUT_OF_RANGE: names value
 * and limits. After an error the stores hold a mixture. */
int opt_parse(struct opt *table, int argc, char *const *argv, int *rest, struct err *e);

/* Did the command line have it? |name| must be in the table. */
bool opt_given(const struct opt *table, const char *name);

/* INVALID_ARGUMENT naming the first of |names| (NULL at the end) that the command line lacks, or a
 * word after the options (argv[rest] when rest < argc), for programs that take none. */
int opt_need(const struct opt *table, const char *const *names, int argc, char *const *argv,
             int rest, struct err *e);

/* One aligned entry a row: names, sentence, limits, unit, default. */
void opt_help(const struct opt *table, FILE *to);

#endif
