/* test_options.c - what all lines of options have is said once, and nothing is lost by it. */
#include "report/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void what_all_have_is_said_once(void **state)
{
    (void)state;
    struct arena arena = {0};
    static const char *const texts[] = {
        "--accumulate 8 --units torchtitan --keep-unsharded 16 --optimizer-impl fused",
        "--units torchtitan --keep-unsharded 1 --accumulate 8",
        "--accumulate 8 --units torchtitan",
    };
    static const char *const rest[] = {"--keep-unsharded 16 --optimizer-impl fused",
                                       "--keep-unsharded 1", ""};
    const char *common = options_common(texts, 3, &arena);
    assert_string_equal(common, "--accumulate 8 --units torchtitan");
    for (int i = 0; i < 3; i++)
        assert_string_equal(options_besides(texts[i], common, &arena), rest[i]);
    arena_free(&arena);
}

static void values_that_begin_alike_are_others(void **state)
{
    (void)state;
    struct arena arena = {0};
    static const char *const texts[] = {"--keep-unsharded 16", "--keep-unsharded 1"};
    static const char *const none[] = {"--units 2", "as it is"};
    assert_string_equal(options_common(texts, 2, &arena), "");
    assert_string_equal(options_common(none, 2, &arena), "");
    assert_string_equal(options_besides("as it is", "", &arena), "as it is");
    assert_string_equal(options_common(texts, 1, &arena), ""); /* of one line nothing is common */
    assert_string_equal(options_common(texts, 0, &arena), "");
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_all_have_is_said_once),
        cmocka_unit_test(values_that_begin_alike_are_others),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
