/* test_run_zero.c - plans of DeepSpeed's ZeRO executed on real ranks: the numbers of PyTorch, the
 * memory that was planned (reference.h). */
#include "tests/support/reference.h"
#include "tests/support/trajectory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void write_options(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", reference_folder(), name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Small buckets, so that parameters are cut, flushed and gathered together in every way. */
static void trajectories_are_pytorchs(void **state)
{
    (void)state;
    char options[9][256];
    write_options("small.json", "{\"reduce_bucket_size\": 9000}");
    write_options("round.json", "{\"reduce_bucket_size\": 9000, \"round_robin_gradients\": true, "
                                "\"overlap_comm\": true}");
    write_options("apart.json", "{\"reduce_bucket_size\": 9000, \"contiguous_gradients\": false}");
    write_options("whole.json", "{\"reduce_bucket_size\": 9000, \"reduce_scatter\": false}");
    write_options("tight.json",
                  "{\"reduce_bucket_size\": 9000, \"stage3_prefetch_bucket_size\": 5000, "
                  "\"stage3_param_persistence_threshold\": 40, \"sub_group_size\": 8000, "
                  "\"stage3_max_live_parameters\": 20000, \"stage3_max_reuse_distance\": 9000}");
    write_options("tight-hpz.json",
                  "{\"reduce_bucket_size\": 9000, \"stage3_prefetch_bucket_size\": 5000, "
                  "\"stage3_param_persistence_threshold\": 40, \"zero_hpz_partition_size\": 2, "
                  "\"stage3_max_live_parameters\": 20000, \"stage3_max_reuse_distance\": 0}");
    static const char *const formats[] = {
        "--strategy zero1 --zero %s/small.json --accumulate 2",
        "--strategy zero1 --zero %s/round.json --checkpointing full",
        "--strategy zero2 --zero %s/whole.json --optimizer-impl fused --accumulate 2",
        "--strategy zero2 --zero %s/apart.json",
        "--strategy zero3 --zero %s/tight.json --accumulate 2 --checkpointing full",
        "--strategy zero3 --zero %s/tight-hpz.json",
        "--strategy zero3 --zero %s/whole.json --accumulate 2",
        "--strategy zero1 --zero %s/apart.json",
        "--strategy zero1 --zero %s/whole.json",
    };
    const struct variation variations[] = {
        {4, 1, options[0]},         {2, 4, options[1]},         {2, 2, options[2]},
        {4, 2, options[3]},         {2, 2, options[4]},         {4, 2, options[5]},
        {1, 8, "--strategy zero3"}, {2, 4, "--strategy zero3"}, {4, 1, options[6]},
    };
    for (size_t i = 0; i < COUNT(formats); i++)
        snprintf(options[i], sizeof options[i], formats[i], reference_folder());
    reference_check_each(variations, COUNT(variations), "--param-dtype fp32", 1e-5);
    static const struct variation rounded[] = {
        {2, 2, "--strategy zero1 --grad-accum-dtype fp32 --accumulate 2"}, /* BF16_Optimizer */
        {1, 8, "--strategy zero1 --grad-accum-dtype fp32"},
    };
    reference_check_each(rounded, COUNT(rounded), "--param-dtype bf16", 2e-2);
    const struct variation widened[] = {{2, 2, options[0]}, {2, 4, options[7]}, {2, 4, options[8]}};
    reference_check_each(widened, COUNT(widened), "--param-dtype fp16 --grad-accum-dtype fp32",
                         2e-2);
}

/* The host computes what DeepSpeedCPUAdam does, between copies that are on their own streams. */
static void trajectories_of_offloading_are_too(void **state)
{
    (void)state;
    char options[9][256];
#define OPTIMIZER "\"offload_optimizer\": {\"device\": \"cpu\"}"
#define PARAM "\"offload_param\": {\"device\": \"cpu\"}"
#define TIGHT                                                                                      \
    "\"reduce_bucket_size\": 9000, \"stage3_prefetch_bucket_size\": 5000, "                        \
    "\"stage3_param_persistence_threshold\": 40, \"stage3_max_live_parameters\": 20000, "          \
    "\"stage3_max_reuse_distance\": 9000"
    write_options("small.json", "{\"reduce_bucket_size\": 9000, " OPTIMIZER "}");
    write_options("overlap.json", "{\"reduce_bucket_size\": 9000, \"round_robin_gradients\": true, "
                                  "\"overlap_comm\": true, " OPTIMIZER "}");
    write_options("optimizer.json", "{" TIGHT ", \"sub_group_size\": 8000, " OPTIMIZER "}");
    write_options("half.json", "{" TIGHT ", \"sub_group_size\": 4000, \"offload_optimizer\": "
                               "{\"device\": \"cpu\", \"ratio\": 0.5, \"pin_memory\": false}}");
    write_options("both.json", "{" TIGHT ", " PARAM ", " OPTIMIZER "}");
    write_options("both-hpz.json",
                  "{" TIGHT ", \"zero_hpz_partition_size\": 2, " PARAM ", " OPTIMIZER "}");
    write_options("param.json", "{" TIGHT ", " PARAM "}");
    static const char *const formats[] = {
        "--strategy zero1 --zero %s/small.json --accumulate 2",
        "--strategy zero2 --zero %s/overlap.json --accumulate 2",
        "--strategy zero2 --zero %s/small.json --checkpointing full",
        "--strategy zero3 --zero %s/optimizer.json --accumulate 2",
        "--strategy zero3 --zero %s/half.json",
        "--strategy zero3 --zero %s/both.json --checkpointing full",
        "--strategy zero3 --zero %s/both-hpz.json",
        "--strategy zero3 --zero %s/param.json",
        "--strategy zero3 --zero %s/both.json --accumulate 2",
    };
    const struct variation variations[] = {
        {4, 1, options[0]}, {2, 2, options[1]}, {2, 4, options[2]},
        {2, 2, options[3]}, {4, 2, options[4]}, {2, 4, options[5]},
        {4, 2, options[6]}, {2, 4, options[7]}, {1, 4, options[8]},
    };
    for (size_t i = 0; i < COUNT(formats); i++)
        snprintf(options[i], sizeof options[i], formats[i], reference_folder());
    reference_check_each(variations, COUNT(variations), "--param-dtype fp32", 1e-5);
    const struct variation widened[] = {{2, 2, options[0]}};
    reference_check_each(widened, COUNT(widened), "--param-dtype bf16 --grad-accum-dtype fp32",
                         2e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories_are_pytorchs),
        cmocka_unit_test(trajectories_of_offloading_are_too),
    };
    return cmocka_run_group_tests_name("run_zero", tests, reference_open, trajectories_close);
}
