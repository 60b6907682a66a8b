/* zerorun: runs a whole job on one machine. See `zerorun --help` and job.h. */
#include <stdio.h>

#include "job.h"
#include "screen.h"

enum { EXIT_USAGE = 2 };

int main(int argc, char **argv) {
    struct options o;
    struct err e;
    screen_init();
    if (options_parse(&o, argc, argv, &e)) {
        screen_say("%s", e.text);
        screen_say("`zerorun --help` lists the options");
        return EXIT_USAGE;
    }
    if (o.help) {
        options_help(stdout);
        return 0;
    }
    if (o.version) {
        (void)printf("zerorun %s\n", ZEROD_VERSION);
        return 0;
    }
    return job_run(&o);
}
