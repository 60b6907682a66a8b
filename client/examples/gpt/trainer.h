/* The program between its mains (gpt.c, gpt_standalone.c) and the training loop. */
#ifndef GPT_TRAINER_H
#define GPT_TRAINER_H

#include "store.h"

/* Opens the store that zerorun's daemons offer; NULL in the program that has none. */
typedef int store_open(const struct store_config *c, struct store **s, struct err *e);

/* Runs gpt and returns its exit status: 0 done, 1 failed, 2 usage. |name|: of the program. */
int trainer_main(int argc, char **argv, const char *name, store_open *shared);

#endif
