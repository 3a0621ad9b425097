/* test_readme.c - what README.md says was checked is what was checked. */
#include "tests/support/truth_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_table_is_that_of_the_recordings_and_reports(void **state)
{
    (void)state;
    char *table = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&table, &size);
    assert_non_null(memory);
    const bool written = truth_table_write(memory);
    fclose(memory);
    assert_true(written);
    char *readme = truth_table_of_readme();
    assert_non_null(readme);
    char *save_table = NULL, *save_readme = NULL;
    const char *ours = strtok_r(table, "\n", &save_table);
    const char *said = strtok_r(readme, "\n", &save_readme);
    for (; ours && said;
         ours = strtok_r(NULL, "\n", &save_table), said = strtok_r(NULL, "\n", &save_readme))
        if (strcmp(ours, said) != 0)
            fail_msg("README.md says\n  %s\nand it is\n  %s\n(make validation)", said, ours);
    assert_null(ours);
    assert_null(said);
    free(table);
    free(readme);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_that_of_the_recordings_and_reports),
    };
    return cmocka_run_group_tests_name("readme", tests, NULL, NULL);
}
