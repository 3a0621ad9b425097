/* test_circles.c - no file, and no folder, needs another in a circle (tools/circles). */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_build_has_no_circle(void **state)
{
    (void)state;
    if (shell("tools/circles ^") != 0)
        fail_msg("tools/circles:\n%s", program_output());
}

/* So that the tool is known to find one: two files that call each other, and a third that calls
 * one. */
static void a_circle_is_found(void **state)
{
    (void)state;
    char *folder = folder_new("circles");
    assert_int_equal(
        shell("cd '%s' && mkdir -p planner/a runtime traces && cd planner/a &&"
              "echo 'void y(void); void x(void); void x(void) { y(); }' >x.c &&"
              "echo 'void x(void); void y(void); void y(void) { x(); }' >y.c &&"
              "echo 'void x(void); void z(void); void z(void) { x(); }' >z.c && gcc -c x.c y.c z.c",
              folder),
        0);
    assert_int_equal(shell("tools/circles '%s'", folder), 1);
    assert_non_null(strstr(program_output(), "planner/a/x"));
    assert_non_null(strstr(program_output(), "planner/a/y"));
    assert_null(strstr(program_output(), "planner/a/z"));
    assert_int_equal(folder_remove(folder), 0);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_build_has_no_circle),
        cmocka_unit_test(a_circle_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
