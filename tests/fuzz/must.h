/* What a target demands of the code that it feeds, and reading the bytes that it is fed with. */
#ifndef ZD_FUZZ_MUST_H
#define ZD_FUZZ_MUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Says what was broken, so that tests/fuzz/run can tell one finding from another. */
static inline void must(bool ok, const char *rule) {
    if (!ok) {
        (void)fprintf(stderr, "broken: %s\n", rule);
        abort();
    }
}

struct input {
    const uint8_t *at;
    size_t left;
};

/* 0 behind the end. */
static inline uint8_t input_byte(struct input *in) {
    if (!in->left) {
        return 0;
    }
    in->left--;
    return *in->at++;
}

/* A length byte, then as many bytes as there are of that; |*n| says how many. */
static inline const uint8_t *input_piece(struct input *in, size_t *n) {
    const uint8_t *piece;
    *n = input_byte(in);
    *n = *n < in->left ? *n : in->left;
    piece = in->at;
    in->at += *n;
    in->left -= *n;
    return piece;
}

#endif
