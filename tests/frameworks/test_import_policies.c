/* test_import_policies.c - TRL's files of policies (GRPOConfig) as settings. */
#include "tests/frameworks/import_fixture.h"

#define FILE_OF_GRPO                                                                               \
    "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 4\nnum_generations: 8\n"

static void keys_are_settings(void **state)
{
    static const struct {
        const char *text, *settings;
    } cases[] = {
        {"", "loss grpo, prompt-tokens 512, seq 1024, padding-tokens 1, micro-batch 4, "
             "grpo-loss dapo, grpo-beta 0, grpo-vllm off, checkpointing full"},
        {"max_completion_length: 1536\n", "loss grpo, prompt-tokens 512, seq 2048"},
        {"max_completion_length: 1536\nmax_prompt_length: 64\n",
         "loss grpo, prompt-tokens 64, seq 1600"},
        {"loss_type: dr_grpo\n", "loss grpo, grpo-loss dr_grpo"},
        {"loss_type: sapo\n", "loss grpo, grpo-loss dapo"},
        {"beta: 0.04\n", "loss grpo, grpo-beta 0, padding-tokens 1"},
        {"beta: 0.04\nuse_peft: true\n", "loss grpo, grpo-beta 0.04, padding-tokens 1"},
        {"num_iterations: 2\nsteps_per_generation: 8\n",
         "loss grpo, grpo-iterations 2, grpo-steps-per-generation 8"},
        {"use_vllm: true\n", "loss grpo, grpo-vllm sequence, memory-of-others 0.3"},
        {"use_vllm: true\nvllm_mode: server\nvllm_importance_sampling_mode: token_truncate\n",
         "loss grpo, grpo-vllm token, memory-of-others 0"},
        {"use_vllm: true\nvllm_gpu_memory_utilization: 0.45\n"
         "vllm_importance_sampling_correction: false\n",
         "loss grpo, grpo-vllm off, memory-of-others 0.45"},
        {"use_vllm: true\nvllm_enable_sleep_mode: true\n", "loss grpo, memory-of-others 0"},
        {"normalize_advantages: true\n", "loss fused-lm-head, prompt-tokens 0"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[512];
        snprintf(text, sizeof text, FILE_OF_GRPO "%s", cases[i].text);
        take_text(&f, SYNTAX_YAML, text);
        expect(&f, cases[i].settings);
        import_free(&f.import);
    }
}

/* What changes the step and is not planned, each with why. */
static void others_are_listed(void **state)
{
    static const struct {
        const char *text, *key, *why;
    } cases[] = {
        {"loss_type: vespo", "loss_type", "planned as dapo"},
        {"importance_sampling_level: sequence", "importance_sampling_level", "each sequence"},
        {"top_entropy_quantile: 0.2", "top_entropy_quantile", "little entropy"},
        {"entropy_coef: 0.01", "entropy_coef", "bonus of entropy"},
        {"delta: 4.0", "delta", "planned without"},
        {"off_policy_mask_threshold: 0.5", "off_policy_mask_threshold", "sequences left out"},
        {"beta: 0.1", "beta", "a second model"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[512];
        snprintf(text, sizeof text, FILE_OF_GRPO "%s\n", cases[i].text);
        take_text(&f, SYNTAX_YAML, text);
        expect_note(&f, NOTE_UNPLANNED, cases[i].key, 4, cases[i].why);
        expect_note(&f, NOTE_UNPLANNED, "num_generations", 3, "before it, are not planned");
        import_free(&f.import);
    }
}

/* --seq is prompt and completion. */
static void options_say_how_long_prompts_are(void **state)
{
    static const struct setting_given longer = {"seq", "3000"}, shorter = {"seq", "512"},
                                      loss = {"loss", "fused-lm-head"};
    struct fixture f;
    struct err err = {0};
    (void)state;
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML, FILE_OF_GRPO, &longer, 1, &err), ERR_OK);
    expect(&f, "prompt-tokens 2488");
    import_free(&f.import);
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML, FILE_OF_GRPO, &shorter, 1, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "completions are of up to 512 tokens"));
    import_free(&f.import);
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML, FILE_OF_GRPO, &loss, 1, &err), ERR_OK);
    expect(&f, "prompt-tokens 0");
    expect_note(&f, NOTE_UNPLANNED, "num_generations", 3, "planned as fine-tuning");
    import_free(&f.import);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_settings),
        cmocka_unit_test(others_are_listed),
        cmocka_unit_test(options_say_how_long_prompts_are),
    };
    return cmocka_run_group_tests_name("import_policies", tests, NULL, NULL);
}
