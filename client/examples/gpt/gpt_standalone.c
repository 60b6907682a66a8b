/* gpt-standalone: the same trainer without libzerod in it, the baseline. */
#include "trainer.h"

int main(int argc, char **argv) {
    return trainer_main(argc, argv, "gpt-standalone", NULL);
}
