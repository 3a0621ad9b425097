/* test_units.c - the units that are shown are those that FSDP1 and FSDP2 formed.
 *
 * FullyShardedDataParallel says itself what it made: rows of tests/data/truth have its units with
 * the elements of the unsharded flat parameter and of a shard. */
#include "report/units_result.h"

#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* A row's units: [name, elements of the flat parameter, elements of a shard]. */
static void compare_row(const json_t *row, uint32_t *compared)
{
    const json_t *strategy = json_object_get(row, "strategy");
    const json_t *recorded = json_object_get(row, "units");
    struct plan *plan = truth_plan(row, truth_read_written);
    assert_non_null(plan);
    json_t *units = units_json(plan);
    const size_t element = dtype_bytes(
        strcmp(truth_text(strategy, "store_dtype", "fp32"), "bf16") == 0 ? DTYPE_BF16 : DTYPE_FP32);
    size_t i;
    const json_t *unit;
    json_array_foreach(recorded, i, unit)
    {
        size_t k = 0;
        const uint64_t shard = (uint64_t)json_integer_value(json_array_get(unit, 2));
        while (k < json_array_size(units) &&
               number(json_array_get(units, k), "stored_bytes") != shard * element)
            k++;
        if (k == json_array_size(units))
            fail_msg("%s: no unit of %llu elements a shard", truth_text(row, "name", ""),
                     (unsigned long long)shard);
        (*compared)++;
    }
    assert_int_equal(json_array_size(units), json_array_size(recorded));
    json_decref(units);
    plan_free(plan);
}

static void units_are_those_that_fsdp1_made(void **state)
{
    (void)state;
    uint32_t compared = 0, rows = 0;
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen("tests/data/truth/fsdp1_events.jsonl", "r");
    assert_non_null(file);
    while (getline(&line, &size, file) > 0 && rows < 40) {
        json_t *row = truth_row(line);
        const json_t *strategy = json_object_get(row, "strategy");
        const char *sharding = truth_text(strategy, "sharding", "FULL_SHARD");
        if (json_object_get(row, "units") && truth_is_planned(row) &&
            strcmp(sharding, "NO_SHARD") != 0 && !json_object_get(strategy, "freeze")) {
            compare_row(row, &compared);
            rows++;
        }
        json_decref(row);
    }
    free(line);
    fclose(file);
    print_message("units: %u of %u rows\n", compared, rows);
    assert_true(rows >= 20 && compared >= 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_those_that_fsdp1_made),
    };
    return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
