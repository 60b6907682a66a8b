#include <string.h>

#include "base/crc.h"
#include "tests/base/suite.h"

START_TEST(known_values) {
    uint8_t bytes[32];
    ck_assert_uint_eq(crc32c("123456789", 9), 0xE3069283u);
    ck_assert_uint_eq(crc32c("", 0), 0);
    memset(bytes, 0, sizeof bytes); /* RFC 3720, B.4: 32 bytes of zeros, of ones, ascending */
    ck_assert_uint_eq(crc32c(bytes, sizeof bytes), 0x8A9136AAu);
    memset(bytes, 0xFF, sizeof bytes);
    ck_assert_uint_eq(crc32c(bytes, sizeof bytes), 0x62A8AB43u);
    for (uint8_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = i;
    }
    ck_assert_uint_eq(crc32c(bytes, sizeof bytes), 0x46DD794Eu);
}
END_TEST

START_TEST(sees_every_flipped_bit) {
    uint8_t bytes[64];
    memset(bytes, 0x5A, sizeof bytes);
    uint32_t good = crc32c(bytes, sizeof bytes);
    for (unsigned bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_uint_ne(crc32c(bytes, sizeof bytes), good);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("crc");
    TCase *t = tcase_create("all");
    tcase_add_test(t, known_values);
    tcase_add_test(t, sees_every_flipped_bit);
    suite_add_tcase(s, t);
    return run_suite(s);
}
