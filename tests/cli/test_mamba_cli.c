/* test_mamba_cli.c - models with Mamba-2 from the command line: what of their memory follows from
 * the GPU, and what is refused. */
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HYBRID(sizes)                                                                              \
    "{\"model_type\": \"granitemoehybrid\", \"vocab_size\": 64, \"hidden_size\": 512, "            \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"shared_intermediate_size\": 96, \"num_local_experts\": 0, \"mamba_chunk_size\": 256, "      \
    "\"layer_types\": [\"mamba\"], " sizes "}"

#define NEMOTRON(sizes)                                                                            \
    "{\"model_type\": \"nemotron_h\", \"vocab_size\": 64, \"hidden_size\": 64, "                   \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"head_dim\": 16, \"intermediate_size\": 128, \"ssm_state_size\": 16, "                       \
    "\"hybrid_override_pattern\": \"M*\", " sizes "}"

static void put(const char *text)
{
    put_text("a.json", text, strlen(text));
}

/* mamba-ssm takes buffers by the number of multiprocessors (ssd_chunk_state.py, ssd_chunk_scan.py,
 * layernorm_gated.py). Peaks are of recordings (tests/truth/record.py with MULTIPROCESSORS set to
 * 108 and to 132): of 64 heads in 2 chunks 2 go together on an A100, each on its own on an H100. */
static void buffers_go_by_the_gpus_multiprocessors(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        json_int_t peak;
    } recorded[] = {{"a100-sxm-80gb", 42533684}, {"h100-sxm", 59310900}};
    put(HYBRID("\"mamba_n_heads\": 64, \"mamba_d_state\": 24, \"mamba_n_groups\": 1"));
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        assert_int_equal(shardplan("fit %s --gpus 4 --seq 512 --gpu %s --json", path_of("a.json"),
                                   recorded[i].gpu),
                         0);
        json_t *said = program_object();
        const json_t *peak = json_object_get(json_object_get(said, "peak"), "requested_bytes");
        assert_int_equal(json_integer_value(peak), recorded[i].peak);
        json_decref(said);
    }
}

static void what_kernels_cannot_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {HYBRID("\"mamba_n_heads\": 64, \"mamba_n_groups\": 3"), "does not divide"},
        {HYBRID("\"mamba_n_heads\": 4"), "planned as multiples of 8"},
        {HYBRID("\"mamba_n_heads\": 48"), "times \"hidden_size\": 512"},
        {HYBRID("\"mamba_n_heads\": 64, \"mamba_d_head\": 32"), "expected \"auto\" or 16"},
        {HYBRID("\"mamba_d_conv\": 5"), "expected an integer 2 ... 4"},
        {"{\"model_type\": \"granitemoehybrid\", \"vocab_size\": 64, \"hidden_size\": 1048576, "
         "\"num_hidden_layers\": 1, \"num_attention_heads\": 16, \"shared_intermediate_size\": 64, "
         "\"num_local_experts\": 0, \"mamba_n_heads\": 8, \"mamba_expand\": 8}",
         "\"mamba_n_heads\": 8 heads of 1048576 numbers: expected 1 ... 65536"},
        {NEMOTRON("\"mamba_num_heads\": 1024, \"mamba_head_dim\": 64, \"n_groups\": 1"),
         "\"mamba_num_heads\": 1024 of 64 numbers in \"n_groups\": 1: mamba-ssm's norm takes 1 ... "
         "32768 numbers of a group in bf16, not 65536"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put(rows[i].text);
        shardplan_says(2, rows[i].says, "fit %s --gpus 4", path_of("a.json"));
    }
}

/* Half of it is as wide in fp32; and groups share out what is too much for one. */
static void norms_of_wide_groups_go_by_the_dtype(void **state)
{
    (void)state;
    put(NEMOTRON("\"mamba_num_heads\": 512, \"mamba_head_dim\": 64, \"n_groups\": 1"));
    assert_int_equal(shardplan("fit %s --gpus 4 --seq 64", path_of("a.json")), 0);
    shardplan_says(2, "1 ... 16384 numbers of a group in fp32, not 32768",
                   "fit %s --gpus 4 --seq 64 --param-dtype fp32", path_of("a.json"));
    put(NEMOTRON("\"mamba_num_heads\": 1024, \"mamba_head_dim\": 64, \"n_groups\": 2"));
    assert_int_equal(shardplan("fit %s --gpus 4 --seq 64", path_of("a.json")), 0);
}

/* The norm has a number for each of a token's groups, in one dim. */
static void groups_of_too_many_tokens_are_refused(void **state)
{
    (void)state;
    put(NEMOTRON("\"mamba_num_heads\": 1024, \"mamba_head_dim\": 8, \"n_groups\": 1024"));
    shardplan_says(2, "\"n_groups\": 1024 times 4194304 tokens is over 2^32 - 1",
                   "fit %s --gpus 8 --seq 4194304", path_of("a.json"));
    assert_int_equal(shardplan("fit %s --gpus 8 --seq 4194303 --micro-batch 2", path_of("a.json")),
                     2);
    assert_int_not_equal(shardplan("fit %s --gpus 8 --seq 4194303", path_of("a.json")), 2);
}

/* Nemotron Nano's file says of experts how many there are, and no layer has any. */
static void experts_that_no_layer_has_make_no_mixture(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit nemotron-nano-9b-v2 --gpus 8 --seq 64 --torch 2.8"), 0);
    shardplan_says(2, "past an adapter", "fit nemotron-nano-9b-v2 --gpus 8 --lora 8,all-linear");
    shardplan_says(2, "shapes cannot be multiplied",
                   "fit nemotron-nano-9b-v2 --gpus 2 --strategy ddp --load-in-4bit nf4 --lora "
                   "8,q_proj");
    shardplan_says(2, "past an adapter",
                   "fit nemotron-3-nano-30b-a3b --gpus 8 --lora 8,all-linear");
}

static void adapters_are_advised_where_they_can_be(void **state)
{
    (void)state;
    shardplan_says(2, "name layers (--lora 8,in_proj,q_proj,v_proj)\n",
                   "fit granite-4.0-h-micro --gpus 8 --lora 8");
    put(HYBRID("\"mamba_n_heads\": 64"));
    shardplan_says(2, "name layers (--lora 8,in_proj)\n", "fit %s --gpus 4 --lora 8",
                   path_of("a.json"));
    shardplan_says(2,
                   "mamba.out_proj.base_layer.weight past an adapter, which would get no "
                   "gradient: name others (--lora 8,in_proj)",
                   "fit %s --gpus 4 --lora 8,0.mamba.out_proj", path_of("a.json"));
    assert_int_equal(shardplan("fit %s --gpus 4 --seq 64 --lora 8,in_proj", path_of("a.json")), 0);
}

/* Kernels of _mamba_chunk_scan_combined_bwd (ssd_combined.py) and of what it calls, in their order,
 * from B's gradient on. */
static void backward_runs_what_mamba_ssm_runs(void **state)
{
    (void)state;
    static const char *const kernels[] = {"_chunk_state_bwd_db",
                                          "sum.dim_IntList",
                                          "cumsum",
                                          "_chunk_scan_bwd_dC",
                                          "sum.dim_IntList",
                                          "_chunk_scan_bwd_dcb",
                                          "sum.dim_IntList",
                                          "_bmm_chunk_bwd",
                                          "_bmm_chunk_bwd",
                                          "add_.Tensor",
                                          "flip",
                                          "cumsum",
                                          "flip",
                                          "_chunk_scan_bwd_ddAcs_stable",
                                          "sum.dim_IntList",
                                          "add.Tensor",
                                          "add_.Tensor",
                                          "_chunk_cumsum_bwd"};
    char out[128];
    put(HYBRID("\"mamba_n_heads\": 64"));
    snprintf(out, sizeof out, "%s", path_of("out"));
    assert_int_equal(shardplan("plan %s --gpus 4 --seq 64 -o %s", path_of("a.json"), out), 0);
    json_t *plan = json_load_file(path_of("out/plan.json"), 0, NULL);
    json_t *instruction;
    size_t i, met = 0;
    json_array_foreach(json_object_get(plan, "instructions"), i, instruction)
    {
        const char *kernel = json_string_value(json_object_get(instruction, "kernel"));
        if (!kernel || met == sizeof kernels / sizeof *kernels ||
            (met == 0 && strcmp(kernel, kernels[0]) != 0))
            continue;
        assert_string_equal(kernel, kernels[met]);
        met++;
    }
    assert_int_equal(met, sizeof kernels / sizeof *kernels);
    json_decref(plan);
}

static void what_was_not_recorded_is_refused(void **state)
{
    (void)state;
    shardplan_says(2, "Mamba-2 was not recorded", "fit granite-4.0-h-micro --gpus 8 --compile on");
    shardplan_says(2, "Mamba-2 in fp32 was not recorded",
                   "fit granite-4.0-h-micro --gpus 8 --strategy ddp --autocast bf16");
    assert_int_equal(shardplan("fit granite-4.0-h-micro --gpus 8 --strategy ddp --autocast bf16 "
                               "--store-dtype bf16"),
                     0);
    shardplan_says(2, "Mamba-2 was not recorded",
                   "fit granite-4.0-h-micro --gpus 8 --gpu h100-sxm --float8 rowwise");
    shardplan_says(2, "past an adapter", "fit granite-4.0-h-micro --gpus 8 --lora 8,out_proj");
    shardplan_says(2, "past an adapter",
                   "fit granite-4.0-h-micro --gpus 8 --lora 8,mamba.out_proj");
    shardplan_says(2, "past an adapter", "fit granite-4.0-h-micro --gpus 8 --lora 8,all-linear");
    shardplan_says(
        2, "shapes cannot be multiplied",
        "fit granite-4.0-h-micro --gpus 2 --strategy ddp --load-in-4bit nf4 --lora 8,q_proj");
    assert_int_equal(shardplan("fit granite-4.0-h-micro --gpus 8 --lora 8,in_proj,q_proj"), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return temp_folder_make("mamba_cli");
}

static int remove_folder(void **state)
{
    (void)state;
    return temp_folder_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_go_by_the_gpus_multiprocessors),
        cmocka_unit_test(what_kernels_cannot_is_refused),
        cmocka_unit_test(backward_runs_what_mamba_ssm_runs),
        cmocka_unit_test(norms_of_wide_groups_go_by_the_dtype),
        cmocka_unit_test(groups_of_too_many_tokens_are_refused),
        cmocka_unit_test(experts_that_no_layer_has_make_no_mixture),
        cmocka_unit_test(adapters_are_advised_where_they_can_be),
        cmocka_unit_test(what_was_not_recorded_is_refused),
    };
    return cmocka_run_group_tests_name("mamba_cli", tests, make_folder, remove_folder);
}
