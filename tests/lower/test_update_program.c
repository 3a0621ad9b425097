/* test_update_program.c - what one update of torchao's allocates, beside Inductor's programs. */
#include "lower/update_program.h"
#include "tests/support/truth.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS "tests/data/truth/compile_optimizers.jsonl"

static uint64_t elements_of(const json_t *row)
{
    uint64_t elements = 1;
    size_t i;
    const json_t *dim;
    json_array_foreach(json_object_get(row, "shape"), i, dim) elements *=
        (uint64_t)json_integer_value(dim);
    return elements;
}

static uint64_t bytes_of(uint32_t buffer, uint64_t elements)
{
    return update_program_elements(buffer, elements) * dtype_bytes(update_program_dtype(buffer));
}

/* The program's memory goes by other names there: a name's buffer is what was born under it. */
struct names {
    const char *of[PROGRAM_BUFFERS];
};

static void check_event(const json_t *recorded, const struct program_event *ours, uint64_t elements,
                        struct names *names)
{
    const char *what = json_string_value(json_array_get(recorded, 0));
    const char *name = json_string_value(json_array_get(recorded, 1));
    if (ours->what == PROGRAM_RUN) {
        assert_string_equal(what, "kernel");
        return;
    }
    assert_string_equal(what, ours->what == PROGRAM_BIRTH ? "+" : "-");
    if (ours->what == PROGRAM_BIRTH) {
        assert_int_equal(json_integer_value(json_array_get(recorded, 2)),
                         bytes_of(ours->of, elements));
        names->of[ours->of] = name;
    } else {
        assert_string_equal(name, names->of[ours->of]);
    }
}

/* Inputs die in it, too, which the host holds. */
static bool is_of_inputs(const json_t *event)
{
    const char *what = json_string_value(json_array_get(event, 0));
    const char *name = json_string_value(json_array_get(event, 1));
    return strcmp(what, "out") == 0 || (strcmp(what, "-") == 0 && strncmp(name, "buf", 3) != 0);
}

static void check_row(const json_t *row)
{
    const uint64_t elements = elements_of(row);
    const json_t *events = json_object_get(row, "program");
    const bool coded = elements >= 4096 && elements % STATES_BLOCK == 0;
    const struct update_program program =
        update_program(coded ? truth_number(row, "bits", 0) : 0, elements);
    struct names names = {{0}};
    uint32_t next = 0;
    size_t i;
    const json_t *event;
    json_array_foreach(events, i, event)
    {
        if (is_of_inputs(event))
            continue;
        if (next == program.count)
            fail_msg("%s: more than %u events", truth_text(row, "name", ""), next);
        check_event(event, &program.events[next++], elements, &names);
    }
    assert_int_equal(next, program.count);
}

static void programs_are_inductors(void **state)
{
    (void)state;
    FILE *file = fopen(ROWS, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t size = 0, rows = 0;
    for (; getline(&line, &size, file) > 0; rows++) {
        json_t *row = truth_row(line);
        check_row(row);
        json_decref(row);
    }
    free(line);
    fclose(file);
    assert_true(rows > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_are_inductors)};
    return cmocka_run_group_tests_name("update_program", tests, NULL, NULL);
}
