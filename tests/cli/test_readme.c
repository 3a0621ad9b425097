/* test_readme.c - what README.md and the reports say was checked is what was checked. */
#include "tests/support/truth_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_table(const struct truth_table *table)
{
    char *made = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&made, &size);
    assert_non_null(memory);
    const bool written = truth_table_write(table, memory);
    fclose(memory);
    assert_true(written);
    char *page = truth_table_of_page(table);
    assert_non_null(page);
    char *save_made = NULL, *save_page = NULL;
    const char *ours = strtok_r(made, "\n", &save_made);
    const char *said = strtok_r(page, "\n", &save_page);
    for (; ours && said;
         ours = strtok_r(NULL, "\n", &save_made), said = strtok_r(NULL, "\n", &save_page))
        if (strcmp(ours, said) != 0)
            fail_msg("%s says\n  %s\nand it is\n  %s\n(make validation)", table->page, said, ours);
    assert_null(ours);
    assert_null(said);
    free(made);
    free(page);
}

static void tables_are_those_of_the_recordings_and_reports(void **state)
{
    (void)state;
    for (int i = 0; i < TRUTH_TABLES; i++)
        check_table(&truth_tables[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_those_of_the_recordings_and_reports),
    };
    return cmocka_run_group_tests_name("readme", tests, NULL, NULL);
}
