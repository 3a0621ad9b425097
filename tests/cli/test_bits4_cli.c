/* test_bits4_cli.c - weights in 4 bits, as people ask for them. SHARDPLAN names the program. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define JOB                                                                                        \
    "llama-3.2-1b --strategy single --gpus 1 --gpu h100-sxm --lora 16,all-linear --frozen-dtype "  \
    "bf16 --autocast bf16"
#define BITS4 JOB " --load-in-4bit nf4 --bnb-double-quant on"
#define FEWEST "of 1,536 tokens and fewer bitsandbytes may multiply by packed weights"

static char folder[] = "/tmp/test_bits4_cli.XXXXXX";

static void what_is_planned_is_said(void **state)
{
    (void)state;
    shardplan_says(0, "linear layers in 4 bits (nf4, double quantization), computed in bf16",
                   "fit " BITS4 " --seq 2048");
    assert_null(strstr(program_output(), FEWEST));
    shardplan_says(0, FEWEST, "fit " BITS4 " --seq 1536");
    shardplan_says(2, "add --bnb-quant-storage bf16 --frozen-dtype param",
                   "fit llama-3.2-1b --strategy fsdp1 --gpus 2 --lora 16 --load-in-4bit nf4");
    shardplan_says(2, "add --bnb-compute-dtype bf16",
                   "fit llama-3.2-1b --strategy zero3 --gpus 2 --lora 16 --load-in-4bit nf4 "
                   "--bnb-compute-dtype fp32");
    shardplan_says(0, "linear layers in 4 bits",
                   "fit llama-3.2-1b --strategy zero3 --gpus 2 --lora 16 --load-in-4bit nf4 "
                   "--seq 2048 --no-remedies");
}

/* Where weights are whole; what of it is data is said. */
static void weights_in_8_bits_are_planned_so(void **state)
{
    (void)state;
    shardplan_says(0, "linear layers in 8 bits", "fit " JOB " --load-in-8bit on --seq 512");
    shardplan_says(0, "numbers of 6 and more is data", "fit " JOB " --load-in-8bit on --seq 512");
    shardplan_says(2, "fsdp2 is not planned with weights in 8 bits: a sharded weight has nothing",
                   "fit llama-3.2-1b --gpus 4 --strategy fsdp2 --lora 16 --load-in-8bit on");
    shardplan_says(2, "zero3 is not planned with weights in 8 bits",
                   "fit llama-3.2-1b --gpus 4 --strategy zero3 --lora 16 --load-in-8bit on");
    /* the help names those that do not refuse it */
    shardplan_says(0, "[ddp, zero1, zero2, single]", "help fit load-in-8bit");
    shardplan_says(2, "weights are in one of them", "fit " BITS4 " --load-in-8bit on");
    shardplan_says(0, "linear layers in 8 bits", "plan " JOB " --load-in-8bit on --seq 64 -o %s",
                   folder);
    shardplan_says(2, "quantize_rows", "run %s/plan.json", folder);
}

/* What a refusal says to add is taken, and it plans: whatever of it was given before. */
static void what_a_refusal_adds_is_planned(void **state)
{
    static const char *const jobs[] = {
        "llama-3.2-1b --gpus 4 --lora 16,all-linear --load-in-4bit nf4 --seq 512",
        "llama-3.2-1b --gpus 4 --lora 16 --load-in-4bit fp4 --seq 512 --frozen-dtype param",
        "llama-3.2-1b --gpus 4 --lora 16 --load-in-4bit nf4 --seq 512 --param-dtype fp16",
        "llama-3.2-1b --gpus 4 --lora 16 --load-in-4bit nf4 --seq 512 --bnb-compute-dtype fp32",
        "llama-3.2-1b --gpus 4 --lora 16 --load-in-4bit nf4 --seq 512 --store-dtype bf16",
    };
    (void)state;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        char options[256];
        shardplan_says(2, "; add --bnb-quant-storage", "fit %s", jobs[i]);
        const char *add = strstr(program_output(), "; add --") + strlen("; add ");
        snprintf(options, sizeof options, "%.*s", (int)strcspn(add, "\n"), add);
        shardplan_says(0, "fits", "fit %s %s", jobs[i], options);
    }
}

/* One value for all systems of a table: bf16 is what --param-dtype is where parameters are
 * gathered. */
static void a_frozen_dtype_may_go_by_its_name(void **state)
{
    (void)state;
    char *named;
    shardplan_says(0, "fits",
                   "fit llama-3.2-1b --gpus 4 --lora 16 --strategy fsdp2,ddp,single "
                   "--frozen-dtype bf16 --seq 512");
    assert_null(strstr(program_output(), "is not"));
    assert_int_equal(shardplan("fit llama-3.2-1b --gpus 4 --lora 16 --frozen-dtype bf16 --json"),
                     0);
    named = strdup(program_output());
    assert_int_equal(shardplan("fit llama-3.2-1b --gpus 4 --lora 16 --frozen-dtype param --json"),
                     0);
    assert_string_equal(program_output(), named);
    free(named);
    shardplan_says(2, "is in fp32 (--store-dtype) or in bf16 (--param-dtype)",
                   "fit llama-3.2-1b --gpus 4 --lora 16 --frozen-dtype fp16");
    shardplan_says(2, "--frozen-dtype param: allowed are store, bf16, fp16",
                   "fit llama-3.2-1b --strategy ddp --lora 16 --frozen-dtype param");
}

/* Adapters in the model's dtype, which nothing casts to or from. */
#define PLAIN                                                                                      \
    "llama-3.2-1b --strategy single --gpus 1 --gpu h100-sxm --lora 16,all-linear --store-dtype "   \
    "bf16"

static double step_of(const char *job, uint64_t *parameters)
{
    assert_int_equal(shardplan("plan %s --seq 2048 --json", job), 0);
    json_t *plan = program_object();
    const double step = json_number_value(json_object_get(json_object_get(plan, "time"), "step_s"));
    const json_t *units = json_object_get(plan, "units");
    *parameters =
        (uint64_t)json_integer_value(json_object_get(json_array_get(units, 0), "parameters"));
    json_decref(plan);
    return step;
}

/* Each weight is read in 4 bits and written in 16, in forward and in backward, at the memory's
 * bandwidth of the datasheet at the most; and each layer's result is copied. */
static void each_weight_is_made_twice(void **state)
{
    (void)state;
    uint64_t plain, packed;
    const double weights = 16.0 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048.0 * 8192);
    const double results = 16.0 * 2048 * (2 * 2048 + 2 * 512 + 2 * 8192 + 2048);
    const double bandwidth = 3.35e12;
    const double least = weights * 2 * (0.5 + 2) / bandwidth;
    const double copies = results * (2 + 2) / bandwidth;
    const double more = step_of(PLAIN " --load-in-4bit nf4", &packed) - step_of(PLAIN, &plain);
    assert_int_equal(plain, packed);
    assert_true(more > least);
    assert_true(more < 3 * (least + copies));
}

#define ZERO3                                                                                      \
    "llama-3.2-1b --strategy zero3 --gpus 4 --lora 16,all-linear --load-in-4bit nf4 --seq 512"

/* What is alone of its dtype among those that come together is copied by the same stream as more
 * would be, so memory that it came from the host in is that stream's to have again: `plan` holds
 * the order to its rules. */
static void what_waits_on_the_host_comes_in_order(void **state)
{
    static const char zero[] =
        "{\"zero_optimization\": {\"offload_param\": {\"device\": \"cpu\"}}}";
    (void)state;
    file_write(file_in(folder, "zero.json"), zero, strlen(zero));
    shardplan_says(0, "linear layers in 4 bits", "plan " ZERO3 " --zero %s/zero.json", folder);
}

/* bitsandbytes' contexts keep gathered weights, checkpointed or not, until the loss goes: what a
 * note says of checkpoints that make no graph is what these take. */
static void what_nodes_keep_goes_with_reentrant_checkpoints(void **state)
{
    static const char *const held[] = {"", "--checkpointing full"};
    (void)state;
    shardplan_says(0, "", "fit " ZERO3 " --checkpointing full --checkpoint-reentrant on --json");
    json_t *fit = program_object();
    const double least =
        json_number_value(json_object_get(json_object_get(fit, "peak"), "device_bytes"));
    assert_null(json_object_get(fit, "saved_views"));
    json_decref(fit);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        shardplan_says(0, "with --checkpointing full --checkpoint-reentrant on", "fit " ZERO3 " %s",
                       held[i]);
        shardplan_says(0, "", "fit " ZERO3 " %s --json", held[i]);
        fit = program_object();
        assert_true(least == json_number_value(json_object_get(json_object_get(fit, "saved_views"),
                                                               "checkpointed_device_bytes")));
        json_decref(fit);
    }
}

static void a_plan_is_read_as_it_was_written(void **state)
{
    (void)state;
    shardplan_says(0, "linear layers in 4 bits", "plan " BITS4 " --seq 2048 -o %s", folder);
    shardplan_says(0, "", "diff %s %s", folder, folder);
    shardplan_says(2, "dequantize_blocks", "run %s/plan.json", folder);
}

/* A file of FSDP2 puts adapters beside the layers itself; what these are in, its script does. */
static void an_export_says_what_the_script_loads(void **state)
{
    (void)state;
    shardplan_says(0, "",
                   "plan llama-3.2-1b --gpus 2 --lora 16 --load-in-4bit nf4 --bnb-quant-storage "
                   "bf16 --frozen-dtype param --llm-int8-skip-modules o_proj,lm_head --seq 64 -q "
                   "-o %s",
                   folder);
    static const char *const said[] = {
        "BitsAndBytesConfig(load_in_4bit=True), bnb_4bit_quant_type nf4",
        "bnb_4bit_use_double_quant: off", "bnb_4bit_quant_storage: bf16",
        "bnb_4bit_compute_dtype: bf16", "llm_int8_skip_modules: o_proj,lm_head"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        shardplan_says(0, said[i], "export %s/plan.json", folder);
    shardplan_says(0, "", "plan llama-3.2-1b --gpus 2 --lora 16 --seq 64 -q -o %s", folder);
    shardplan_says(0, "", "export %s/plan.json", folder);
    assert_null(strstr(program_output(), "BitsAndBytesConfig"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_planned_is_said),
        cmocka_unit_test(weights_in_8_bits_are_planned_so),
        cmocka_unit_test(what_a_refusal_adds_is_planned),
        cmocka_unit_test(a_frozen_dtype_may_go_by_its_name),
        cmocka_unit_test(each_weight_is_made_twice),
        cmocka_unit_test(what_waits_on_the_host_comes_in_order),
        cmocka_unit_test(what_nodes_keep_goes_with_reentrant_checkpoints),
        cmocka_unit_test(a_plan_is_read_as_it_was_written),
        cmocka_unit_test(an_export_says_what_the_script_loads),
    };
    return cmocka_run_group_tests(tests, folder_set_up_undrawn(folder), folder_tear_down);
}
