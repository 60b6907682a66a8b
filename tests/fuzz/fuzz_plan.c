/* libFuzzer: model files as `zeroctl plan` reads them (config.json, an index, safetensors), up to
 * the printed table. Byte 0: the world size. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok) {
    if (!ok) {
        abort();
    }
}

static void make_table(const struct model *m, unsigned world, const struct plan_lines *notes) {
    static FILE *nowhere;
    struct plan_table t;
    struct err e = {0};
    struct plan_request r = {.model = m,
                             .world = world,
                             .shard_size = world % 2 ? 0 : world / 2,
                             .slots = {2, 2},
                             .device_memory = UINT64_C(80000000000)};
    nowhere = nowhere ? nowhere : fopen("/dev/null", "we");
    if (plan_table_init(&t, &r, &e)) {
        must(e.code != 0);
        return;
    }
    plan_print(&t, notes, true, nowhere);
    cJSON_Delete(plan_json(&t, notes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[32];
    static struct plan_lines notes;
    struct model m = {0};
    struct err e = {0};
    if (size < 2) {
        return 0;
    }
    int fd = memfd_create("model", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    notes.count = 0;
    model_defaults(&m);
    int rv = plan_model_read(&m, path, &notes, &e);
    must((rv == 0) == (e.code == 0));
    if (rv == 0 && plan_model_finish(&m, &e) == 0) {
        make_table(&m, 1 + data[0] % 16, &notes);
    }
    model_free(&m);
    close(fd);
    return 0;
}
