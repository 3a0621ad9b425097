/* test_err.c - one sentence for people, whatever is in it. */
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void the_first_failure_is_kept(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(&err, ERR_IO, "open %s", "a"), ERR_IO);
    assert_int_equal(err_set(&err, ERR_INVALID, "b"), ERR_IO);
    assert_string_equal(err.text, "open a");
    assert_int_equal(err_context(&err, "c"), ERR_IO);
    assert_string_equal(err.text, "c: open a");
    assert_int_equal(err_set(NULL, ERR_NOMEM, "d"), ERR_NOMEM);
}

/* Of every length around that of the text, and far beyond: a path may have 4,095 bytes. */
static void a_long_name_does_not_push_out_the_reason(void **state)
{
    (void)state;
    static char name[20000];
    memset(name, 'x', sizeof name - 1);
    for (size_t length = 900; length < sizeof name; length += length < 1100 ? 1 : 997) {
        struct err err = {0};
        err_set(&err, ERR_IO, "create %.*s: %s", (int)length, name, "No such file or directory");
        const size_t got = strlen(err.text);
        assert_true(strncmp(err.text, "create xxx", 10) == 0);
        if (length < 5000)
            assert_string_equal(err.text + got - 27, ": No such file or directory");
        assert_int_equal(strstr(err.text, "...") != NULL, 7 + length + 27 >= sizeof err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_failure_is_kept),
        cmocka_unit_test(a_long_name_does_not_push_out_the_reason),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
