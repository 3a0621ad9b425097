/* test_truth_real.c - our event lists beside those of steps that were computed.
 *
 * tests/data/truth/real_events.jsonl holds recordings of torch 2.14.1's fully_shard on real
 * tensors, by the profiler and with nothing watching in Python (tests/truth/record_real.py): what a
 * GPU run does where autograd works in place, and recordings on fake tensors do not show. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char path[] = "tests/data/truth/real_events.jsonl";
/* likewise, of torchao's Float8Linear */
static const char float8_path[] = "tests/data/truth/float8_events.jsonl";
static const char gathered_path[] = "tests/data/truth/float8_gather_events.jsonl";

static truth_read_model reader_of(const json_t *row)
{
    const char *code = truth_text(json_object_get(row, "strategy"), "code", "");
    return strcmp(code, "hf") == 0         ? truth_read_hf
           : strcmp(code, "recorded") == 0 ? truth_read_recorded
                                           : truth_read_written;
}

static void events_are_equal(const char *name, size_t least)
{
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t size = 0, rows = 0, wrong = 0;
    while (getline(&line, &size, file) > 0) {
        json_t *row = truth_row(line);
        struct plan *plan = truth_plan(row, reader_of(row));
        rows++;
        wrong += !plan || truth_compare_bytes(row, plan) != 0;
        plan_free(plan);
        json_decref(row);
    }
    free(line);
    fclose(file);
    print_message("%s: %zu rows, %zu with other events\n", name, rows, wrong);
    assert_true(rows >= least);
    assert_int_equal(wrong, 0);
}

static void events_equal_those_of_computed_steps(void **state)
{
    (void)state;
    events_are_equal(path, 201);
}

/* Weights in 8 bits, whose MatMul8bitLt gives a view of its product. */
static void events_equal_those_of_weights_in_8_bits(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/bits8_real_events.jsonl", 7);
}

/* Weights in 4 bits, whose MatMul4Bit gives a gradient that others are added to in place. */
static void events_equal_those_of_weights_in_4_bits(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/bits4_real_events.jsonl", 32);
}

/* Reentrant checkpoints, whose gradients are AccumulateGrad's. */
static void events_equal_those_of_reentrant_checkpoints(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/reentrant_real_events.jsonl", 6);
}

/* The package flash-attn. */
static void events_equal_those_of_flash_attn(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/flash_attn_real_events.jsonl", 2);
}

/* Batches that are padded, and their masks. */
static void events_equal_those_of_padded_batches(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/padding_real_events.jsonl", 25);
}

/* Models that classify sequences: what is looked up by two indices is put back in place. */
static void classifiers_are_equal(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/classification_real_events.jsonl", 9);
}

/* Jobs drawn at random that were planned wrong once. */
static void events_equal_those_of_random_jobs(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/random_real_events.jsonl", 2);
}

/* Models of pictures and text, planned from a recording: a tower's features take the places of
 * tokens. */
static void events_equal_those_of_pictures_among_tokens(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/pictures_real_events.jsonl", 32);
}

/* Models that nothing here was written for, planned from a recording: diffusion's transformers and
 * networks of convolutions, encoders and decoders of sounds, pictures and text. */
static void events_equal_those_of_other_architectures(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/architectures_real_events.jsonl", 45);
}

static void products_in_float8_allocate_what_torchao_does(void **state)
{
    (void)state;
    events_are_equal(float8_path, 34);
}

/* fsdp_pre_all_gather and fsdp_post_all_gather, with scales of each gather and with all of them
 * after the update. */
static void weights_gathered_in_float8_allocate_what_torchao_does(void **state)
{
    (void)state;
    events_are_equal(gathered_path, 14);
}

/* By torch 2.15 (planned with its `--torch`). */
static void products_in_float8_do_so_under_later_versions(void **state)
{
    (void)state;
    events_are_equal("tests/data/truth/version_real_events.jsonl", 37);
}

/* The other kind of recording is of other bytes: a plan of one cannot pass for the other. */
static void recorded_events_are_not_those(void **state)
{
    (void)state;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t size = 0;
    assert_true(getline(&line, &size, file) > 0);
    json_t *row = truth_row(line);
    json_object_set_new(row, "autograd", json_string("recorded"));
    struct plan *plan = truth_plan(row, reader_of(row));
    assert_non_null(plan);
    assert_true(truth_compare_bytes(row, plan) > 0);
    plan_free(plan);
    json_decref(row);
    free(line);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_equal_those_of_computed_steps),
        cmocka_unit_test(events_equal_those_of_weights_in_4_bits),
        cmocka_unit_test(events_equal_those_of_weights_in_8_bits),
        cmocka_unit_test(events_equal_those_of_reentrant_checkpoints),
        cmocka_unit_test(events_equal_those_of_flash_attn),
        cmocka_unit_test(events_equal_those_of_padded_batches),
        cmocka_unit_test(classifiers_are_equal),
        cmocka_unit_test(events_equal_those_of_random_jobs),
        cmocka_unit_test(events_equal_those_of_pictures_among_tokens),
        cmocka_unit_test(events_equal_those_of_other_architectures),
        cmocka_unit_test(products_in_float8_allocate_what_torchao_does),
        cmocka_unit_test(weights_gathered_in_float8_allocate_what_torchao_does),
        cmocka_unit_test(products_in_float8_do_so_under_later_versions),
        cmocka_unit_test(recorded_events_are_not_those),
    };
    return cmocka_run_group_tests_name("truth_real", tests, NULL, NULL);
}
