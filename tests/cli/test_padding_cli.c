/* test_padding_cli.c - batches that are padded, on the command line: what is not planned of them is
 * refused, files are read with what options say, searches keep the micro-batch, and a plan.json
 * that pads more than there is does not run. */
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

#define LLAMA "tests/data/configs/tiny-llama --gpus 2 --seq 32 "

static void refused(const char *command, const char *says)
{
    if (shardplan("%s", command) != 2 || !strstr(program_output(), says))
        fail_msg("%s: %s", command, program_output());
}

static void what_is_not_planned_of_it_is_refused(void **state)
{
    (void)state;
    refused("fit " LLAMA "--micro-batch 2 --padding-tokens 32", "at most 31 are padding");
    refused("fit " LLAMA "--micro-batch 1 --padding-tokens 31", "at most 30 are padding");
    refused("fit " LLAMA "--micro-batch 2 --padding-tokens 3 --code torchtitan", "--code hf");
    refused("fit " LLAMA "--micro-batch 2 --padding-tokens 3 --compile on", "torch.compile");
    refused("fit " LLAMA "--code hf --micro-batch 2 --padding-tokens 32 --loss dpo --lora 4",
            "at most 31 are padding");
    refused("fit " LLAMA "--code hf --micro-batch 3 --padding-tokens 3 --loss dpo --lora 4",
            "a pair is two sequences");
    refused("fit " LLAMA "--micro-batch 2 --padding-tokens 3 --loss dpo --compile on",
            "torch.compile");
    refused("fit llama-4-scout-17b-16e --gpus 2 --micro-batch 2 --padding-tokens 3 --loss dpo",
            "what llama4_text makes of a mask");
    refused("fit t5-small --gpus 2 --micro-batch 2 --padding-tokens 3 --loss reward", "t5");
    refused("fit " LLAMA "--padding-tokens 3 --code hf --attention flash-attn --sample-tokens 8",
            "nothing is padded");
    refused("fit tests/data/configs/t5-small --gpus 2 --micro-batch 2 --padding-tokens 3",
            "what t5 makes of a mask");
    refused("fit tests/data/recorded/bart_decoder.stream.json.gz --gpus 2 --padding-tokens 3",
            "a recorded model is what it was");
    refused("fit eurobert-210m --gpus 2 --seq 32 --micro-batch 2 --padding-tokens 3 --task "
            "sequence-classification",
            "the mean over tokens");
}

/* Of a file, whether its step has padding. */
static void expect_padding_of(const char *file, const char *options, bool padded)
{
    if (shardplan("fit --from tests/data/frameworks/%s --gpus 8 --seq 512 %s", file, options) ==
            2 ||
        (strstr(program_output(), "(1 padding)") != NULL) != padded)
        fail_msg("%s: %s", options, program_output());
}

static void expect_padding(const char *options, bool padded)
{
    expect_padding_of("axolotl_padded.yml", options, padded);
}

static void options_decide_what_a_file_pads(void **state)
{
    (void)state;
    expect_padding("", true);
    expect_padding("--micro-batch 1", false);
    expect_padding("--padding-tokens 0", false);
    expect_padding("--compile on", false);
    expect_padding("--code torchtitan", false);
    expect_padding("--loss reward --sets-pad-token on", true);
}

/* TRL's files of preferences and of rewards. */
static void pairs_of_a_file_are_padded(void **state)
{
    static const char *const files[] = {"trl_dpo.yaml", "trl_reward.yaml"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        expect_padding_of(files[i], "", true);
        assert_non_null(strstr(program_output(), "planned as if a token were"));
        expect_padding_of(files[i], "--micro-batch 2", true);
        expect_padding_of(files[i], "--micro-batch 1", false);
        expect_padding_of(files[i], "--padding-tokens 0", false);
    }
    expect_padding_of("trl_reward.yaml", "--compile on", false);
    expect_padding_of("trl_reward.yaml", "eurobert-210m", false);
    assert_non_null(strstr(program_output(), "planned as if none were"));
}

static void searches_keep_the_micro_batch(void **state)
{
    (void)state;
    assert_int_equal(shardplan("tune " LLAMA "--code hf --micro-batch 4 --global-batch 32 "
                               "--padding-tokens 7 --json"),
                     0);
    assert_null(strstr(program_output(), "--micro-batch 1"));
    assert_null(strstr(program_output(), "--micro-batch 2"));
    assert_int_equal(shardplan("tune " LLAMA "--code hf --micro-batch 4 --global-batch 32 "
                               "--padding-tokens 7 --loss dpo --lora 4 --json"),
                     0);
    assert_null(strstr(program_output(), "--micro-batch 2"));
    assert_null(strstr(program_output(), "--micro-batch 8"));
}

/* A host computes none of it, as of pairs without padding; its memory can be rehearsed. */
static void padded_pairs_are_rehearsed_alone(void **state)
{
    static const char *const losses[] = {"dpo --precompute-ref-log-probs on", "dpo --lora 4",
                                         "reward --sets-pad-token on"};
    char folder[64], command[256];
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_padding.XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "plan " LLAMA "--code hf --micro-batch 2 --padding-tokens 7 --param-dtype fp32 "
                 "--loss %s --files plan -q -o %s",
                 losses[i], folder);
        assert_int_equal(shardplan("%s", command), 0);
        snprintf(command, sizeof command, "run %s/plan.json --steps 1", folder);
        refused(command, "--kernels waits rehearses the plan without");
        snprintf(command, sizeof command, "run %s/plan.json --steps 1 --kernels waits", folder);
        assert_int_equal(shardplan("%s", command), 0);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void more_than_there_is_is_not_padded(void **state)
{
    char folder[64], command[256];
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_padding.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "plan " LLAMA
             "--code hf --micro-batch 2 --padding-tokens 7 --param-dtype fp32 --files "
             "plan -q -o %s",
             folder);
    assert_int_equal(shardplan("%s", command), 0);
    snprintf(command, sizeof command,
             "sed -i 's/\"padded\": 7/\"padded\": 4000000000/' %s/plan.json", folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "run %s/plan.json --steps 1", folder);
    refused(command, "none is left");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_planned_of_it_is_refused),
        cmocka_unit_test(options_decide_what_a_file_pads),
        cmocka_unit_test(pairs_of_a_file_are_padded),
        cmocka_unit_test(searches_keep_the_micro_batch),
        cmocka_unit_test(more_than_there_is_is_not_padded),
        cmocka_unit_test(padded_pairs_are_rehearsed_alone),
    };
    return cmocka_run_group_tests_name("padding_cli", tests, NULL, NULL);
}
