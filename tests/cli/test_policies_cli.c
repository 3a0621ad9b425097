/* test_policies_cli.c - steps of a trainer of policies, and prompts, on the command line: what is
 * not planned is refused, what is not in the step is said, options change what they say they do,
 * and TRL's files are read. */
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LLAMA "fit tests/data/configs/tiny-llama --gpus 2 --seq 32 --micro-batch 2 "
#define GRPO LLAMA "--loss grpo --prompt-tokens 8 "

static void refused(const char *command, const char *says)
{
    if (shardplan("%s", command) != 2 || !strstr(program_output(), says))
        fail_msg("%s: %s", command, program_output());
}

static void what_is_not_planned_is_refused(void **state)
{
    (void)state;
    refused(LLAMA "--loss grpo", "how many are its prompt? --prompt-tokens N, 1 to 30");
    /* one limit, however far beyond it */
    refused(LLAMA "--loss grpo --prompt-tokens 31", "at most 30 are prompt with --loss grpo");
    refused(LLAMA "--loss grpo --prompt-tokens 32", "at most 30 are prompt with --loss grpo");
    refused(LLAMA "--loss grpo --prompt-tokens 99", "at most 30 are prompt with --loss grpo");
    refused(GRPO "--grpo-beta 0.04", "with --lora");
    refused(GRPO "--code torchtitan", "--code hf");
    refused(GRPO "--compile on", "--compile is not planned");
    refused(GRPO "--param-dtype fp16", "planned to bf16 alone");
    refused(GRPO "--padding-tokens 24", "at most 23 are padding: a token behind its prompt");
    refused(GRPO "--grpo-loss sapo", "dapo");
    refused(GRPO "--activation-offloading on", "the log's nodes");
    refused("fit bert-base --gpus 2 --seq 32 --loss grpo --prompt-tokens 8", "bert");
    refused("fit t5-small --code hf --gpus 2 --seq 32 --loss grpo --prompt-tokens 8", "t5");
    refused(LLAMA "--grpo-beta 0.04 --lora 4", "--grpo-beta: of a step of TRL's trainer");
    refused(LLAMA "--grpo-vllm token", "--grpo-vllm: of a step of TRL's trainer");
    refused(LLAMA "--grpo-steps-per-generation 2", "--grpo-steps-per-generation: of a step");
    refused(LLAMA "--loss dpo --lora 4 --prompt-tokens 8", "--loss dpo is not planned");
    refused(LLAMA "--code torchtitan --prompt-tokens 8", "--code hf");
    refused(LLAMA "--code hf --prompt-tokens 8 --attention flash-attn --sample-tokens 8",
            "samples begin within a sequence");
    refused("fit t5-small --gpus 2 --seq 32 --prompt-tokens 8", "of a decoder");
}

static double number_of(const char *command, const char *key)
{
    char word[64];
    if (shardplan("%s --json", command) == 2)
        fail_msg("%s: %s", command, program_output());
    snprintf(word, sizeof word, "\"%s\": ", key);
    const char *at = strstr(program_output(), word);
    assert_non_null(at);
    return strtod(at + strlen(word), NULL);
}

static void what_is_before_the_step_is_said(void **state)
{
    (void)state;
    assert_int_not_equal(shardplan(GRPO), 2);
    assert_non_null(strstr(program_output(), "note: a step trains on completions that are there"));
    assert_non_null(strstr(program_output(), "8 of them prompt"));
    assert_non_null(strstr(program_output(), "under autocast (bf16)"));
    assert_int_not_equal(shardplan(GRPO "--param-dtype same --store-dtype bf16"), 2);
    assert_null(strstr(program_output(), "under autocast"));
}

/* The batch that waits: prompts' and completions' tokens and masks of int64, an advantage each, the
 * number of tokens; and columns of fp32, of 24 tokens or one. */
static void columns_wait_for_their_step(void **state)
{
    enum { TOKENS = 2 * 32 * 2 * 8, ADVANTAGES = 2 * 4, COLUMN = 2 * 24 * 4, RATIO = 2 * 4 };
    static const struct {
        const char *options;
        int more;
    } cases[] = {
        {"--grpo-iterations 2", COLUMN},
        {"--grpo-vllm sequence", 2 * COLUMN + RATIO},
        {"--grpo-vllm token", 3 * COLUMN},
        {"--grpo-steps-per-generation 3", 2 * (TOKENS + ADVANTAGES) + 3 * COLUMN},
        {"--accumulate 3", 2 * (TOKENS + ADVANTAGES)},
        {"--accumulate 4 --grpo-steps-per-generation 2", TOKENS + ADVANTAGES},
    };
    const double plain = number_of(GRPO "--strategy ddp", "start");
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        snprintf(command, sizeof command, GRPO "--strategy ddp %s", cases[i].options);
        assert_true(number_of(command, "start") - plain == cases[i].more);
    }
}

/* Log-probabilities are found of labels alone; eager cross-entropy computes all. */
static void prompts_take_no_part(void **state)
{
    static const char *const losses[] = {"fused-lm-head", "eager"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char command[512];
        snprintf(command, sizeof command, LLAMA "--code hf --loss %s", losses[i]);
        const double whole = number_of(command, "after_forward");
        snprintf(command, sizeof command, LLAMA "--code hf --loss %s --prompt-tokens 9", losses[i]);
        const double less = number_of(command, "after_forward");
        if (i == 0)
            assert_true(less < whole);
        else
            assert_true(less == whole);
    }
}

static void others_on_a_gpu_take_their_share(void **state)
{
    (void)state;
    assert_int_not_equal(shardplan("fit llama-3.1-8b --gpus 8 --gpu h100-sxm"), 2);
    assert_non_null(strstr(program_output(), " of 79.10 GiB"));
    assert_int_not_equal(
        shardplan("fit llama-3.1-8b --gpus 8 --gpu h100-sxm --memory-of-others 0.3"), 2);
    assert_non_null(strstr(program_output(), "of 55.37 GiB"));
    assert_non_null(strstr(program_output(), "30 % of each GPU's memory held by others"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_planned_is_refused),
        cmocka_unit_test(what_is_before_the_step_is_said),
        cmocka_unit_test(columns_wait_for_their_step),
        cmocka_unit_test(prompts_take_no_part),
        cmocka_unit_test(others_on_a_gpu_take_their_share),
    };
    return cmocka_run_group_tests_name("policies_cli", tests, NULL, NULL);
}
