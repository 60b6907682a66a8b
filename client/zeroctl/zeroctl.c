/* zeroctl: looks into a running job, and ahead of one. A table of subcommands and a loop. */
#include "zeroctl.h"

#include <stdio.h>
#include <string.h>

static int version_main(int argc, char **argv);
static int help_main(int argc, char **argv);

static const struct subcommand {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *arguments, *doc;
} subcommands[] = {
    {"status", status_main, "[--json] [--address PATH]", "what each rank of a job holds and does"},
    {"plan", plan_main, "--params 7e9 --world 8", "what a model needs and sends, beforehand"},
    {"version", version_main, "", "the version of this program"},
    {"help", help_main, "", "this list"},
};

enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static void print_help(FILE *to) {
    (void)fputs("Usage: zeroctl COMMAND [OPTIONS]\n\nLooks into a training job that runs under "
                "zerod, and plans one.\n\nCommands:\n",
                to);
    for (int i = 0; i < SUBCOMMANDS; i++) {
        const struct subcommand *s = &subcommands[i];
        (void)fprintf(to, "  %-8s %-26s %s\n", s->name, s->arguments, s->doc);
    }
    (void)fputs(
        "\nThe job is the one that --address or $ZEROD_COORDINATOR names (the socket of its\n"
        "coordinator), else the only one that zerorun has running here.\n"
        "\nExamples:\n"
        "  zeroctl status\n"
        "  zeroctl status --json | python3 -m json.tool\n"
        "  zeroctl status --address /tmp/zerorun-Ab12Cd/coordinator.sock\n"
        "  zeroctl plan --params 7e9 --layers 32 --world 8 --device-memory 80GB\n"
        "\nExit status: 0 done, 1 failed, 2 the command line is wrong.\n",
        to);
}

static int version_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    (void)printf("zeroctl %s\n", ZEROD_VERSION);
    return 0;
}

static int help_main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    print_help(stdout);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
        word = "help";
    } else if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
        word = "version";
    }
    for (int i = 0; i < SUBCOMMANDS; i++) {
        if (!strcmp(word, subcommands[i].name)) {
            return subcommands[i].main(argc - 1, argv + 1);
        }
    }
    (void)fprintf(stderr, "zeroctl: unknown command \"%.60s\"; `zeroctl help` lists them\n", word);
    return EXIT_USAGE;
}
