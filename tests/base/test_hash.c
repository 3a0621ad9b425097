/* test_hash.c - XXH64 of texts whose hashes others published (github.com/Cyan4973/xxHash and
 * github.com/ifduyu/python-xxhash), whole and in pieces. */
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint64_t hash_of(const char *text, size_t bytes, size_t piece)
{
    struct hash hash;
    hash_begin(&hash);
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < piece ? bytes - at : piece;
        hash_add(&hash, text + at, n);
    }
    return hash_end(&hash);
}

static void hashes_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t hash;
    } cases[] = {
        {"", 0xef46db3751d8e999ULL},
        {"a", 0xd24ec4f1a98c6e5bULL},
        {"abc", 0x44bc2cf5ad770999ULL},
        {"Nobody inspects the spammish repetition", 0xfbcea83c8a378bf1ULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(hash_of(cases[i].text, strlen(cases[i].text), 64) == cases[i].hash);
}

static void pieces_of_any_size_give_the_same(void **state)
{
    (void)state;
    char text[200];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 37 + 11);
    for (size_t bytes = 0; bytes <= sizeof text; bytes++)
        for (size_t piece = 1; piece < 70; piece++)
            assert_true(hash_of(text, bytes, piece) == hash_of(text, bytes, sizeof text));
}

static void every_bit_counts(void **state)
{
    (void)state;
    char text[100] = "";
    const uint64_t before = hash_of(text, sizeof text, 100);
    for (size_t i = 0; i < sizeof text; i++)
        for (int bit = 0; bit < 8; bit++) {
            text[i] = (char)(text[i] ^ 1 << bit);
            assert_true(hash_of(text, sizeof text, 100) != before);
            text[i] = (char)(text[i] ^ 1 << bit);
        }
    assert_true(hash_of(text, 99, 100) != before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_the_published_ones),
        cmocka_unit_test(pieces_of_any_size_give_the_same),
        cmocka_unit_test(every_bit_counts),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
