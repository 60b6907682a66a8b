/* gpt: trains through zerod (started by zerorun), or alone with --standalone. */
#include "trainer.h"

int main(int argc, char **argv) {
    return trainer_main(argc, argv, "gpt", store_zerod_open);
}
