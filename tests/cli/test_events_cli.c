/* test_events_cli.c - what `fit --events` writes: PyTorch's events, which sum to what is printed.
 */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/shardplan_events.XXXXXX";

static void fit_events_are_pytorchs(void **state)
{
    (void)state;
    char path[256], *line = NULL;
    size_t size = 0, next = 0;
    snprintf(path, sizeof path, "%s/events.jsonl", folder);
    assert_int_equal(
        shardplan("fit tests/data/configs/toy-llama --gpus 4 --seq 128 --micro-batch 2 --quiet "
                  "--autograd recorded --events %s",
                  path),
        0);
    FILE *truth = fopen("tests/data/truth/events.jsonl", "r");
    assert_non_null(truth);
    assert_true(getline(&line, &size, truth) > 0); /* toy-w4 is the first row */
    fclose(truth);
    json_t *row = json_loads(line, 0, NULL);
    const json_t *recorded = json_object_get(row, "event_list");
    FILE *ours = fopen(path, "r");
    assert_non_null(ours);
    for (; getline(&line, &size, ours) > 0; next++) {
        json_t *event = json_loads(line, 0, NULL);
        const json_t *other = json_array_get(recorded, next);
        assert_int_equal(json_array_size(event), 5);
        assert_true(json_equal(json_array_get(event, 0), json_array_get(other, 0)));
        assert_true(json_equal(json_array_get(event, 1), json_array_get(other, 1)));
        assert_true(json_equal(json_array_get(event, 2), json_array_get(other, 2)));
        assert_true(json_equal(json_array_get(event, 4), json_array_get(other, 3)));
        json_decref(event);
    }
    assert_int_equal(next, json_array_size(recorded));
    fclose(ours);
    free(line);
    json_decref(row);
}

static bool is_of_the_host(const char *what)
{
    const char *last = strrchr(what, ' ');
    return last && (strcmp(last, " host") == 0 || strcmp(last, " pinned") == 0);
}

static double number_at(const json_t *root, const char *object, const char *key)
{
    return json_number_value(json_object_get(json_object_get(root, object), key));
}

/* Of the events in a file, but for the host's, from what is there before the step: the sum, and the
 * largest on the way. */
static void sum_events(const char *path, double *bytes, double *peak)
{
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    *peak = *bytes;
    while (getline(&line, &size, file) > 0) {
        json_t *event = json_loads(line, 0, NULL);
        if (!is_of_the_host(json_string_value(json_array_get(event, 4))))
            *bytes += json_number_value(json_array_get(event, 0));
        *peak = *bytes > *peak ? *bytes : *peak;
        json_decref(event);
    }
    fclose(file);
    free(line);
}

/* Also where parameters are on the host, whose tensors are not the peak's. */
static void events_sum_to_the_peak(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--offload cpu", "--offload cpu --strategy fsdp1",
                                          "--offload cpu --autograd recorded"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        assert_int_equal(shardplan("fit tests/data/configs/toy-llama --gpus 4 --seq 8 --json "
                                   "--events %s %s",
                                   file_in(folder, "events.jsonl"), options[i]),
                         0);
        json_t *root = program_object();
        double bytes = number_at(root, "live", "start"), peak;
        sum_events(file_in(folder, "events.jsonl"), &bytes, &peak);
        assert_true(peak > bytes && peak == number_at(root, "peak", "requested_bytes"));
        assert_true(bytes == number_at(root, "live", "end"));
        json_decref(root);
    }
}

/* The same program, to the event, as DeepSpeed's own keys make, which tests/lower holds to
 * recordings. */
static void zeros_offloading_is_that_of_its_keys(void **state)
{
    (void)state;
    static const struct {
        const char *system, *offload, *zero;
    } cases[] = {
        {"zero1", "cpu", "{\"offload_optimizer\": {\"device\": \"cpu\"}}"},
        {"zero2", "optimizer", "{\"offload_optimizer\": {\"device\": \"cpu\"}}"},
        {"zero3", "optimizer", "{\"offload_optimizer\": {\"device\": \"cpu\"}}"},
        {"zero3", "cpu",
         "{\"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
         "\"cpu\"}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = file_in(folder, "zero.json");
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(cases[i].zero, file);
        fclose(file);
        for (int own = 0; own < 3; own++) { /* not at all, by the option, by the keys */
            const char *text = own == 2 ? file_in(folder, "zero.json") : cases[i].offload;
            assert_int_equal(shardplan("fit tests/data/configs/toy-llama --gpus 4 --seq 8 -q "
                                       "--strategy %s %s %s --events %s",
                                       cases[i].system, own == 2 ? "--zero" : "--offload",
                                       own ? text : "none",
                                       file_in(folder, own == 2   ? "keys"
                                                       : own == 1 ? "option"
                                                                  : "none")),
                             0);
        }
        assert_int_equal(shell("cmp %s %s", file_in(folder, "option"), file_in(folder, "keys")), 0);
        assert_int_not_equal(shell("cmp %s %s", file_in(folder, "option"), file_in(folder, "none")),
                             0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_events_are_pytorchs),
        cmocka_unit_test(zeros_offloading_is_that_of_its_keys),
        cmocka_unit_test(events_sum_to_the_peak),
    };
    return cmocka_run_group_tests_name("events_cli", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}
