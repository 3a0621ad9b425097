/* test_truth_hf.c - Hugging Face's models: our parameters and events beside the recorded ones.
 *
 * tests/data/truth/hf_events.jsonl, families_events.jsonl, moe_events.jsonl and
 * decoders_events.jsonl hold recordings of transformers' own classes under torch 2.14.1's
 * fully_shard; a row's "model" is a config.json with a batch and a sequence length. */
#include "families/families.h"
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const paths[] = {
    "tests/data/truth/hf_events.jsonl",     "tests/data/truth/families_events.jsonl",
    "tests/data/truth/moe_events.jsonl",    "tests/data/truth/decoders_events.jsonl",
    "tests/data/truth/linear_events.jsonl",
};
enum { PATHS = sizeof paths / sizeof *paths };

/* The shape of a recorded parameter is the same as ours. */
static bool is_shape(const json_t *list, const struct shape *shape)
{
    bool same = json_array_size(list) == shape->rank;
    for (uint32_t i = 0; same && i < shape->rank; i++)
        same = json_integer_value(json_array_get(list, i)) == shape->dim[i];
    return same;
}

static bool same_parameters(const json_t *row)
{
    struct err err = {0};
    struct model_config config;
    struct model_job job = {.compute = DTYPE_FP32, .made = DTYPE_FP32};
    struct graph *graph;
    const char *name = truth_text(row, "name", "");
    if (!truth_read_hf(row, &config, &job))
        return false;
    if (model_build(&config, &job, &graph, &err) != ERR_OK) {
        print_error("%s: %s\n", name, err.text);
        return false;
    }
    const json_t *list = json_object_get(row, "parameter_list");
    bool same = json_array_size(list) == graph->param_count;
    for (uint32_t i = 0; same && i < graph->param_count; i++) {
        const json_t *entry = json_array_get(list, i);
        const char *recorded = json_string_value(json_array_get(entry, 0));
        same = strcmp(recorded, graph->params[i].name) == 0 &&
               is_shape(json_array_get(entry, 1), &graph->params[i].shape);
        if (!same)
            print_error("%s: parameter %u is %s, recorded %s\n", name, i, graph->params[i].name,
                        recorded);
    }
    graph_free(graph);
    return same;
}

static size_t rows_of_other_parameters(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t size = 0, wrong = 0;
    while (getline(&line, &size, file) > 0) {
        json_t *row = truth_row_head(line);
        wrong += !same_parameters(row);
        json_decref(row);
    }
    free(line);
    fclose(file);
    return wrong;
}

static void parameters_are_named_and_ordered_as_in_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < PATHS; i++)
        assert_int_equal(rows_of_other_parameters(paths[i]), 0);
}

static void events_of_transformers_equal_pytorchs(void **state)
{
    (void)state;
    for (int i = 0; i < PATHS; i++)
        truth_check_file(paths[i], SYSTEM_FSDP2, true, truth_read_hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_named_and_ordered_as_in_transformers),
        cmocka_unit_test(events_of_transformers_equal_pytorchs),
    };
    return cmocka_run_group_tests_name("truth_hf", tests, NULL, NULL);
}
