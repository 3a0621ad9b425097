/* test_number.c - typed numbers beside what bash, SI and IEC 80000-13 say they are. */
#include "base/number.h"

#include <float.h>
#include <gsl/gsl_rng.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void whole_numbers_are_read_whole_or_not_at_all(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "+1",
                                      "-1",
                                      "1.0",
                                      "1e3",
                                      "0x1",
                                      "1,0",
                                      "12ab",
                                      "inf",
                                      "nan",
                                      "18446744073709551616"};
    uint64_t value;
    assert_true(number_integer("0", &value) && value == 0);
    assert_true(number_integer("007", &value) && value == 7);
    assert_true(number_integer("4294967296", &value) && value == (uint64_t)1 << 32);
    assert_true(number_integer("18446744073709551615", &value) && value == UINT64_MAX);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (number_integer(bad[i], &value))
            fail_msg("\"%s\" was read as %llu", bad[i], (unsigned long long)value);
}

static void real_numbers_are_finite_decimals(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    ".",    "e5",  "1e",       "1e+",   "--1",   "1.2.3",
                                      "inf", "-inf", "nan", "nan(1)",   "0x1p3", "1e999", " 1",
                                      "1 ",  "1f",   "1_0", "infinity", "1e3x",  "1,5"};
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1", 1},       {"-0.5", -0.5}, {".5", .5},       {"5.", 5},    {"+2", 2},
                {"1e-3", 1e-3}, {"1E3", 1000},  {"1e300", 1e300}, {"1e-999", 0}};
    double value;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (number_real(bad[i], &value))
            fail_msg("\"%s\" was read as %g", bad[i], value);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!number_real(good[i].text, &value) || value != good[i].value)
            fail_msg("\"%s\": %g", good[i].text, value);
}

static void sizes_have_the_units_of_si_and_iec(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"4096", 4096},
        {"1B", 1},
        {"1KB", 1000},
        {"1kib", 1024},
        {"500MB", 500000000},
        {"1MiB", 1048576},
        {"80GiB", 85899345920},
        {"1.5gb", 1500000000},
        {"2TB", 2000000000000},
        {"1TiB", 1099511627776},
        {"9223372036854775807", INT64_MAX},
        {"9007199254740993B", 9007199254740993}, /* 2^53 + 1: no double */
    };
    static const char *const bad[] = {"",
                                      "MB",
                                      "80G",
                                      "80 GiB",
                                      "-1GiB",
                                      "infGiB",
                                      "1e300",
                                      "9e18GB",
                                      "1GiBs",
                                      "0x10MB",
                                      "1GiB ",
                                      "nanMB",
                                      "9223372036854775808",
                                      "99999999999999999999TiB",
                                      "1e3",
                                      "0.5"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!number_bytes(good[i].text, &bytes) || bytes != good[i].bytes)
            fail_msg("%s: %llu", good[i].text, (unsigned long long)bytes);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (number_bytes(bad[i], &bytes))
            fail_msg("\"%s\" was read as %llu", bad[i], (unsigned long long)bytes);
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    char text[NUMBER_TEXT];
    uint64_t bytes;
    double value;
    assert_string_equal(number_bytes_text(500000000, text), "500MB");
    assert_string_equal(number_bytes_text((uint64_t)80 << 30, text), "80GiB");
    assert_string_equal(number_bytes_text(4097, text), "4097B");
    assert_string_equal(number_bytes_text(0, text), "0B");
    assert_string_equal(number_real_text(1e-3, false, text), "0.001");
    assert_string_equal(number_real_text((double)0.1F, true, text), "0.1");
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    for (int i = 0; i < 10000; i++) {
        const uint64_t wanted = (gsl_rng_get(random) * 4294967296ULL + gsl_rng_get(random)) >>
                                (1 + gsl_rng_uniform_int(random, 62));
        assert_true(number_bytes(number_bytes_text(wanted, text), &bytes));
        assert_int_equal(bytes, wanted);
        const double real = gsl_rng_uniform(random) * (i % 2 ? 1e-9 : DBL_MAX / 2);
        assert_true(number_real(number_real_text(real, false, text), &value));
        assert_true(value == real);
        const float single = (float)(gsl_rng_uniform(random) * 1e6);
        assert_true(number_real(number_real_text((double)single, true, text), &value));
        assert_true((float)value == single);
    }
    gsl_rng_free(random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_read_whole_or_not_at_all),
        cmocka_unit_test(real_numbers_are_finite_decimals),
        cmocka_unit_test(sizes_have_the_units_of_si_and_iec),
        cmocka_unit_test(what_is_written_is_read_back),
    };
    return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
