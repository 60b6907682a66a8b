/* The safetensors reader and writer: a round trip, a table of malformed headers, and headers that
 * were damaged at random (the reader must answer, within bounds; run under ASan it proves so). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "client/examples/gpt/safetensors.h"
#include "tests/base/suite.h"

#define ONE(name, shape, begin, end)                                                               \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static int parse(const char *text, uint64_t data_bytes, struct err *e) {
    struct safetensors_entry *entries = NULL;
    size_t count = 0;
    /* An exact copy on the heap, so that reading one byte too far shows. */
    const size_t bytes = strlen(text);
    char *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, text, bytes);
    const int rc = safetensors_parse(exact, bytes, data_bytes, &entries, &count, e);
    free(exact);
    if (rc == 0) {
        free(entries);
    }
    return rc;
}

START_TEST(accepts) {
    static const struct {
        const char *text;
        uint64_t data_bytes;
    } good[] = {
        {"{}", 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}  ", 0},
        {"{" ONE("a", "[2,3]", 0, 24) "}", 24},
        {"{" ONE("b", "[]", 24, 28) "," ONE("a", "[2,3]", 0, 24) "}", 28},
        {"{ \"a\" : { \"data_offsets\" : [ 0 , 0 ] , \"shape\" : [ 0 , 7 ] , "
         "\"dtype\" : \"F32\" } }\n",
         0},
        {"{" ONE("\\u0041\\n\\\"", "[1]", 0, 4) "}", 4},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct err e = {0};
        ck_assert_msg(parse(good[i].text, good[i].data_bytes, &e) == 0, "%s: %s", good[i].text,
                      e.text);
    }
}
END_TEST

START_TEST(refuses) {
    static const struct {
        const char *text, *part; /* a part of the message */
    } bad[] = {
        {"", "'{' is missing"},
        {" {}", "'{' is missing"},
        {"{", "string is missing"},
        {"{} x", "text after the end"},
        {"{" ONE("a", "[6]", 0, 24) "}}", "text after the end"},
        {"{" ONE("a", "[6]", 0, 24) ",}", "string is missing"},
        {"{" ONE("a", "[6]", 0, 24) "," ONE("a", "[0]", 24, 24) "}", "a is there twice"},
        {"{" ONE("a", "[4]", 0, 16) "," ONE("b", "[4]", 8, 24) "}", "overlaps"},
        {"{" ONE("a", "[2]", 0, 8) "," ONE("b", "[3]", 12, 24) "}", "hole"},
        {"{" ONE("a", "[5]", 0, 20) "}", "end at byte 20 of 24"},
        {"{" ONE("a", "[7]", 0, 28) "}", "the file has 24"},
        {"{" ONE("a", "[5]", 0, 24) "}", "its shape needs 20"},
        {"{" ONE("a", "[6]", 24, 0) "}", "data_offsets 24 to 0"},
        {"{" ONE("a", "[4294967296,4294967296]", 0, 24) "}", "overflows"},
        {"{" ONE("a", "[18446744073709551616]", 0, 24) "}", "over 64 bits"},
        {"{" ONE("a", "[06]", 0, 24) "}", "leading 0"},
        {"{" ONE("a", "[-6]", 0, 24) "}", "whole number is missing"},
        {"{" ONE("a", "[6.0]", 0, 24) "}", "']' is missing"},
        {"{" ONE("a", "[1,1,1,1,1,1,1,1,6]", 0, 24) "}", "too long"},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[0,24]}}", "only F32"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[6]}}", "without dtype, shape or data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "given before"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[24]}}", "two numbers"},
        {"{\"a\":{\"color\":\"red\"}}", "only dtype, shape and data_offsets"},
        {"{\"a\":7}", "'{' is missing"},
        {"{\"\\u0000\":{}}", "malformed string"},
        {"{\"\\ud800\":{}}", "malformed string"},
        {"{\"\\x\":{}}", "malformed string"},
        {"{\"a\nb\":{}}", "malformed string"},
        {"{\"a", "'\"' is missing"},
        {"{\"a\\", "malformed string"},
        {"{\"__metadata__\":{\"a\":1}}", "string is missing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        ck_assert_msg(parse(bad[i].text, 24, &e) == -ST_INVALID_ARGUMENT, "accepted: %s",
                      bad[i].text);
        ck_assert_msg(strstr(e.text, bad[i].part) != NULL, "%s: '%s' lacks '%s'", bad[i].text,
                      e.text, bad[i].part);
    }
    char longer[300] = "{\"";
    memset(longer + 2, 'n', 128);
    struct err e;
    ck_assert_int_eq(parse(longer, 24, &e), -ST_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(e.text, "127 bytes"));
}
END_TEST

START_TEST(survives_damage) {
    const uint64_t seed = 7;
    static const char good[] = "{\"__metadata__\":{\"k\":\"v\"}," ONE(
        "block0.qkv", "[2,3]", 0, 24) "," ONE("b\\u00e9", "[]", 24, 28) "}   ";
    size_t accepted = 0;
    printf("safetensors: seed %ju\n", (uintmax_t)seed);
    for (uint64_t round = 0; round < 200000; round++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        for (uint64_t change = 0; change <= round % 3; change++) {
            const uint64_t h = mix64(mix64(seed ^ round) ^ change);
            static const char likely[] = "{}[]\",:\\u0129 -x\xff\x01";
            text[(h >> 32) % (sizeof good - 1)] =
                h & 1 ? likely[(h >> 8) % (sizeof likely - 1)] : (char)(1 + (h >> 8) % 255);
        }
        if (round % 7 == 0) {
            text[mix64(round) % sizeof good] = '\0';
        }
        struct err e;
        accepted += parse(text, 28, &e) == 0;
    }
    ck_assert_uint_gt(accepted, 0);
    ck_assert_uint_lt(accepted, 100000);
}
END_TEST

START_TEST(round_trip) {
    char path[] = "/tmp/zerod-safetensors-XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    const uint64_t shape_a[] = {2, 3}, shape_b[] = {0}, shape_c[] = {4};
    const float a[6] = {1, -2, 3.5f, 0, 1e-30f, 7}, c[4] = {9, 8, 7, 6};
    const struct safetensors_tensor list[] = {
        {"z.weight", 2, shape_a, a}, {"empty", 1, shape_b, NULL}, {"a.bias", 1, shape_c, c}};
    struct err e = {0};
    struct safetensors f;
    const struct safetensors_entry *entry = NULL;
    float got[6];
    ck_assert_int_eq(safetensors_write(path, 3, list, &e), 0);
    ck_assert_msg(safetensors_open(&f, path, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(f.count, 3);
    ck_assert_uint_eq(f.data_start % 8, 0);
    ck_assert_int_eq(safetensors_find(&f, "z.weight", 2, shape_a, &entry, &e), 0);
    ck_assert_int_eq(safetensors_read(&f, entry, got, &e), 0);
    ck_assert(memcmp(got, a, sizeof a) == 0);
    ck_assert_int_eq(safetensors_find(&f, "a.bias", 1, shape_c, &entry, &e), 0);
    ck_assert_int_eq(safetensors_read(&f, entry, got, &e), 0);
    ck_assert(memcmp(got, c, sizeof c) == 0);
    ck_assert_int_eq(safetensors_find(&f, "a.bias", 2, shape_a, &entry, &e), -ST_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(e.text, "tensor a.bias is [4], the model's is [2, 3]"));
    ck_assert_int_eq(safetensors_find(&f, "q", 1, shape_c, &entry, &e), -ST_INVALID_ARGUMENT);
    safetensors_close(&f);
    ck_assert_int_eq(truncate(path, 60), 0);
    ck_assert_int_eq(safetensors_open(&f, path, &e), -ST_INVALID_ARGUMENT);
    ck_assert_int_eq(truncate(path, 5), 0);
    ck_assert_int_eq(safetensors_open(&f, path, &e), -ST_INVALID_ARGUMENT);
    unlink(path);
    ck_assert_int_eq(safetensors_open(&f, path, &e), -ST_NOT_FOUND);
    ck_assert_int_eq(safetensors_write("/nowhere/x", 3, list, &e), -ST_NOT_FOUND);
}
END_TEST

int main(void) {
    Suite *s = suite_create("safetensors");
    TCase *t = tcase_create("safetensors");
    tcase_set_timeout(t, 30);
    tcase_add_test(t, accepts);
    tcase_add_test(t, refuses);
    tcase_add_test(t, survives_damage);
    tcase_add_test(t, round_trip);
    suite_add_tcase(s, t);
    return run_suite(s);
}
