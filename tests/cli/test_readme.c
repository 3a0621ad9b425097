/* test_readme.c - what README.md and the reports say was checked is what was checked. */
#include "tests/support/truth_table.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

/* ---- the recordings ---- */

#define TRUTH "tests/data/truth"

static char *read_page(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = fopen(TRUTH "/README.md", "r");
    assert_non_null(file);
    assert_true(getdelim(&text, &size, '\0', file) > 0);
    fclose(file);
    return text;
}

static unsigned long rows_of(const char *name)
{
    char path[512];
    unsigned long rows = 0;
    snprintf(path, sizeof path, TRUTH "/%s", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int c; (c = getc_unlocked(file)) != EOF;)
        rows += c == '\n';
    fclose(file);
    return rows;
}

/* "| NAME | ROWS | where it is from |" */
static void recordings_are_counted_where_they_are_described(void **state)
{
    (void)state;
    char *page = read_page(), row[512];
    DIR *folder = opendir(TRUTH);
    unsigned long files = 0;
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const char *ending = strrchr(entry->d_name, '.');
        if (!ending || strcmp(ending, ".jsonl") != 0)
            continue;
        files++;
        snprintf(row, sizeof row, "\n| %s | %lu |", entry->d_name, rows_of(entry->d_name));
        if (!strstr(page, row))
            fail_msg("%s/README.md has no row that begins with%s", TRUTH, row);
    }
    closedir(folder);
    free(page);
    assert_true(files > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_those_of_the_recordings_and_reports),
        cmocka_unit_test(recordings_are_counted_where_they_are_described),
    };
    return cmocka_run_group_tests_name("readme", tests, NULL, NULL);
}
