/* A folder of a test's own, with files written from text. */
#ifndef ZD_TESTS_ZEROCTL_TEMPORARY_H
#define ZD_TESTS_ZEROCTL_TEMPORARY_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEMPORARY_PATH = 256, TEMPORARY_FILES = 8 };

static struct {
    char folder[64];
    char files[TEMPORARY_FILES][TEMPORARY_PATH];
    int count;
} temporary;

static inline void temporary_begin(void) {
    strcpy(temporary.folder, "/tmp/zerod-plan-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(temporary.folder));
    temporary.count = 0;
}

static inline void temporary_end(void) {
    while (temporary.count) {
        (void)unlink(temporary.files[--temporary.count]);
    }
    ck_assert_int_eq(rmdir(temporary.folder), 0);
}

/* Writes (again) a file; returns its path. */
static inline const char *temporary_file(const char *name, const void *bytes, size_t n) {
    char path[TEMPORARY_PATH];
    int i = 0;
    (void)snprintf(path, sizeof path, "%s/%s", temporary.folder, name);
    while (i < temporary.count && strcmp(temporary.files[i], path)) {
        i++;
    }
    ck_assert_int_lt(i, TEMPORARY_FILES);
    strcpy(temporary.files[i], path);
    temporary.count = i == temporary.count ? i + 1 : temporary.count;
    (void)unlink(path); /* truncating would make ext4 flush it when it is closed */
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
    return temporary.files[i];
}

/* A safetensors file of this header and |data| zero bytes; |length| 0: the header's own. */
static inline const char *temporary_tensors(const char *name, const char *header, uint64_t length,
                                            size_t data) {
    const size_t n = strlen(header);
    char *bytes = calloc(8 + n + data, 1);
    ck_assert_ptr_nonnull(bytes);
    length = length ? length : n;
    for (int i = 0; i < 8; i++) {
        bytes[i] = (char)(length >> (8 * i) & 0xFF);
    }
    memcpy(bytes + 8, header, n);
    const char *path = temporary_file(name, bytes, 8 + n + data);
    free(bytes);
    return path;
}

#endif
