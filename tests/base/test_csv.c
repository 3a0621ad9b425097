/* test_csv.c - tables as people write them, and what is wrong with others, by line. */
#include "base/csv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum err_code parse(const char *text, struct csv_table *table, struct err *err)
{
    return csv_table_parse("a.csv", strdup(text), table, err);
}

/* RFC 4180, section 2, with a byte order mark, empty lines and both kinds of line ends. */
static void cells_are_what_was_written(void **state)
{
    (void)state;
    struct csv_table t;
    struct err err = {0};
    assert_int_equal(parse("\xef\xbb\xbf"
                           "a,b,c\r\n"
                           "1,\"x, y\",3\n"
                           "\n"
                           "\"he said \"\"no\"\"\",,\"two\nlines\"\r\n"
                           "last,row,",
                           &t, &err),
                     ERR_OK);
    assert_int_equal(t.columns, 3);
    assert_int_equal(t.rows, 3);
    assert_int_equal(csv_table_column(&t, "a"), 0);
    assert_int_equal(csv_table_column(&t, "c"), 2);
    assert_int_equal(csv_table_column(&t, "d"), UINT32_MAX);
    assert_string_equal(csv_table_cell(&t, 0, 1), "x, y");
    assert_string_equal(csv_table_cell(&t, 1, 0), "he said \"no\"");
    assert_string_equal(csv_table_cell(&t, 1, 1), "");
    assert_string_equal(csv_table_cell(&t, 1, 2), "two\nlines");
    assert_string_equal(csv_table_cell(&t, 2, 2), "");
    assert_int_equal(t.lines[1], 2);
    assert_int_equal(t.lines[2], 4);
    assert_int_equal(t.lines[3], 6);
    csv_table_free(&t);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    static const char *const cells[] = {"plain", "", "a,b", "\"", "two\nlines", "[[1, 2], []]"};
    char text[256] = {0};
    struct csv_table t;
    struct err err = {0};
    FILE *file = fmemopen(text, sizeof text, "w");
    for (int i = 0; i < 6; i++) {
        if (i)
            fputc(',', file);
        csv_write(file, cells[i]);
    }
    fclose(file);
    assert_int_equal(parse(text, &t, &err), ERR_OK);
    for (uint32_t i = 0; i < 6; i++)
        assert_string_equal(t.cells[i], cells[i]);
    csv_table_free(&t);
}

static void bad_tables_are_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "a.csv: it is empty"},
        {"\n\n", "a.csv: it is empty"},
        {"a,b\n1,2\n3\n", "a.csv:3: 1 cells, where the header has 2"},
        {"a,b\n1,2,3\n", "a.csv:2: 3 cells"},
        {"a,b\n1,\"2\n", "a.csv:2: a quote is not closed"},
        {"a,b\n\"x\"y,2\n", "a.csv:2: \"y\" after a closing quote"},
        {"a,b\n\"x\ny\",1\n3\n", "a.csv:4: 1 cells"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct csv_table t;
        struct err err = {0};
        assert_int_equal(parse(bad[i].text, &t, &err), ERR_INVALID);
        if (!strstr(err.text, bad[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_what_was_written),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(bad_tables_are_refused_by_line),
    };
    return cmocka_run_group_tests_name("csv", tests, NULL, NULL);
}
