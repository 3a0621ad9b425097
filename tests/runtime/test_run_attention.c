/* test_run_attention.c - attention in single ops and of the package flash-attn, executed: the same
 * losses as by PyTorch's kernel, and the planned memory. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/shardplan_run_attention.XXXXXX";

/* The losses of three steps of rank 0 of two, recorded beside the plan. */
static void run_steps_of(const char *model, const char *options, double losses[3])
{
    if (shardplan("plan %s --gpus 2 --seq 32 %s --files plan -q -o %s", model, options, folder) !=
            0 ||
        shardplan("run %s/plan.json --rehearse 0/2 --steps 3 --json -o %s/run", folder, folder) !=
            0)
        fail_msg("%s: %s", options, program_output());
    const char *at = program_output();
    for (int i = 0; i < 3; i++) {
        at = strstr(at, "\"loss\": ");
        assert_non_null(at);
        at += strlen("\"loss\": ");
        losses[i] = strtod(at, NULL);
    }
    if (shardplan("compare %s/plan.json %s/run/trace.json", folder, folder) != 0 ||
        !strstr(program_output(), "memory is equal to the byte at all"))
        fail_msg("%s: %s", options, program_output());
}

static void run_steps(const char *options, double losses[3])
{
    char all[320];
    snprintf(all, sizeof all, "--micro-batch 2 %s", options);
    run_steps_of("tests/data/configs/tiny-llama", all, losses);
}

static void losses_are_near(const char *what, const double wanted[3], const double got[3],
                            double near)
{
    for (int step = 0; step < 3; step++)
        if (!(fabs(got[step] - wanted[step]) <= near * wanted[step]))
            fail_msg("%s: step %d: loss %.9g instead of %.9g", what, step, got[step], wanted[step]);
}

static void single_ops_give_the_losses_of_the_kernel(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        double near;
    } jobs[] = {
        {"--code torchtitan --param-dtype fp32 --reduce-dtype fp32", 1e-6},
        {"--code hf --param-dtype fp32 --reduce-dtype fp32", 1e-6},
        {"--code torchtitan", 1e-3}, /* in bf16 they round elsewhere */
        {"--code hf --checkpointing full", 1e-3},
    };
    static const char *const composed[] = {"math", "eager"};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        double kernel[3], single[3];
        run_steps(jobs[i].options, kernel);
        for (size_t k = 0; k < 2; k++) {
            char options[256];
            if (k == 1 && !strstr(jobs[i].options, "--code hf"))
                continue; /* Python's is transformers' alone */
            snprintf(options, sizeof options, "%s --attention %s", jobs[i].options, composed[k]);
            run_steps(options, single);
            losses_are_near(options, kernel, single, jobs[i].near);
        }
    }
}

/* Windows, capped scores and fewer heads of keys, which the package's kernel has for itself; heads
 * of 12, which it pads; a sequence that is asked whether it is packed. */
static void flash_attn_gives_the_losses_of_masks_and_single_ops(void **state)
{
    static const char gemma2[] = "gemma2.json";
    static const char config[] =
        "{\"model_type\": \"gemma2\", \"vocab_size\": 128, \"hidden_size\": 48, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"head_dim\": 12, \"intermediate_size\": 64, \"sliding_window\": 7, "
        "\"attn_logit_softcapping\": 2.0, \"query_pre_attn_scalar\": 1, "
        "\"final_logit_softcapping\": 30.0, \"max_position_embeddings\": 64}";
    static const char *const options[] = {"--micro-batch 2",
                                          "--micro-batch 1 --checkpointing full"};
    (void)state;
    file_write(file_in(folder, gemma2), config, sizeof config - 1);
    for (size_t i = 0; i < 2; i++) {
        double masked[3], own[3];
        char with[128];
        run_steps_of(file_in(folder, gemma2), options[i], masked);
        snprintf(with, sizeof with, "%s --attention flash-attn", options[i]);
        run_steps_of(file_in(folder, gemma2), with, own);
        losses_are_near(with, masked, own, 1e-3);
    }
}

static void what_is_not_planned_of_it_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *options, *says;
    } cases[] = {
        {"--code torchtitan --attention eager", "it is transformers' code that has it"},
        {"--code hf --attention eager --param-dtype fp16", "bf16 is"},
        {"--attention math --compile on", "what torch.compile fuses of it is not planned"},
        {"--attention math --checkpointing selective --checkpoint-blocks first-1",
         "planned where all blocks are checkpointed"},
        {"--code torchtitan --attention flash-attn", "it is transformers' code that calls"},
        {"--code hf --attention flash-attn --param-dtype fp32", "only support fp16 and bf16"},
        {"--code hf --attention flash-attn --compile on", "was not recorded, and is not planned"},
        {"--code hf --attention flash-attn --seq 1", "which is not planned"},
        {"--code hf --sample-tokens 16", "a mask over the whole sequence"},
        {"--code hf --attention flash-attn --sample-tokens 4k", "which samples are fewer than"},
        {"--attention math --torch 2.8", "as torch 2.9 and newer compute it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (shardplan("fit tests/data/configs/tiny-llama --gpus 2 %s", cases[i].options) != 2 ||
            !strstr(program_output(), cases[i].says))
            fail_msg("%s: %s", cases[i].options, program_output());
    if (shardplan("fit tests/data/configs/t5-small --gpus 2 --attention eager") != 2 ||
        !strstr(program_output(), "--attention math is PyTorch's in single ops"))
        fail_msg("%s", program_output());
    if (shardplan("fit tests/data/configs/t5-small --gpus 2 --attention flash-attn") != 2 ||
        !strstr(program_output(), "does not support Flash Attention 2 yet"))
        fail_msg("%s", program_output());
    if (shardplan("fit tests/data/configs/gpt-oss-20b --gpus 8 --attention flash-attn") != 2 ||
        !strstr(program_output(), "kernels of its hub"))
        fail_msg("%s", program_output());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_ops_give_the_losses_of_the_kernel),
        cmocka_unit_test(flash_attn_gives_the_losses_of_masks_and_single_ops),
        cmocka_unit_test(what_is_not_planned_of_it_is_refused),
    };
    return cmocka_run_group_tests_name("run attention", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}
