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
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put(rows[i].text);
        shardplan_says(2, rows[i].says, "fit %s --gpus 4", path_of("a.json"));
    }
}

static void what_was_not_recorded_is_refused(void **state)
{
    (void)state;
    shardplan_says(2, "Mamba-2 was not recorded", "fit granite-4.0-h-micro --gpus 8 --compile on");
    shardplan_says(2, "Mamba-2 was not recorded",
                   "fit granite-4.0-h-micro --gpus 8 --strategy ddp --autocast bf16");
    shardplan_says(2, "Mamba-2 was not recorded",
                   "fit granite-4.0-h-micro --gpus 8 --gpu h100-sxm --float8 rowwise");
    shardplan_says(2, "past an adapter", "fit granite-4.0-h-micro --gpus 8 --lora 8,out_proj");
    shardplan_says(2, "past an adapter", "fit granite-4.0-h-micro --gpus 8 --lora 8,all-linear");
    shardplan_says(
        2, "with Mamba-2",
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
        cmocka_unit_test(what_was_not_recorded_is_refused),
    };
    return cmocka_run_group_tests_name("mamba_cli", tests, make_folder, remove_folder);
}
