/* test_torch_cli.c - --torch: what a version does otherwise is said with the plan, what is not
 * known of it is refused. */
#include "base/torch.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FIT "fit tests/data/configs/toy-llama --gpus 4 --seq 128 "

#define LLAMA "fit llama-3.1-8b --gpus 8 --seq 512 --loss fused --checkpointing full "
#define BLOCK 218112000 /* parameters of one of its blocks */

static json_int_t requested(const char *job, const char *options)
{
    assert_int_equal(shardplan("%s--json %s", job, options), 0);
    json_t *result = program_object();
    const json_int_t bytes =
        json_integer_value(json_object_get(json_object_get(result, "peak"), "requested_bytes"));
    json_decref(result);
    return bytes;
}

/* The default is what everything was recorded under. RMSNorm in small kernels keeps fp32
 * copies. 2.12 holds the input of one more reduction than its neighbours, the fp32 gradients of a
 * block. */
static void versions_hold_what_they_hold(void **state)
{
    (void)state;
    assert_int_equal(requested(FIT, ""), requested(FIT, "--torch 2.14.1"));
    assert_true(requested(FIT, "--torch 2.8") > requested(FIT, "--torch 2.9"));
    const json_int_t neighbour = requested(LLAMA, "--torch 2.11");
    assert_int_equal(requested(LLAMA, "--torch 2.13"), neighbour);
    assert_int_equal(requested(LLAMA, "--torch 2.12"), neighbour + 4 * (json_int_t)BLOCK);
    /* up to 2.5 RMSNorm keeps no fp32 copies */
    assert_true(requested(FIT, "--torch 2.5") < requested(FIT, "--torch 2.6"));
    assert_int_equal(requested(FIT, "--torch 2.5.1"), requested(FIT, "--torch 2.5"));
    assert_int_equal(requested(FIT, "--torch 2.15.0"), requested(FIT, "--torch 2.15"));
}

/* The table's own sentences, of the rows that the version's range is in. */
static void what_a_version_does_otherwise_is_said(void **state)
{
    (void)state;
    assert_int_equal(shardplan(FIT "--torch 2.8 --explain"), 0);
    assert_non_null(strstr(program_output(), torch_row(TORCH_RMS_NORM_FUSED)->then));
    assert_non_null(strstr(program_output(), torch_row(TORCH_ALONE_REDUCES)->then));
    assert_null(strstr(program_output(), torch_row(TORCH_INPUT_LET_GO)->then));
    assert_int_equal(shardplan(FIT "--torch 2.8"), 0); /* many are folded */
    assert_non_null(strstr(program_output(), "things are planned as it does them, not as 2.14"));
    assert_null(strstr(program_output(), torch_row(TORCH_RMS_NORM_FUSED)->then));
    assert_int_equal(shardplan(FIT "--torch 2.12"), 0);
    assert_non_null(strstr(program_output(), torch_row(TORCH_INPUT_LET_GO)->then));
    assert_null(strstr(program_output(), torch_row(TORCH_RMS_NORM_FUSED)->then));
    /* one job's sentences are not another system's */
    assert_int_equal(shardplan(FIT "--torch 2.8 --strategy ddp --explain"), 0);
    assert_non_null(strstr(program_output(), torch_row(TORCH_RMS_NORM_FUSED)->then));
    assert_null(strstr(program_output(), torch_row(TORCH_ALONE_REDUCES)->then));
    assert_int_equal(shardplan(FIT "--torch 2.14 --json"), 0);
    json_t *result = program_object();
    const json_t *torch = json_object_get(result, "torch");
    assert_string_equal(json_string_value(json_object_get(torch, "version")), "2.14");
    assert_int_equal(json_array_size(json_object_get(torch, "otherwise")), 0);
    json_decref(result);
    /* of a newer one than the default, what it began */
    assert_int_equal(shardplan(FIT "--torch 2.15 --explain"), 0);
    assert_non_null(strstr(program_output(), torch_row(TORCH_GATHER_LET_GO)->now));
    assert_non_null(strstr(program_output(), "(from 2.15)"));
    assert_null(strstr(program_output(), torch_row(TORCH_INPUT_LET_GO)->now));
    /* what a version before the default and the newest do alike */
    assert_int_equal(shardplan(FIT "--torch 2.5 --explain"), 0);
    assert_non_null(strstr(program_output(), torch_row(TORCH_GRADIENTS_GO)->now));
    assert_non_null(strstr(program_output(), "(until 2.6)"));
}

/* What is planned of a version that it was not recorded under, and nothing where it was. */
static void what_was_not_recorded_is_said(void **state)
{
    (void)state;
    assert_int_equal(shardplan(FIT "--torch 2.12 --attention math"), 0);
    assert_non_null(strstr(program_output(), "torch 2.12: --attention in single ops is planned as "
                                             "2.14 does it, under which it was recorded first"));
    assert_int_equal(shardplan(FIT "--torch 2.12 --attention math --json"), 0);
    json_t *result = program_object();
    const json_t *list = json_object_get(json_object_get(result, "torch"), "not_recorded");
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "planned_as")),
                        "2.14");
    json_decref(result);
    assert_int_equal(shardplan(FIT "--torch 2.12 --start-up"), 0);
    assert_non_null(strstr(program_output(), "--start-up is planned as 2.14 does it"));
    assert_int_equal(shardplan(FIT "--torch 2.15 --start-up --attention math"), 0);
    assert_null(strstr(program_output(), "recorded first"));
    assert_int_equal(shardplan(FIT "--torch 2.15 --loss compiled"), 0);
    assert_non_null(strstr(program_output(),
                           "torch 2.15: --loss compiled is planned as 2.14 does it, under "
                           "which it was recorded last"));
    assert_int_equal(shardplan(FIT "--torch 2.15 --strategy zero3"), 0);
    assert_null(strstr(program_output(), "was recorded"));
}

/* MixedPrecisionPolicy(reduce_dtype=None): gradients of fp32 parameters, as of 2.15. */
static void gradients_own_dtype_is_the_stored_one_since_2_15(void **state)
{
    (void)state;
    assert_int_equal(requested(LLAMA, "--torch 2.15 --reduce-dtype same"),
                     requested(LLAMA, "--torch 2.15 --reduce-dtype fp32"));
    assert_int_equal(requested(LLAMA, "--torch 2.14 --reduce-dtype same"),
                     requested(LLAMA, "--torch 2.14 --reduce-dtype bf16"));
}

static void what_is_not_known_of_a_version_is_refused(void **state)
{
    static const struct {
        const char *options, *says;
    } refused[] = {
        {"--torch 2.3", "allowed are 2.4"},
        {"--torch 2.16", "did you mean 2.15?"},
        {"--torch 2.150", "did you mean 2.15?"},
        {"--torch 2.5.0", "allowed are 2.4"}, /* it alone preferred cuDNN's attention */
        {"--torch 2.8 --strategy zero3", "ZeRO: not known of torch 2.8; it is planned as of 2.14"},
        {"--torch 2.8 --strategy ddp --autocast bf16", "not known of torch 2.8"},
        {"--torch 2.8 --compile on", "not known of torch 2.8"},
        {"--torch 2.4 --units torchtitan", "torch 2.4 does not have it; 2.5 does"},
        {"--torch 2.4 --units 2", "torch 2.4 does not have it; 2.5 does"},
        {"--torch 2.4 --forward-prefetch 1", "torch 2.4 does not have it; 2.5 does"},
        {"--torch 2.4 --backward-prefetch 1", "torch 2.4 does not have it; 2.5 does"},
        {"--torch 2.4 --checkpointing selective", "2.5 does"},
        {"--torch 2.5 --replicate 2 --param-dtype bf16 --reduce-dtype bf16",
         "to the next reduce-scatter while it is still read (until 2.6)"},
        {"--torch 2.5 --placement columns", "torch 2.5 does not have it; 2.6 does"},
        {"--torch 2.5 --units torchtitan --not-in-backward tok_embeddings",
         "torch 2.5 does not have it; 2.6 does"},
        {"--torch 2.5 --units torchtitan --freeze tok_embeddings*",
         "backward does not come to tok_embeddings"},
        {"--torch 2.5 --code hf", "transformers 5.23, whose code is planned, needs torch 2.6"},
        {"--torch 2.5 --lora 8", "which --lora's adapters are of, is planned, needs torch 2.6"},
        {"--torch 2.12 --reduce-buffers 2", "torch 2.12 does not have it; 2.13 does"},
        {"--torch 2.5 --offload cpu", "--offload: not known of torch 2.5; it is planned as of 2.6"},
        {"--torch 2.8 --offload cpu --replicate 2", "HSDP's host waits for the reduce-scatters"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(shardplan(FIT "%s", refused[i].options), 2);
        if (!strstr(program_output(), refused[i].says))
            fail_msg("%s: %s", refused[i].options, program_output());
    }
    /* a recording has the calls of its own version, be others known or not */
    for (const char *const *other = (const char *const[]){"2.13", "2.15", NULL}; *other; other++) {
        assert_int_equal(
            shardplan("fit tests/data/recorded/bert.stream.json.gz --torch %s", *other), 2);
        assert_non_null(strstr(program_output(), "recorded with torch 2.14"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_hold_what_they_hold),
        cmocka_unit_test(what_a_version_does_otherwise_is_said),
        cmocka_unit_test(gradients_own_dtype_is_the_stored_one_since_2_15),
        cmocka_unit_test(what_was_not_recorded_is_said),
        cmocka_unit_test(what_is_not_known_of_a_version_is_refused),
    };
    return cmocka_run_group_tests_name("torch", tests, NULL, NULL);
}
