/* sim: random walks through the step protocol.
 *
 *   sim [--seed S] [--walks W]               the protocol as it is; exit 1 at the first violation
 *   sim --without RULE [...]                 with a rule taken away; exit 1 unless that is found
 *   sim --planted [...]                      each rule taken away, one after the other
 *   sim [--without RULE] --walk N --trace    one walk, event by event
 *
 * The seed is --seed, else ZEROD_SEED, else 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "world.h"

static const struct size sizes[] = {
    {.ranks = 2, .steps = 3, .tiles = 2, .faults = 2},
    {.ranks = 2, .steps = 5, .tiles = 1, .faults = 5},
    {.ranks = 3, .steps = 3, .tiles = 2, .faults = 3, .skips = 1u << 1},
    {.ranks = 3, .steps = 4, .tiles = 1, .faults = 4},
    {.ranks = 1, .steps = 4, .tiles = 2, .faults = 4, .skips = 1u << 2},
};

enum { SIZES = sizeof sizes / sizeof sizes[0] };

struct options {
    uint64_t seed, walks, only;
    int without; /* -1: nothing */
    bool trace, planted, one;
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const struct size *size_of(const struct options *o, uint64_t number) {
    return o->without >= 0 ? &plants[o->without].size : &sizes[number % SIZES];
}

static void report(const struct options *o, uint64_t number) {
    printf("%s%sviolation in walk %llu of seed %llu: %s\n", o->without >= 0 ? "without " : "",
           o->without >= 0 ? plants[o->without].name : "", (unsigned long long)number,
           (unsigned long long)o->seed, w.violation);
}

/* The number of walks until the first violation, 0: none. */
static uint64_t find(const struct options *o, uint64_t *events) {
    job_without = o->without >= 0 ? plants[o->without].rules : 0;
    for (uint64_t n = 0; n < o->walks; n++) {
        const bool good = walk(size_of(o, n), o->seed, n, false);
        *events += w.events;
        if (!good) {
            return n + 1;
        }
    }
    return 0;
}

static int clean(const struct options *o) {
    const double start = seconds();
    uint64_t events = 0;
    const uint64_t found = find(o, &events);
    const double took = seconds() - start;
    if (found) {
        report(o, found - 1);
        printf("event by event: sim --seed %llu --walk %llu --trace\n", (unsigned long long)o->seed,
               (unsigned long long)(found - 1));
        return 1;
    }
    printf("seed %llu: %llu walks, %llu events in %.1f s (%.0f events/s): all hold\n",
           (unsigned long long)o->seed, (unsigned long long)o->walks, (unsigned long long)events,
           took, (double)events / took);
    return 0;
}

static int planted(struct options *o, int rule) {
    uint64_t events = 0;
    const double start = seconds();
    o->without = rule;
    const uint64_t found = find(o, &events);
    if (!found) {
        printf("NOT FOUND in %llu walks: %s (%s)\n", (unsigned long long)o->walks,
               plants[rule].name, plants[rule].taken_away);
        return 1;
    }
    printf("%6llu walks, %4.1f s  %s: %s\n", (unsigned long long)found, seconds() - start,
           plants[rule].name, w.violation);
    return 0;
}

static int every_rule(struct options *o) {
    int missed = 0;
    printf("seed %llu, at most %llu walks a rule\n", (unsigned long long)o->seed,
           (unsigned long long)o->walks);
    for (int rule = 0; rule < (int)plant_count; rule++) {
        missed += planted(o, rule);
    }
    printf("%d of %d rules taken away were found\n", (int)plant_count - missed, (int)plant_count);
    return missed != 0;
}

static int one_walk(const struct options *o) {
    job_without = o->without >= 0 ? plants[o->without].rules : 0;
    const bool good = walk(size_of(o, o->only), o->seed, o->only, o->trace);
    if (!good) {
        report(o, o->only);
    }
    return !good;
}

/* ---- the command line ---- */

static _Noreturn void usage(const char *what) {
    fprintf(stderr,
            "sim: %s\nusage: sim [--seed S] [--walks W] [--without RULE | --planted] "
            "[--walk N [--trace]]\nrules:\n",
            what);
    for (int rule = 0; rule < (int)plant_count; rule++) {
        fprintf(stderr, "  %-34s %s\n", plants[rule].name, plants[rule].taken_away);
    }
    exit(2);
}

static uint64_t number(const char *text) {
    char *end;
    const uint64_t n = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || *end) {
        usage("a number is missing");
    }
    return n;
}

static int rule_named(const char *name) {
    for (int rule = 0; name && rule < (int)plant_count; rule++) {
        if (strcmp(plants[rule].name, name) == 0) {
            return rule;
        }
    }
    usage("no such rule");
}

static struct options parse(char **argv) {
    const char *seed = getenv("ZEROD_SEED");
    struct options o = {.seed = seed && *seed ? number(seed) : 1, .walks = 20000, .without = -1};
    for (char **a = argv + 1; *a; a++) {
        if (strcmp(*a, "--seed") == 0) {
            o.seed = number(*++a);
        } else if (strcmp(*a, "--walks") == 0) {
            o.walks = number(*++a);
        } else if (strcmp(*a, "--walk") == 0) {
            o.only = number(*++a);
            o.one = true;
        } else if (strcmp(*a, "--without") == 0) {
            o.without = rule_named(*++a);
        } else if (strcmp(*a, "--planted") == 0) {
            o.planted = true;
        } else if (strcmp(*a, "--trace") == 0) {
            o.trace = true;
        } else {
            usage(*a);
        }
    }
    return o;
}

int main(int argc, char **argv) {
    (void)argc;
    struct options o = parse(argv);
    job_point = sim_point;
    if (o.planted) {
        return every_rule(&o);
    }
    if (o.one) {
        return one_walk(&o);
    }
    return o.without >= 0 ? planted(&o, o.without) : clean(&o);
}
