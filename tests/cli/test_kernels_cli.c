/* test_kernels_cli.c - shardplan kernels as scripts call it. */
#include "base/csv.h"
#include "tests/support/program.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void parse(struct csv_table *table)
{
    struct err err = {0};
    if (csv_table_parse("output", strdup(program_output()), table, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

/* Every cell of the table comes back, with one more, or three of a norm. */
static void a_table_comes_back_with_predictions(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t more;
    } tables[] = {
        {"kernels", 1}, {"matmul_h100", 1}, {"attention_training", 1}, {"norms_training", 3}};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        struct csv_table in, out;
        struct err err = {0};
        char path[128];
        snprintf(path, sizeof path, "tests/data/gpu/%s.csv", tables[t].name);
        assert_int_equal(csv_table_read(path, &in, &err), ERR_OK);
        assert_int_equal(shell("^/shardplan kernels %s --clock burst", path), 0);
        parse(&out);
        assert_int_equal(out.rows, in.rows);
        assert_int_equal(out.columns, in.columns + tables[t].more);
        assert_int_equal(csv_table_column(&out, "predicted_us"), in.columns);
        uint32_t predicted = 0;
        for (uint32_t i = 0; i < in.rows; i++) {
            for (uint32_t k = 0; k < in.columns; k++)
                assert_string_equal(csv_table_cell(&out, i, k), csv_table_cell(&in, i, k));
            const char *us = csv_table_cell(&out, i, in.columns);
            assert_true(!*us || strtod(us, NULL) > 0);
            predicted += *us != '\0';
        }
        assert_true(predicted > in.rows / 4);
        csv_table_free(&in);
        csv_table_free(&out);
    }
}

/* --gpu stands for every row; hours at the limit of power are no faster than a burst. */
static void a_gpu_and_a_clock_can_be_chosen(void **state)
{
    (void)state;
    const char *const table = "tests/data/gpu/matmul_h100.csv";
    struct csv_table burst, sustained, other;
    assert_int_equal(shell("^/shardplan kernels %s --clock burst", table), 0);
    parse(&burst);
    assert_int_equal(shell("^/shardplan kernels %s", table), 0);
    parse(&sustained);
    assert_int_equal(shell("^/shardplan kernels %s --gpu A100", table), 0);
    parse(&other);
    const uint32_t column = csv_table_column(&burst, "predicted_us");
    uint32_t slower = 0;
    for (uint32_t i = 0; i < burst.rows; i++) {
        const double b = strtod(csv_table_cell(&burst, i, column), NULL);
        const double s = strtod(csv_table_cell(&sustained, i, column), NULL);
        assert_true(s >= b);
        slower += s > 1.1 * b;
        assert_true(strtod(csv_table_cell(&other, i, column), NULL) != s);
    }
    assert_true(slower > 20);
    csv_table_free(&burst);
    csv_table_free(&sustained);
    csv_table_free(&other);
}

static void json_is_one_object(void **state)
{
    (void)state;
    assert_int_equal(shell("^/shardplan kernels tests/data/gpu/norms_training.csv --json"), 0);
    json_t *root = json_loads(program_output(), 0, NULL);
    const json_t *rows = json_object_get(root, "kernels");
    assert_int_equal(json_array_size(rows), 86);
    assert_true(json_is_null(json_object_get(json_array_get(rows, 0), "predicted_us")));
    assert_true(json_is_real(json_object_get(json_array_get(rows, 1), "predicted_us")));
    json_decref(root);
}

static void bad_input_is_refused_by_line(void **state)
{
    (void)state;
    assert_int_equal(shell("^/shardplan kernels 2>&1"), 2);
    assert_non_null(strstr(program_output(), "FILE.csv is missing"));
    assert_int_equal(shell("^/shardplan kernels /nowhere.csv 2>&1"), 2);
    assert_int_equal(shell("^/shardplan kernels tests/data/published/llmfoundry_a100.csv 2>&1"), 2);
    assert_non_null(strstr(program_output(), "no table of kernels"));
    assert_int_equal(
        shell("printf 'gpu,dtypes,batch,m,n,k\\nh100,bf16xbf16->bf16,1,2,3\\n' > /tmp/k$$.csv; "
              "^/shardplan kernels /tmp/k$$.csv 2>&1; s=$?; rm /tmp/k$$.csv; exit $s"),
        2);
    assert_non_null(strstr(program_output(), ".csv:2: 5 cells, where the header has 6"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_comes_back_with_predictions),
        cmocka_unit_test(a_gpu_and_a_clock_can_be_chosen),
        cmocka_unit_test(json_is_one_object),
        cmocka_unit_test(bad_input_is_refused_by_line),
    };
    return cmocka_run_group_tests_name("kernels_cli", tests, NULL, NULL);
}
